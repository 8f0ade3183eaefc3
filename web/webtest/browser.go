// Package webtest drives the dashboard with a real browser. It is the only package
// that imports chromedp, and only tests import it.
//
// One browser serves all tests of a process; every page has a context of its own,
// so that no test sees another's storage. A console error, an uncaught exception, a
// violation of the content security policy or a failed request fails the test,
// unless the page was told to expect it.
package webtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// names under which distributions install a Chromium; the first that exists is used.
var names = []string{"chromium-headless-shell", "chrome-headless-shell", "chromium", "chromium-browser", "google-chrome"}

// patience is how long Wait waits for a page.
const patience = 15 * time.Second

// Browser is a running browser.
type Browser struct {
	ctx  context.Context
	stop func()
}

// Main runs the tests of a package with one browser, which is started by the first
// test that asks for it, and ends the process with their outcome.
func Main(m *testing.M) {
	code := m.Run()
	shared.mu.Lock()
	if shared.browser != nil {
		shared.browser.stop()
	}
	shared.mu.Unlock()
	os.Exit(code)
}

var shared struct {
	mu      sync.Mutex
	browser *Browser
	err     error
}

// Start returns the browser of this process. Where no browser is installed it skips
// the test, or fails it if REQUIRE_BROWSER=1 or CI=true.
func Start(t testing.TB) *Browser {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.browser == nil && shared.err == nil {
		shared.browser, shared.err = launch()
	}
	if errors.Is(shared.err, exec.ErrNotFound) {
		const hint = "no Chromium is installed; on Debian: apt-get install chromium-headless-shell"
		if os.Getenv("REQUIRE_BROWSER") == "1" || os.Getenv("CI") == "true" {
			t.Fatal(hint)
		}
		t.Skip(hint)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.browser
}

func launch() (*Browser, error) {
	path := os.Getenv("DRYDOCK_BROWSER")
	for _, n := range names {
		if path != "" {
			break
		}
		path, _ = exec.LookPath(n)
	}
	if path == "" {
		return nil, exec.ErrNotFound
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.WindowSize(1440, 900))
	alloc, stopAlloc := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, stop := chromedp.NewContext(alloc)
	b := &Browser{ctx: ctx, stop: func() { stop(); stopAlloc() }}
	// The first Do owns the browser: it gets no deadline, or the deadline would end the browser.
	if err := chromedp.Do(ctx); err != nil {
		b.stop()
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	return b, nil
}

// Page is a tab in a context of its own.
type Page struct {
	t   testing.TB
	ctx context.Context

	mu       sync.Mutex
	trouble  []string // guarded by mu
	tolerate []string // guarded by mu
}

// Open opens url. The tab is closed, and its console judged, when the test ends.
func (b *Browser) Open(t testing.TB, url string) *Page {
	t.Helper()
	p := &Page{t: t}
	ctx, stop := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext(), chromedp.WithListener(p.listen))
	p.ctx = ctx
	t.Cleanup(func() {
		if t.Failed() {
			p.Screenshot("failed-" + strings.ReplaceAll(t.Name(), "/", "-"))
		}
		stop()
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, s := range p.trouble {
			t.Errorf("the browser complains: %s", s)
		}
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("open a tab: %v", err)
	}
	p.do(chromedp.Navigate(url))
	return p
}

// listen notes what no page may do. It is called by the browser's loop and must not block.
func (p *Page) listen(ev any) {
	switch ev := ev.(type) {
	case *runtime.EventExceptionThrown:
		text := ev.ExceptionDetails.Text
		if ev.ExceptionDetails.Exception != nil {
			text += " " + ev.ExceptionDetails.Exception.Description
		}
		p.complain(text)
	case *runtime.EventConsoleAPICalled:
		if ev.Type == runtime.ConsoleAPICalledTypeError || ev.Type == runtime.ConsoleAPICalledTypeWarning || ev.Type == runtime.ConsoleAPICalledTypeAssert {
			var parts []string
			for _, a := range ev.Args {
				parts = append(parts, string(a.Value)+a.Description)
			}
			p.complain("console: " + strings.Join(parts, " "))
		}
	case *log.EventEntryAdded:
		if ev.Entry.Level == log.EntryLevelError || ev.Entry.Level == log.EntryLevelWarning {
			p.complain(fmt.Sprintf("%s: %s %s", ev.Entry.Source, ev.Entry.Text, ev.Entry.URL))
		}
	case *network.EventLoadingFailed:
		if !ev.Canceled {
			p.complain("request failed: " + ev.ErrorText)
		}
	case *network.EventResponseReceived:
		if ev.Response.Status >= 400 {
			p.complain(fmt.Sprintf("%d from %s", ev.Response.Status, ev.Response.URL))
		}
	}
}

func (p *Page) complain(s string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, ok := range p.tolerate {
		if strings.Contains(s, ok) {
			return
		}
	}
	p.trouble = append(p.trouble, s)
}

// Tolerate lets pass complaints that contain any of the texts from now on.
func (p *Page) Tolerate(texts ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tolerate = append(p.tolerate, texts...)
}

func (p *Page) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.t.Fatal(err)
	}
}

// Eval evaluates an expression and decodes its value; a promise is awaited.
func Eval[T any](p *Page, js string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience+5*time.Second)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](js, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("evaluate %s: %v", js, err)
	}
	return v
}

// Wait blocks until an expression is true. It does not use chromedp's Poll, which
// makes functions out of strings inside the page and so meets its security policy.
func (p *Page) Wait(js string) { p.t.Helper(); p.WaitFor(patience, js) }

// WaitFor is Wait with a limit of its own.
func (p *Page) WaitFor(limit time.Duration, js string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, limit+patience)
	defer cancel()
	ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool](fmt.Sprintf(`new Promise((ok) => {
		const end = Date.now() + %d;
		const look = () => { let v = false; try { v = Boolean(%s); } catch {} if (v) ok(true); else if (Date.now() > end) ok(false); else setTimeout(look, 15); };
		look();
	})`, limit.Milliseconds(), js), chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("wait for %s: %v", js, err)
	}
	if !ok {
		p.t.Fatalf("this did not become true in %s: %s\nthe page says:\n%s", limit, js, Eval[string](p, `document.body.innerText`))
	}
}

// WaitText blocks until the element's visible text contains s.
func (p *Page) WaitText(selector, s string) {
	p.t.Helper()
	p.Wait(fmt.Sprintf(`document.querySelector(%q)?.innerText.includes(%q)`, selector, s))
}

// special are keys that are not characters, and those whose text is not their name.
var special = map[string]struct {
	text string
	code int64
}{"Enter": {"\r", 13}, "Tab": {"", 9}, "Escape": {"", 27}, "ArrowDown": {"", 40}, "ArrowUp": {"", 38}}

// Press presses keys one after the other, each a character or a name such as
// "Enter". Chromedp's own KeyEvent sends the character even if the page has
// cancelled the key, which no keyboard does.
func (p *Page) Press(keys ...string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	for _, key := range keys {
		down := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: key, Text: key}
		if s, ok := special[key]; ok {
			down.Text, down.Code, down.WindowsVirtualKeyCode = s.text, key, s.code
		}
		if down.Text == "" {
			down.Type = input.DispatchKeyEventTypeRawKeyDown
		}
		up := down
		up.Type, up.Text = input.DispatchKeyEventTypeKeyUp, ""
		for _, ev := range []input.DispatchKeyEventParams{down, up} {
			if _, err := chromedp.Call(ctx, input.DispatchKeyEvent, ev); err != nil {
				p.t.Fatal(err)
			}
		}
	}
}

// Click clicks the first element that matches.
func (p *Page) Click(selector string) { p.t.Helper(); p.do(chromedp.Click(chromedp.CSS(selector))) }

// Size sets the viewport.
func (p *Page) Size(width, height int64) { p.t.Helper(); p.do(chromedp.EmulateViewport(width, height)) }

// Media sets media features, given as pairs: "prefers-color-scheme", "dark".
func (p *Page) Media(pairs ...string) {
	p.t.Helper()
	params := emulation.SetEmulatedMediaParams{}
	for i := 0; i+1 < len(pairs); i += 2 {
		params.Features = append(params.Features, &emulation.MediaFeature{Name: pairs[i], Value: pairs[i+1]})
	}
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, params); err != nil {
		p.t.Fatal(err)
	}
}

// Reload loads the page again.
func (p *Page) Reload() { p.t.Helper(); p.do(chromedp.Reload()) }

// Screenshot keeps a picture in the directory that DRYDOCK_SCREENSHOTS names, if it names one.
func (p *Page) Screenshot(name string) {
	dir := os.Getenv("DRYDOCK_SCREENSHOTS")
	if dir == "" {
		return
	}
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644)
	}
	if err != nil {
		p.t.Logf("screenshot %s: %v", name, err)
	}
}

// Tab opens another tab in the same context: it shares storage and workers with p.
func (p *Page) Tab(url string) *Page {
	p.t.Helper()
	q := &Page{t: p.t}
	ctx, stop := chromedp.NewContext(p.ctx, chromedp.WithListener(q.listen))
	q.ctx = ctx
	p.t.Cleanup(func() {
		stop()
		q.mu.Lock()
		defer q.mu.Unlock()
		for _, s := range q.trouble {
			p.t.Errorf("the browser complains: %s", s)
		}
	})
	if err := chromedp.Do(ctx); err != nil {
		p.t.Fatalf("open a tab: %v", err)
	}
	q.do(chromedp.Navigate(url))
	return q
}
