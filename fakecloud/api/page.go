package api

import (
	"net/url"
	"strconv"
	"strings"

	"drydock.dev/drydock/fakecloud"
)

// page reads which part of a list is asked for.
func (c *call) page() fakecloud.Page {
	q := c.r.URL.Query()
	number, _ := strconv.Atoi(q.Get("page"))
	size, _ := strconv.Atoi(q.Get("per_page"))
	return fakecloud.Page{Number: number, Size: size}.Normal()
}

type pages struct {
	First string `json:"first,omitempty"`
	Prev  string `json:"prev,omitempty"`
	Next  string `json:"next,omitempty"`
	Last  string `json:"last,omitempty"`
}

type links struct {
	Pages *pages `json:"pages,omitempty"`
}

// listed is the envelope of a collection. Clients find their page by prev, so
// every page but the first has one, also those beyond the end.
func (c *call) listed(key string, items any, total int) map[string]any {
	p := c.page()
	last := max(1, (total+p.Size-1)/p.Size)
	var l links
	if last > 1 || p.Number > 1 {
		l.Pages = &pages{}
		if p.Number > 1 {
			l.Pages.First, l.Pages.Prev = c.pageLink(p, 1), c.pageLink(p, p.Number-1)
		}
		if p.Number < last {
			l.Pages.Next, l.Pages.Last = c.pageLink(p, p.Number+1), c.pageLink(p, last)
		}
	}
	return map[string]any{key: items, "links": l, "meta": map[string]int{"total": total}}
}

func (c *call) pageLink(p fakecloud.Page, number int) string {
	q := c.r.URL.Query()
	q.Set("page", strconv.Itoa(number))
	q.Set("per_page", strconv.Itoa(p.Size))
	return c.url(c.r.URL.Path) + "?" + q.Encode()
}

// url makes a path of this server absolute.
func (c *call) url(path string) string {
	u := url.URL{Scheme: "http", Host: c.r.Host, Path: path}
	if c.r.TLS != nil {
		u.Scheme = "https"
	}
	return u.String()
}

// nameParam reads the name filter. Some clients paste it into the URL unescaped, so
// that a plus sign arrives as a space; no name that this cloud takes both ways is lost.
func (c *call) nameParam() string {
	name := c.r.URL.Query().Get("name")
	if !strings.Contains(name, " ") {
		return name
	}
	for _, kv := range strings.Split(c.r.URL.RawQuery, "&") {
		raw, ok := strings.CutPrefix(kv, "name=")
		if !ok || !strings.Contains(raw, "+") {
			continue
		}
		literal, err := url.PathUnescape(raw)
		if err != nil {
			continue
		}
		if _, n := c.s.cloud.Volumes(fakecloud.VolumeFilter{Name: literal}, fakecloud.Page{}); n > 0 {
			return literal
		}
	}
	return name
}
