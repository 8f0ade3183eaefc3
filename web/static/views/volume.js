// @ts-check
// One volume: a card with its strip of steps, which opens into the waterfall.
import { fill, h, list, mark, text } from "../h.js";
import { age, clock, count, duration, errorText } from "../format.js";
import { failure, healthMark, lane, timeToRunning, wayBack, wayUp, words } from "../steps.js";
import { forClaim } from "../kubectl.js";
import { copyButton } from "./copy.js";
import { waterfall } from "./waterfall.js";

/** @typedef {import("../steps.js").Life} Life @typedef {import("../steps.js").Step} Step */

/** A mismatch that is younger than this is just a change under way. */
const patience = 3000;

export class VolumeCard {
  /** @param {string} key @param {{onToggle(card: VolumeCard): void}} o */
  constructor(key, o) {
    this.key = key;
    this.open = false;
    /** @type {Life} */ (this.life);
    const id = key.replaceAll(/[^A-Za-z0-9-]/g, "_");
    this.mark = h("span", { class: "mark-slot" });
    this.name = h("span", { class: "name" });
    this.namespace = h("span", { class: "ns" });
    this.doing = h("span", { class: "doing" });
    this.facts = h("span", { class: "facts" });
    this.button = h("button", { type: "button", class: "card-head", id, "aria-expanded": "false", "aria-controls": `${id}-more`, onclick: () => o.onToggle(this) },
      h("span", { class: "twist", "aria-hidden": "true" }), this.mark, h("span", { class: "title" }, this.namespace, this.name), this.doing, this.facts);
    this.up = h("ol", { class: "strip", "aria-label": "Steps up" });
    this.back = h("ol", { class: "strip back", "aria-label": "Steps back", hidden: true });
    this.problem = h("div", { class: "problem", hidden: true });
    this.mismatch = h("p", { class: "mismatch", hidden: true });
    this.more = h("div", { class: "more", id: `${id}-more`, hidden: true });
    this.el = h("li", { class: "card" }, h("h3", { class: "bare" }, this.button), this.up, this.back, this.problem, this.mismatch, this.more);
  }

  /** @param {boolean} open @param {number} now */
  toggle(open, now) {
    this.open = open;
    this.button.setAttribute("aria-expanded", String(open));
    this.more.hidden = !open;
    if (open) this.details(now);
    else fill(this.more);
  }

  /** @param {Life} l @param {number} now */
  update(l, now) {
    const before = this.life;
    this.life = l;
    if (this.el.dataset.health !== l.health) {
      this.el.dataset.health = l.health;
      fill(this.mark, mark(healthMark(l.health)), h("span", { class: "sr" }, `${l.health}: `));
    }
    text(this.namespace, l.namespace + "/");
    text(this.name, l.name);
    text(this.doing, l.doing);
    const took = timeToRunning(l);
    text(this.facts, [l.size, l.class, l.health === "in use" && took !== null ? `running after ${duration(took)}` : ""].filter(Boolean).join(" · "));
    strip(this.up, wayUp(l));
    const back = wayBack(l);
    this.back.hidden = back.length === 0;
    strip(this.back, back);
    if (this.open && before !== l) this.details(now);
    this.tick(now);
  }

  /** Whether something on the card moves with time alone. */
  get moving() {
    const l = this.life;
    return ["working", "leaving", "failed"].includes(l.health) || Boolean(l.truths.mismatch?.length);
  }

  /** Brings what depends on the time up to date. @param {number} now */
  tick(now) {
    const l = this.life;
    for (const [el, steps] of /** @type {[HTMLElement, Step[]][]} */ ([[this.up, wayUp(l)], [this.back, wayBack(l)]])) {
      steps.forEach((s, i) => {
        if (s.state === "active" && el.children[i]) text(/** @type {Element} */ (el.children[i].querySelector(".took")), took(s, now));
      });
    }
    const bad = failure(l);
    this.problem.hidden = !bad;
    if (bad) problem(this.problem, bad, now);
    const m = l.truths.mismatch ?? [], since = Date.parse(l.truths.since ?? "");
    this.mismatch.hidden = !m.length || now - since < patience;
    if (!this.mismatch.hidden) text(this.mismatch, `Accounts disagree for ${age(now - since)}: ${m.join("; ")}`);
    if (this.open && this.moving) this.fall?.update(now);
  }

  /** @param {number} now */
  details(now) {
    const l = this.life;
    if (!this.fall || !this.more.firstChild) {
      this.fall = waterfall();
      this.truths = h("table", { class: "truths" });
      this.about = h("dl", { class: "about" });
      this.uses = h("p", { class: "small muted" });
      this.twin = h("ul", { class: "twin" });
      fill(this.more, this.fall.el, this.uses,
        h("div", { class: "columns" },
          h("div", null, h("h4", null, "Three accounts"), this.truths),
          h("div", null, h("h4", null, "Objects"), this.about),
          h("div", { class: "wide" }, h("h4", null, "The same with kubectl"), this.twin)));
    }
    this.fall.set(l, now);
    const past = l.uses.slice(0, -1);
    text(this.uses, past.length ? `Earlier: ${past.map((u) => `${u.pod} on ${u.node ?? "no node"}${u.over ? "" : " (still there)"}`).join(", ")}` : "");
    truths(this.truths, l);
    about(this.about, l);
    list(this.twin, forClaim(l), (c) => c.verb + c.line, (c) => h("li", null, h("code", null, c.line), copyButton(c.line, `Copy: ${c.line}`)), () => {});
  }
}

/** @param {Step} s @param {number} now */
function took(s, now) {
  switch (s.state) {
    case "done":
      return s.ms !== undefined || (s.start && s.end) ? (s.name === "claimed" ? clock(Date.parse(s.end ?? "")).slice(0, 8) : `${s.coarse ? "~" : ""}${duration(s.ms ?? 0)}`) : "done";
    case "active":
      return s.start ? `${duration(Math.max(0, now - Date.parse(s.start)))}…` : "now";
    case "failed":
      return (s.attempts ?? 1) > 1 ? `failed ×${s.attempts}` : "failed";
    default:
      return s.state === "skipped" ? "skipped" : "";
  }
}

/** @param {HTMLElement} el @param {Step[]} steps */
function strip(el, steps) {
  list(el, steps, (s) => s.name,
    (s) => h("li", { dataset: { lane: lane(s.name) } }, h("span", { class: "word" }, h("span", { class: "mark-slot" }), words[s.name].short), h("span", { class: "took" })),
    (li, s) => {
      if (li.dataset.state !== s.state) {
        li.dataset.state = s.state;
        fill(/** @type {Element} */ (li.querySelector(".mark-slot")), mark(s.state), h("span", { class: "sr" }, s.state));
      }
      const tries = (s.attempts ?? 0) > 1 && s.state !== "failed" ? ` ×${s.attempts}` : "";
      if (s.state !== "active") text(/** @type {Element} */ (li.querySelector(".took")), took(s, 0) + tries);
      const title = s.note ?? "";
      if (li.title !== title) li.title = title;
    });
}

/** @param {HTMLElement} el @param {Step} s @param {number} now */
function problem(el, s, now) {
  if (!el.firstChild) fill(el, mark("failed"), h("p", null, h("strong"), h("code", { class: "code" }), h("span", { class: "message" }), h("span", { class: "next" })));
  const [strong, code, message, next] = /** @type {any} */ (el.querySelector("p")).children;
  text(strong, `${words[s.name].doing} failed`);
  code.hidden = !s.code;
  text(code, s.code ?? "");
  text(message, errorText(s.error ?? "", s.code));
  const wait = s.nextTry ? Date.parse(s.nextTry) - now : NaN;
  text(next, [count(s.attempts ?? 1, "try", "tries"), s.by ? `by the ${s.by}` : "", s.fault ? `on purpose: ${s.fault}` : "", wait > 500 ? `next in about ${duration(Math.ceil(wait / 1000) * 1000)}` : wait <= 500 ? "next try is due" : ""].filter(Boolean).join(" · "));
}

/** @param {HTMLElement} el @param {Life} l */
function truths(el, l) {
  const where = (/** @type {string[]} */ nodes) => (nodes.length ? nodes.join(", ") : "nowhere");
  const rows = [["Desired", "claim and pods", l.truths.desired], ["Recorded", "PV, VolumeAttachments", l.truths.recorded], ["Actual", "answered calls", l.truths.actual]];
  fill(el, h("thead", null, h("tr", null, ["", "exists", "attached", "published"].map((t) => h(t ? "th" : "td", t ? { scope: "col" } : null, t)))),
    h("tbody", null, rows.map(([name, by, p]) => h("tr", null, h("th", { scope: "row" }, name, h("span", { class: "muted small" }, " " + by)), h("td", null, p.exists ? "yes" : "no"), h("td", null, where(p.attached)), h("td", null, where(p.published))))));
}

/** @param {HTMLElement} el @param {Life} l */
function about(el, l) {
  const rows = [["Claim", l.phase], ["Class", l.class], ["Mode", l.mode], ["Volume", l.pv], ["Handle", l.handle], ["Driver", l.driver]].filter(([, v]) => v);
  fill(el, rows.map(([k, v]) => h("div", null, h("dt", null, k), h("dd", null, v))));
}
