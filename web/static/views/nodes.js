// @ts-check
// The nodes, with what is attached and mounted on each.
import { fill, h, list, mark, text } from "../h.js";
import { count } from "../format.js";
import { forNode } from "../kubectl.js";
import { copyButton } from "./copy.js";

const $ = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));
const marks = { attached: "done", attaching: "active", detaching: "leaving", failed: "failed", published: "done", publishing: "active", unpublishing: "leaving", staged: "done", staging: "active", unstaging: "leaving", waiting: "waiting" };

/** Volumes shown on one node before the rest is counted. */
const most = 12;

export class NodesView {
  /** @param {import("../store.js").Store} store @param {(claim: string) => void} open goes to a volume */
  constructor(store, open) {
    $("nodes").addEventListener("click", (e) => {
      const claim = /** @type {HTMLElement} */ (e.target).closest("button.claim");
      if (claim) open(claim.textContent ?? "");
    });
    store.onChange((changed) => {
      if (![...changed].some((k) => k.startsWith("node/") || k === "cluster")) return;
      const nodes = store.all("node/").sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
      list($("nodes"), nodes, (n) => n.key, make, update);
      const down = nodes.filter((n) => !n.ready).length;
      text($("nodes-note"), nodes.length ? (down ? `${down} of ${nodes.length} not ready` : "all ready") : "");
      $("nodes-empty").hidden = nodes.length > 0;
      if (!nodes.length && !$("nodes-empty").firstChild) {
        const line = "kubectl get nodes";
        fill($("nodes-empty"), h("p", null, "Each node appears here with the volumes that are attached to it and mounted on it. None has registered yet."), h("code", null, line), copyButton(line, `Copy: ${line}`));
      }
    });
  }
}

function make() {
  return h("li", { class: "node" }, h("div", { class: "node-head" }, h("span", { class: "mark-slot" }), h("h3", null), h("span", { class: "state small" }), h("span", { class: "limit small muted" }), h("span", { class: "slot" })),
    h("p", { class: "reason small" }), h("ul", { class: "mounts" }));
}

/** @param {HTMLElement} el @param {any} n */
function update(el, n) {
  if (el.dataset.json === JSON.stringify(n)) return;
  el.dataset.json = JSON.stringify(n);
  el.dataset.ready = String(n.ready);
  const q = (/** @type {string} */ s) => /** @type {HTMLElement} */ (el.querySelector(s));
  fill(q(".mark-slot"), mark(n.ready ? "done" : "failed"));
  text(q("h3"), n.name);
  text(q(".state"), n.ready ? "ready" : "not ready");
  const attached = n.volumes.filter((/** @type {any} */ v) => v.attach).length;
  const limit = n.drivers.find((/** @type {any} */ d) => d.limit !== undefined)?.limit;
  text(q(".limit"), limit ? `${attached} of ${limit} attached` : count(attached, "attached", "attached"));
  if (!q(".slot").firstChild) fill(q(".slot"), copyButton(forNode(n.name), `Copy: ${forNode(n.name)}`, "Copy kubectl"));
  q(".reason").hidden = !n.reason;
  text(q(".reason"), n.reason ?? "");
  const more = n.volumes.length - most;
  list(q(".mounts"), more > 0 ? [...n.volumes.slice(0, most), { pv: "", more }] : n.volumes, (v) => v.pv, () => h("li"), volume);
  if (!n.volumes.length) fill(q(".mounts"), h("li", { class: "muted small" }, n.drivers.length ? "nothing attached" : "no driver registered yet"));
}

/** @param {HTMLElement} li @param {any} v */
function volume(li, v) {
  if (v.more) return text(li, `and ${count(v.more, "more volume")}`);
  const state = (/** @type {string} */ word, /** @type {string} */ m) => h("span", { class: "pair", dataset: { state: word } }, mark(m), word);
  fill(li, v.claim ? h("button", { type: "button", class: "claim", title: v.pv }, v.claim) : h("span", { class: "claim" }, v.pv),
    h("span", { class: "path" }, v.attach ? state(v.attach, marks[v.attach]) : null, v.device ? state(v.device, marks[v.device]) : null,
      v.pods.map((/** @type {any} */ p) => h("span", { class: "pair", dataset: { state: p.mount } }, mark(marks[p.mount]), `${p.mount === "waiting" ? "waits for it" : p.mount}: ${p.name}`))),
    v.error ? h("span", { class: "message small" }, v.error) : null);
}
