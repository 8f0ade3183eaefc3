// @ts-check
// Puts the page together.
import { fill, h, text } from "./h.js";
import { age, count } from "./format.js";
import { Store } from "./store.js";
import { connect } from "./stream.js";
import { keys } from "./keys.js";
import { forClaim } from "./kubectl.js";
import { announce } from "./announce.js";
import { copy } from "./views/copy.js";
import { VolumesView } from "./views/volumes.js";
import { NodesView } from "./views/nodes.js";
import { EventsView } from "./views/events.js";

const $ = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));
const store = new Store();
const filter = /** @type {HTMLInputElement} */ ($("filter"));
let selected = /** @type {string|null} */ (null);

const page = {
  filter: () => filter.value.trim().toLowerCase(),
  selected: () => selected,
  /** @param {string|null} claim */
  select(claim) {
    selected = claim;
    events.draw();
  },
};
const volumes = new VolumesView(store, page);
new NodesView(store, (claim) => {
  if (!volumes.show(claim)) announce(`${claim} is hidden by the filter`);
});
const events = new EventsView(store, page);

// The filter is part of the address, so that it survives a reload and can be shared.
filter.value = new URLSearchParams(location.search).get("q") ?? "";
filter.addEventListener("input", () => {
  const q = filter.value ? `?q=${encodeURIComponent(filter.value)}` : location.pathname;
  history.replaceState(null, "", q);
  volumes.draw();
  events.draw();
});

store.onChange((changed) => {
  const c = store.objects.get("cluster");
  if (!c || !changed.has("cluster")) return;
  text($("cluster-name"), c.name);
  document.title = c.name && c.name !== "default" ? `${c.name} · drydock` : "drydock";
  text($("version"), `drydock ${c.version}`);
  const mode = $("mode");
  mode.hidden = false;
  mode.dataset.mode = c.mode;
  text(/** @type {Element} */ (mode.querySelector(".chip")), c.mode === "loop" ? "real loop devices" : "simulated devices");
  text(/** @type {Element} */ (mode.querySelector(".why")), c.reason);
  const total = Object.values(c.volumes).reduce((a, b) => a + b, 0) - (c.volumes.gone ?? 0);
  fill($("totals"), h("strong", null, total), ` ${total === 1 ? "volume" : "volumes"} on `, h("strong", null, c.nodes), ` ${c.nodes === 1 ? "node" : "nodes"}`,
    c.volumes.failed ? [" · ", h("strong", { class: "bad" }, count(c.volumes.failed, "problem"))] : null);
});

// What depends on the time alone is redrawn only while something is under way and somebody looks.
let ticking = 0;
function tick() {
  ticking = 0;
  const now = store.now();
  volumes.tick(now);
  if (link.state.state !== "live") banner();
  arm();
}
function arm() {
  if (!ticking && !document.hidden && (volumes.moving || link.state.state !== "live")) ticking = setTimeout(tick, 250);
}
store.onChange(arm);
document.addEventListener("visibilitychange", arm);

const link = {
  state: /** @type {import("./stream-core.js").State} */ ({ state: "connecting", since: Date.now(), attempt: 0 }),
  retry() {},
};

function banner() {
  const el = $("banner"), s = link.state, ms = Date.now() - s.since;
  const conn = $("connection");
  conn.dataset.state = s.state;
  text(/** @type {Element} */ (conn.querySelector(".word")), { live: "live", connecting: "connecting", offline: "offline", stopping: "stopped" }[s.state]);
  document.body.dataset.link = s.state;
  // A short cut is nobody's business: the stream goes on where it was.
  const show = (s.state === "offline" && ms > 800) || s.state === "stopping" || (s.state === "connecting" && ms > 3000);
  if (!show) {
    el.hidden = true;
    return;
  }
  if (!el.firstChild) fill(el, h("span", { class: "say" }), h("span", { class: "since", "aria-hidden": "true" }), h("button", { type: "button", onclick: () => link.retry() }, "Try now"));
  const say = s.state === "stopping" ? "drydock has stopped or is restarting. What you see may be out of date." : s.state === "connecting" ? "The server does not answer yet." : "The connection is lost. What you see may be out of date; the page tries again by itself.";
  text(/** @type {Element} */ (el.querySelector(".say")), say);
  text(/** @type {Element} */ (el.querySelector(".since")), `for ${age(ms)}`);
  el.hidden = false;
}

const connection = connect({
  onSnapshot: (s) => store.snapshot(s),
  onBatch: (b) => store.batch(b),
  onState(s) {
    link.state = s;
    document.body.dataset.stream = connection.shared ? "shared" : "own";
    banner();
    arm();
  },
});
link.retry = () => connection.retry();
arm();

// Theme: system, light, dark.
const themes = ["system", "light", "dark"];
const root = document.documentElement;
function showTheme() {
  text($("theme"), `Theme: ${root.dataset.theme ?? "system"}`);
}
$("theme").addEventListener("click", () => {
  const next = themes[(themes.indexOf(root.dataset.theme ?? "system") + 1) % themes.length];
  if (next === "system") delete root.dataset.theme;
  else root.dataset.theme = next;
  try {
    localStorage.setItem("drydock-theme", next);
  } catch { /* then for this page only */ }
  showTheme();
});
showTheme();

const { help } = keys([
  { key: "j ArrowDown", does: "next volume", run: () => volumes.move(1) },
  { key: "k ArrowUp", does: "previous volume", run: () => volumes.move(-1) },
  { key: "Enter", does: "open or close the volume", run: () => volumes.current()?.button.click() },
  { key: "/", does: "filter", run: () => filter.focus() },
  {
    key: "y", does: "copy the volume's kubectl line", run() {
      const c = volumes.current();
      if (c) copy(forClaim(c.life)[1].line);
    },
  },
  { key: "e", does: "go to the events", run: () => $("events").focus() },
  {
    key: "Escape", does: "close the open volume", run() {
      const open = [...volumes.cards.values()].find((c) => c.open);
      if (open) {
        volumes.toggle(open);
        open.button.focus();
      }
    },
  },
  { key: "?", does: "this help", run: () => help() },
]);
$("help-open").addEventListener("click", () => help());
