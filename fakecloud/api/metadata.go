package api

import (
	"encoding/base64"
	"net"
	"net/http"
	"slices"
	"strings"

	"drydock.dev/drydock/fakecloud"
)

// metadataHost is the address where a droplet finds its own metadata.
const metadataHost = "169.254.169.254"

// metadata answers the tree under /metadata/v1 for the droplet that asks. Leaves have no
// newline at their end: clients put them into URLs as they are.
func (s *server) metadata(c *call) (int, any, error) {
	if host := c.r.URL.Hostname(); host != "" && host != metadataHost && !isLoopback(host) {
		return 0, nil, &statusError{status: http.StatusForbidden, text: "drydock answers for " + metadataHost + " only; it is no proxy to " + host}
	}
	d, err := s.whose(c.r)
	if err != nil {
		return 0, nil, err
	}
	path := strings.TrimPrefix(c.r.URL.Path, "/metadata/v1")
	switch path {
	case ".json":
		return 0, metadataDocument(d), nil
	case "":
		c.header.Set("Location", "/metadata/v1/")
		return http.StatusMovedPermanently, plain(""), nil
	}
	tree := metadataTree(d)
	path = strings.TrimPrefix(path, "/")
	if text, ok := tree[path]; ok {
		return 0, plain(text), nil
	}
	index := indexOf(tree, path)
	switch {
	case index == "":
		return http.StatusNotFound, plain("not found"), nil
	case path != "" && !strings.HasSuffix(path, "/"):
		c.header.Set("Location", "/metadata/v1/"+path+"/")
		return http.StatusMovedPermanently, plain(""), nil
	}
	return 0, plain(index), nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// whose finds the droplet that asks.
func (s *server) whose(r *http.Request) (fakecloud.Droplet, error) {
	who := s.cfg.Droplet
	if h := r.Header.Get("X-Drydock-Droplet"); h != "" {
		who = h
	}
	if r.URL.IsAbs() {
		if user, ok := proxyUser(r.Header.Get("Proxy-Authorization")); ok {
			who = user
		}
	}
	if who == "" {
		return fakecloud.Droplet{}, &statusError{status: http.StatusNotFound,
			text: "whose metadata? Name the droplet as the proxy user (HTTP_PROXY=http://droplet-ID@HOST:PORT) or in the header X-Drydock-Droplet."}
	}
	if d, err := s.cloud.DropletByName(who); err == nil {
		return d, nil
	}
	return s.cloud.Droplet(dropletID(strings.TrimPrefix(who, "droplet-")))
}

func proxyUser(header string) (string, bool) {
	scheme, encoded, _ := strings.Cut(header, " ")
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if !strings.EqualFold(scheme, "Basic") || err != nil {
		return "", false
	}
	user, _, _ := strings.Cut(string(raw), ":")
	return user, user != ""
}

// metadataTree holds the leaves by their path.
func metadataTree(d fakecloud.Droplet) map[string]string {
	return map[string]string{
		"id": idText(d), "hostname": d.Name, "user-data": d.UserData, "vendor-data": "", "public-keys": "", "region": d.Region,
		"interfaces/private/0/type":         "private",
		"interfaces/private/0/mac":          "02:00:00:00:00:01",
		"interfaces/private/0/ipv4/address": privateIP(d),
		"interfaces/private/0/ipv4/netmask": "255.255.0.0",
		"interfaces/private/0/ipv4/gateway": "10.132.0.1",
		"interfaces/public/0/type":          "public",
		"interfaces/public/0/mac":           "02:00:00:00:00:02",
		"interfaces/public/0/ipv4/address":  publicIP(d),
		"interfaces/public/0/ipv4/netmask":  "255.255.255.0",
		"interfaces/public/0/ipv4/gateway":  "203.0.113.1",
		"dns/nameservers":                   "127.0.0.1",
		"floating_ip/ipv4/active":           "false",
		"reserved_ip/ipv4/active":           "false",
		"tags/":                             strings.Join(d.Tags, "\n"),
		"features/dhcp_enabled":             "false",
	}
}

// metadataOrder is the order of the root's index.
var metadataOrder = []string{"id", "hostname", "user-data", "vendor-data", "public-keys", "region", "interfaces/", "dns/", "floating_ip/", "reserved_ip/", "tags/", "features/"}

// indexOf lists what is below dir, one a line; empty if there is nothing.
func indexOf(tree map[string]string, dir string) string {
	if dir == "" {
		return strings.Join(metadataOrder, "\n")
	}
	dir = strings.TrimSuffix(dir, "/") + "/"
	var names []string
	for path := range tree {
		rest, ok := strings.CutPrefix(path, dir)
		if !ok {
			continue
		}
		if name, _, deeper := strings.Cut(rest, "/"); deeper {
			rest = name + "/"
		}
		if rest != "" && !slices.Contains(names, rest) {
			names = append(names, rest)
		}
	}
	slices.Sort(names)
	return strings.Join(names, "\n")
}

func metadataDocument(d fakecloud.Droplet) map[string]any {
	ipv4 := func(address, netmask, gateway string) map[string]any {
		return map[string]any{"ip_address": address, "netmask": netmask, "gateway": gateway}
	}
	none := map[string]any{"ipv4": map[string]any{"active": false}}
	return map[string]any{
		"droplet_id": d.ID, "hostname": d.Name, "region": d.Region, "vendor_data": "", "user_data": d.UserData, "public_keys": []string{},
		"interfaces": map[string]any{
			"private": []any{map[string]any{"ipv4": ipv4(privateIP(d), "255.255.0.0", "10.132.0.1"), "mac": "02:00:00:00:00:01", "type": "private"}},
			"public":  []any{map[string]any{"ipv4": ipv4(publicIP(d), "255.255.255.0", "203.0.113.1"), "mac": "02:00:00:00:00:02", "type": "public"}},
		},
		"dns":         map[string]any{"nameservers": []string{"127.0.0.1"}},
		"floating_ip": none, "reserved_ip": none,
		"tags": notNil(d.Tags), "features": map[string]any{"dhcp_enabled": false},
	}
}
