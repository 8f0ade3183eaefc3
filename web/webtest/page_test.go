package webtest

import (
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) { Main(m) }

func TestEmptyClusterSaysWhatWillBeHere(t *testing.T) {
	b, s := Start(t), newStory(t)
	p := b.Open(t, s.url)
	p.WaitText("#volumes-empty", "No volumes yet")
	p.WaitText("#volumes-empty", "kubectl apply -f -")
	p.WaitText("#nodes-empty", "kubectl get nodes")
	p.WaitText("#mode", "simulated devices")
	p.WaitText("#connection", "live")
	p.Wait(`document.body.dataset.stream === "shared"`)
	p.Screenshot("empty")
}

func TestVolumeReachesPublishedWithoutReload(t *testing.T) {
	b, s := Start(t), newStory(t)
	s.nodes("n1", "n2", "n3")
	p := b.Open(t, s.url)
	p.WaitText("#nodes", "n3")
	loaded := Eval[float64](p, `performance.timeOrigin`)

	s.claim("data")
	p.WaitText("#volumes", "default/data")
	step := func(name, state string) {
		t.Helper()
		p.Wait(`[...document.querySelectorAll(".strip li")].find((li) => li.dataset.key === "` + name + `")?.dataset.state === "` + state + `"`)
	}
	step("claimed", "done")
	step("created", "pending")
	s.pod("web", "data")
	step("scheduled", "active")
	s.provision("data")
	end := s.begin("CreateVolume", "provisioner", "", s.pv("data"))
	step("created", "active")
	end(30*time.Millisecond, "OK", "")
	s.bind("data")
	step("bound", "done")
	s.schedule("web", "n2")
	s.attach("data", "n2", "")
	step("attached", "done")
	p.WaitText("#nodes", "attached")
	end = s.begin("NodeStageVolume", "kubelet", "n2", s.pv("data"))
	step("staged", "active")
	s.call("wait for device", "driver", "n2", s.handle("data"), time.Millisecond, "", "")
	s.call("mkfs.ext4", "driver", "n2", s.handle("data"), 20*time.Millisecond, "", "")
	step("formatted", "done")
	end(5*time.Millisecond, "OK", "")
	step("staged", "done")
	s.call("NodePublishVolume", "kubelet", "n2", s.pv("data"), time.Millisecond, "OK", "")
	step("published", "done")
	s.run("web")
	step("running", "done")
	p.WaitText(".card", "in use by web on n2")
	p.WaitText("#nodes", "published: web")
	p.WaitText("#events", "NodePublishVolume")
	p.WaitText("#status", "default/data is in use by web on n2")
	if now := Eval[float64](p, `performance.timeOrigin`); now != loaded {
		t.Error("the page was reloaded")
	}
}

func TestFailingCreateVolumeShowsItsError(t *testing.T) {
	b, s := Start(t), newStory(t)
	s.nodes("n1")
	p := b.Open(t, s.url)
	s.claim("data")
	s.provision("data")
	for range 3 {
		s.call("CreateVolume", "provisioner", "", s.pv("data"), 5*time.Millisecond, "Internal", "rpc error: code = Internal desc = the cloud is on fire")
	}
	p.WaitText(".problem", "Internal")
	p.WaitText(".problem", "the cloud is on fire")
	p.WaitText(".problem", "3 tries")
	p.WaitText(".problem", "next in about")
	p.WaitText(".strip", "failed ×3")
	p.WaitText("#totals", "1 problem")
	p.WaitText("#events", "the cloud is on fire")
	s.call("CreateVolume", "provisioner", "", s.pv("data"), 5*time.Millisecond, "OK", "")
	s.bind("data")
	p.Wait(`document.querySelector(".problem").hidden`)
	p.WaitText(".card", "bound; no pod uses it")
}

func TestKeyboard(t *testing.T) {
	b, s := Start(t), newStory(t)
	s.nodes("n1", "n2", "n3")
	s.up("one", "web-1", "n1")
	s.up("two", "web-2", "n2")
	p := b.Open(t, s.url)
	p.Wait(`document.querySelectorAll(".card").length === 2`)

	p.Press("Tab")
	p.Wait(`document.activeElement.classList.contains("skip")`)
	p.Press("Enter")
	p.Wait(`document.activeElement.id === "volumes"`)
	focused := func(claim string) {
		t.Helper()
		p.Wait(`document.activeElement.closest(".card")?.dataset.key === "volume/default/` + claim + `"`)
	}
	first := Eval[string](p, `document.querySelector(".card").dataset.key.split("/")[2]`)
	second := map[string]string{"one": "two", "two": "one"}[first]
	p.Press("j")
	focused(first)
	p.Press("j")
	focused(second)
	p.Press("j")
	focused(second)
	p.Press("k")
	focused(first)
	if outline := Eval[string](p, `getComputedStyle(document.activeElement).outlineStyle`); outline != "solid" {
		t.Errorf("the focus is not visible: outline %q", outline)
	}
	p.Press("Enter")
	p.Wait(`document.querySelector(".card-head[aria-expanded=true]") && document.querySelector(".waterfall .bar")`)
	p.WaitText(".twin", "kubectl describe pvc "+first)
	p.WaitText("#events-scope", "default/"+first)
	p.Press("Escape")
	p.Wait(`!document.querySelector(".card-head[aria-expanded=true]")`)
	focused(first)

	p.Click("#nodes button.claim")
	p.Wait(`document.activeElement.closest(".card") && document.activeElement.getAttribute("aria-expanded") === "true"`)
	p.Press("Escape")

	p.Press("/")
	p.Wait(`document.activeElement.id === "filter"`)
	p.Press(strings.Split(second, "")...) // its letters are not commands here
	p.Wait(`document.querySelectorAll(".card").length === 1 && location.search === "?q=` + second + `"`)
	p.Press("Escape")
	p.Wait(`document.activeElement.id !== "filter"`)
	p.Press("?")
	p.Wait(`document.querySelector("#help").open`)
	p.Press("Escape")
	p.Wait(`!document.querySelector("#help").open`)

	p.Reload()
	p.Wait(`document.querySelectorAll(".card").length === 1 && document.querySelector("#filter").value === "` + second + `"`)
}

func TestThemesWidthsAndContrast(t *testing.T) {
	b, s := Start(t), newStory(t)
	s.scene()
	p := b.Open(t, s.url)
	p.Wait(`document.querySelectorAll(".card").length === 6`)
	p.Wait(`document.querySelector(".problem:not([hidden])")`)
	p.Click(".card[data-health='in use'] .card-head")
	p.Wait(`document.querySelector(".waterfall .bar")`)
	for _, theme := range []string{"light", "dark"} {
		p.Media("prefers-color-scheme", theme, "prefers-reduced-motion", "reduce")
		for _, size := range [][2]int64{{1440, 900}, {820, 1000}, {320, 700}} {
			p.Size(size[0], size[1])
			if wide := Eval[int64](p, `document.documentElement.scrollWidth`); wide > size[0] {
				t.Errorf("%s at %d px: the page is %d px wide; too wide: %s", theme, size[0], wide, Eval[string](p, overflowing))
			}
			p.Screenshot(theme + "-" + map[int64]string{1440: "wide", 820: "middle", 320: "narrow"}[size[0]])
		}
		for _, bad := range Eval[[]string](p, contrast) {
			t.Errorf("%s: %s", theme, bad)
		}
		if n := Eval[int](p, `document.getAnimations().length`); n != 0 {
			t.Errorf("%s: %d animations although reduced motion was asked for", theme, n)
		}
	}
	for _, bad := range Eval[[]string](p, smallTargets) {
		t.Errorf("target under 24 px: %s", bad)
	}
}

// overflowing names the elements that stick out of the window.
const overflowing = `[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.tagName + "." + e.className).slice(0, 6).join(" ")`

// smallTargets lists controls that are smaller than 24 px either way.
const smallTargets = `[...document.querySelectorAll("button, input, select")].filter((e) => e.checkVisibility() && e.type !== "checkbox")
	.filter((e) => { const r = e.getBoundingClientRect(); return r.width < 24 || r.height < 24; }).map((e) => e.outerHTML.slice(0, 80))`

// contrast measures every visible text against the ground that is painted behind it.
const contrast = `(() => {
	const cv = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
	const rgba = (c) => { cv.clearRect(0, 0, 1, 1); cv.fillStyle = c; cv.fillRect(0, 0, 1, 1); return [...cv.getImageData(0, 0, 1, 1).data]; };
	const lum = ([r, g, b]) => { const f = (v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
	const ground = (e) => { for (; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor); if (c[3] > 250) return c; } return [255, 255, 255]; };
	const out = new Set();
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walk.nextNode()) {
		const e = walk.currentNode.parentElement;
		if (!walk.currentNode.data.trim() || !e.checkVisibility() || e.closest(".sr, .skip")) continue;
		const a = lum(rgba(getComputedStyle(e).color)), b = lum(ground(e));
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (ratio < 4.5) out.add(ratio.toFixed(2) + " for " + JSON.stringify(walk.currentNode.data.slice(0, 30)) + " in " + e.tagName + "." + e.className);
	}
	return [...out];
})()`

func TestStoppedServerAndBack(t *testing.T) {
	b, s := Start(t), newStory(t)
	s.nodes("n1")
	p := b.Open(t, s.url)
	p.WaitText("#connection", "live")
	p.Tolerate("ERR_CONNECTION", "ERR_INCOMPLETE", "ERR_EMPTY", "ERR_NETWORK")
	s.srv.CloseClientConnections()
	p.WaitText("#connection", "live") // the stream goes on where it was
	s.claim("after")
	p.WaitText("#volumes", "default/after")
}

func TestSixTabsShareOneStream(t *testing.T) {
	b, s := Start(t), newStory(t)
	s.nodes("n1")
	first := b.Open(t, s.url)
	first.WaitText("#connection", "live")
	pages := []*Page{first}
	for range 7 {
		pages = append(pages, first.Tab(s.url))
	}
	s.claim("data")
	for _, p := range pages {
		p.WaitText("#volumes", "default/data")
	}
}

// scene is a cluster in every state that the page can show.
func (s *story) scene() {
	s.nodes("n1", "n2", "n3")
	s.up("data", "web-0", "n1")
	s.up("logs", "web-1", "n2")
	s.event("PersistentVolumeClaim", "logs", "Normal", "ProvisioningSucceeded", "Successfully provisioned volume "+s.pv("logs"))

	s.claim("archive")
	s.event("PersistentVolumeClaim", "archive", "Normal", "WaitForFirstConsumer", "waiting for first consumer to be created before binding")

	s.claim("broken")
	s.provision("broken")
	for i := range 4 {
		s.call("CreateVolume", "provisioner", "", s.pv("broken"), 8*time.Millisecond, "Internal", "rpc error: code = Internal desc = POST http://127.0.0.1:7474/v2/volumes: 500 (request 77b1) the cloud is on fire")
		if i < 3 {
			s.lab.Clock.(interface{ Advance(time.Duration) }).Advance(time.Second << i)
		}
	}
	s.event("PersistentVolumeClaim", "broken", "Warning", "ProvisioningFailed", "failed to provision volume with StorageClass \"drydock\": rpc error: code = Internal desc = the cloud is on fire")

	s.claim("crowded")
	s.pod("db-0", "crowded")
	s.provision("crowded")
	s.call("CreateVolume", "provisioner", "", s.pv("crowded"), 12*time.Millisecond, "OK", "")
	s.bind("crowded")
	s.schedule("db-0", "n3")
	s.attach("crowded", "n3", "rpc error: code = ResourceExhausted desc = volume limit reached for droplet 4713: 7")

	s.claim("busy")
	s.pod("job-0", "busy")
	s.provision("busy")
	s.call("CreateVolume", "provisioner", "", s.pv("busy"), 12*time.Millisecond, "OK", "")
	s.bind("busy")
	s.schedule("job-0", "n2")
	s.attach("busy", "n2", "")
	s.begin("NodeStageVolume", "kubelet", "n2", s.pv("busy"))
	s.call("wait for device", "driver", "n2", s.handle("busy"), 2*time.Millisecond, "", "")
	s.begin("mkfs.ext4", "driver", "n2", s.handle("busy"))
	s.notReady("n3")
}
