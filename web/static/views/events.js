// @ts-check
// The merged list of Kubernetes events and calls, newest first.
import { fill, h, list, mark, text } from "../h.js";
import { clock, count, duration, errorText } from "../format.js";
import { Hold } from "./hold.js";

/** Rows drawn; the rest of the log can be reached with the filter. */
const most = 200;
const $ = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));

export class EventsView {
  /** @param {import("../store.js").Store} store @param {{filter(): string, selected(): string|null}} page */
  constructor(store, page) {
    this.store = store;
    this.page = page;
    this.ol = $("events");
    /** The newest entry that is shown while the list holds still. */
    this.upTo = -1;
    this.hold = new Hold(this.ol, $("events-held"), "event", () => this.draw());
    $("events-warn").addEventListener("change", () => this.draw());
    store.onChange((_, log) => log && this.draw());
  }

  draw() {
    const claim = this.page.selected(), q = this.page.filter().split(/\s+/).filter(Boolean);
    const bad = /** @type {HTMLInputElement} */ ($("events-warn")).checked;
    const all = this.store.log.filter((e) => (!claim || e.claim === claim || e.kind === "gap") && (!bad || e.level === "warn") &&
      q.every((w) => [e.what, e.about, e.claim, e.node, e.by, e.code, e.text].join(" ").toLowerCase().includes(w)));
    let shown = all;
    if (this.hold.on && this.upTo >= 0) {
      shown = all.filter((e) => e.seq <= this.upTo);
      this.hold.set(all.length - shown.length);
    } else {
      this.hold.set(0);
      this.upTo = this.store.log.at(-1)?.seq ?? -1;
    }
    const rows = shown.slice(-most).reverse();
    list(this.ol, rows, (e) => `${e.id}#${e.seq}`, row, () => {});
    $("events-scope").hidden = !claim;
    if (claim) text($("events-scope"), `Only those about ${claim}. Close its card to see all.`);
    $("events-empty").hidden = rows.length > 0 || !this.store.loaded;
    if (!rows.length) fill($("events-empty"), h("p", null, this.store.log.length ? "No event matches." : "Kubernetes events and every call to a driver appear here in one order. "), this.store.log.length ? null : h("code", null, "kubectl get events -A --watch"));
  }
}

/** @param {import("../store.js").Entry} e */
function row(e) {
  if (e.kind === "gap") return h("li", { class: "gap" }, e.what);
  const facts = [e.kind === "call" ? e.by : "", e.node, e.kind === "call" && e.ms !== undefined ? duration(e.ms) : "", e.fault ? `on purpose: ${e.fault}` : "", (e.count ?? 1) > 1 ? count(e.count ?? 1, "time") : ""].filter(Boolean).join(" · ");
  return h("li", { dataset: { level: e.level } },
    h("time", { datetime: e.at }, e.at.includes(".") ? clock(Date.parse(e.at)) : clock(Date.parse(e.at)).slice(0, 8)),
    mark(e.level === "warn" ? "failed" : e.kind === "call" ? "done" : "event"),
    h("div", { class: "what" }, h("span", { class: "sr" }, e.level === "warn" ? "problem: " : ""), h("strong", null, e.what), e.level === "warn" && e.code ? h("code", { class: "code" }, e.code) : null,
      h("span", { class: "about" }, e.claim && e.kind === "call" ? e.claim : e.about ?? ""), facts ? h("span", { class: "muted" }, facts) : null,
      e.text ? h("p", { class: "text" }, errorText(e.text, e.code)) : null));
}
