package webtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/internal/lab"
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
	p.Media("prefers-reduced-motion", "reduce") // before the click, which would start a transition
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

func TestThereAndBack(t *testing.T) {
	b, s := Start(t), newStory(t)
	s.nodes("n1", "n2", "n3")
	p := b.Open(t, s.url)
	s.up("data", "web", "n1")
	p.WaitText(".card", "in use by web on n1")
	s.lab.Clock.(*lab.Clock).Advance(time.Hour) // a long use must not squeeze the work to nothing
	s.down("data", "web", "n1")
	p.WaitText(".card", "bound; no pod uses it")
	p.Wait(`document.querySelectorAll(".strip.back [data-state=done]").length === 3`)
	p.Click(".card-head")
	p.Wait(`document.querySelectorAll(".waterfall .fold").length > 0`)
	if w := Eval[float64](p, `Math.max(...[...document.querySelectorAll(".waterfall tbody tr")].filter((r) => r.querySelector("th").innerText.startsWith("Staged")).map((r) => r.querySelector(".bar").offsetWidth))`); w < 30 {
		t.Errorf("the bar of a step of 34 ms is %.0f px wide beside an hour of use", w)
	}
	p.WaitText("#nodes", "nothing attached")
	p.Screenshot("back")
	now := s.now()
	s.updateClaim("data", func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &now })
	s.must(s.api.CoreV1().PersistentVolumeClaims("default").Delete(s.ctx, "data", metav1.DeleteOptions{}))
	p.WaitText(".card", "deleting the volume")
	s.call("DeleteVolume", "provisioner", "", s.handle("data"), 3*time.Millisecond, "OK", "")
	s.must(s.api.CoreV1().PersistentVolumes().Delete(s.ctx, s.pv("data"), metav1.DeleteOptions{}))
	p.Wait(`document.querySelector(".card").dataset.health === "gone"`)
}

func TestRestartedServer(t *testing.T) {
	b, s := Start(t), newStory(t)
	s.nodes("n1")
	s.claim("before")
	p := b.Open(t, s.url)
	p.WaitText("#volumes", "default/before")
	p.Tolerate("ERR_CONNECTION", "ERR_INCOMPLETE", "ERR_EMPTY", "ERR_NETWORK")
	s.end()
	p.WaitText("#banner", "drydock has stopped or is restarting")
	p.WaitText("#connection", "stopped")
	p.Screenshot("stopped")
	s.must(s.api.CoreV1().PersistentVolumeClaims("default").Delete(s.ctx, "before", metav1.DeleteOptions{}))
	s.serve(s.srv.Listener.Addr().String())
	s.claim("after")
	p.WaitText("#connection", "live")
	p.WaitText("#volumes", "default/after")
	p.Wait(`document.querySelector("#banner").hidden && !document.querySelector("#volumes").innerText.includes("before")`)
}

// TestPureModules runs what needs no page: arithmetic and words.
func TestPureModules(t *testing.T) {
	b, s := Start(t), newStory(t)
	p := b.Open(t, s.url)
	dir := Eval[string](p, `document.querySelector("script[type=module]").src.replace(/app\.js$/, "")`)
	for _, c := range []struct{ module, js, want string }{
		{"format.js", `[0.04, 0.3, 25, 999, 3240, 12345, 125000, 3600000, 7500000].map(m.duration).join("|")`, "0.0 ms|0.3 ms|25 ms|999 ms|3.2 s|12 s|2 min 5 s|1 h|2 h 5 min"},
		{"format.js", `[m.duration(NaN), m.duration(-1), m.age(500), m.age(61000), m.count(1, "try", "tries"), m.count(1200, "volume")].join("|")`, "||now|1 min|1 try|1,200 volumes"},
		{"format.js", `[m.errorText("rpc error: code = Internal desc = a: b", "Internal"), m.errorText("rpc error: code = Aborted desc = x", "Internal"), m.errorText("plain")].join("|")`, "a: b|rpc error: code = Aborted desc = x|plain"},
		{"kubectl.js", `m.forClaim({namespace: "a b", name: "x'y"}).map((c) => c.line).join("|")`, `kubectl get pvc 'x'\''y' -n 'a b' -o wide|kubectl describe pvc 'x'\''y' -n 'a b'|kubectl delete pvc 'x'\''y' -n 'a b'`},
		{"kubectl.js", `[m.example().includes("kind: StorageClass"), m.example("fast").includes("storageClassName: fast"), m.example("fast").includes("kind: StorageClass")].join()`, "true,true,false"},
		{"waterfall.js", `(() => { const s = m.scale([{start: 1000, end: 1100}]); return [s.place(1000), s.place(1050), s.place(1100), s.place(0), s.place(9e9), s.folds.length].join(); })()`, "0,0.5,1,0,1,0"},
		{"waterfall.js", `(() => { const s = m.scale([{start: 0, end: 100}, {start: 3600100, end: 3600200}]); return [s.folds.length, s.folds[0].skipped, s.place(100) > 0.4, s.place(3600100) - s.place(100) < 0.1, s.place(1800000) > s.place(100)].join(); })()`, "1,3600000,true,true,true"},
		{"waterfall.js", `(() => { const s = m.scale([]); return [s.place(5), s.ticks.length, m.scale([{start: 7, end: 7}]).place(7)].join(); })()`, "0,0,0"},
		{"waterfall.js", `(() => { const d = m.drawing({name: "staged", state: "failed", tries: [{start: "2026-01-01T00:00:00Z", end: "2026-01-01T00:00:01Z", code: "Internal"}, {start: "2026-01-01T00:00:03Z", end: "2026-01-01T00:00:04Z", error: "x"}], nextTry: "2026-01-01T00:00:08Z"}, Date.parse("2026-01-01T00:00:06Z")); return [d.bars.map((b) => b.state), d.waits.map((w) => w.end - w.start)].join(); })()`, "failed,failed,2000,2000"},
	} {
		if got := Eval[string](p, `import("`+dir+c.module+`").then((m) => String(`+c.js+`))`); got != c.want {
			t.Errorf("%s: %s\n got %s\nwant %s", c.module, c.js, got, c.want)
		}
	}
}

func TestManyVolumesAreDrawnInPortions(t *testing.T) {
	b, s := Start(t), newStory(t)
	s.nodes("n1")
	for i := range 70 {
		s.claim(fmt.Sprintf("data-%02d", i))
	}
	p := b.Open(t, s.url)
	p.Wait(`document.querySelectorAll(".card").length === 30`)
	if n := Eval[int](p, `document.querySelectorAll("*").length`); n > 3000 {
		t.Errorf("%d elements", n)
	}
	p.WaitText("#volumes-more", "40 older volumes not drawn")
	Eval[bool](p, `(document.querySelector("#volumes-more").scrollIntoView(), true)`)
	p.Wait(`document.querySelectorAll(".card").length > 30`)
	for range 3 {
		Eval[bool](p, `(document.querySelector("#volumes-more").click(), true)`)
	}
	p.Wait(`document.querySelectorAll(".card").length === 70 && document.querySelector("#volumes-more").hidden`)
}

func TestCutConnectionGoesOn(t *testing.T) {
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
