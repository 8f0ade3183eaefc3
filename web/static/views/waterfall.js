// @ts-check
// The waterfall of one volume. It is a table; the bars are its third column.
import { fill, h, list, mark, text } from "../h.js";
import { clock, count, duration, errorText } from "../format.js";
import { wayBack, wayUp, words } from "../steps.js";
import { drawing, scale } from "../waterfall.js";

/** @typedef {import("../steps.js").Life} Life @typedef {import("../steps.js").Step} Step */

export function waterfall() {
  const ruler = h("div", { class: "ruler", "aria-hidden": "true" });
  const body = h("tbody");
  const el = h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Waterfall of the steps" },
    h("table", { class: "waterfall" },
      h("thead", null, h("tr", null, h("th", { scope: "col" }, "Step"), h("th", { scope: "col", class: "time" }, h("span", { class: "sr" }, "When"), ruler), h("th", { scope: "col", class: "num" }, "Took"), h("th", { scope: "col" }, "Details"))),
      body));
  /** @type {Step[]} */
  let steps = [];

  /** @param {number} now */
  function draw(now) {
    const drawings = steps.map((s) => drawing(s, now));
    const line = scale(drawings.flatMap((d) => [...d.bars, ...d.waits]));
    list(ruler, line.ticks, (t) => String(t.ms), (t) => h("span", null, t.ms ? duration(t.ms) : "0"), (e, t) => {
      e.style.left = `${t.at * 100}%`;
      e.className = t.at > 0.88 ? "late" : "";
    });
    steps.forEach((s, i) => {
      const row = body.children[i], track = /** @type {HTMLElement} */ (row.querySelector(".track"));
      const d = drawings[i];
      const parts = [
        ...line.folds.map((f, n) => ({ key: `f${n}`, cls: "fold", left: f.at, right: f.at, title: `${duration(f.skipped)} left out` })),
        ...d.waits.map((w, n) => ({ key: `w${n}`, cls: "wait", left: line.place(w.start), right: line.place(w.end), title: `waited ${duration(w.end - w.start)}` })),
        ...d.bars.map((b, n) => ({ key: `b${n}`, cls: `bar s-${b.state}`, left: line.place(b.start), right: line.place(b.end), title: `${clock(b.start)}, ${duration(b.end - b.start)}` })),
      ];
      list(track, parts, (p) => p.key, () => h("span"), (e, p) => {
        if (e.className !== p.cls) e.className = p.cls;
        e.style.left = `${p.left * 100}%`;
        e.style.width = `${Math.max(0, p.right - p.left) * 100}%`;
        if (e.title !== p.title) e.title = p.title;
      });
      text(/** @type {Element} */ (row.querySelector(".num")), took(s, now));
      text(/** @type {Element} */ (row.querySelector(".next")), next(s, now));
    });
  }

  return {
    el,
    /** @param {Life} l @param {number} now */
    set(l, now) {
      steps = [...wayUp(l), ...wayBack(l)];
      list(body, steps, (s) => s.name, row, fillRow);
      draw(now);
    },
    /** @param {number} now */
    update: draw,
  };
}

/** @param {Step} s */
function row(s) {
  return h("tr", null,
    h("th", { scope: "row" }, h("span", { class: "mark-slot" }), words[s.name].long, h("span", { class: "state" })),
    h("td", { class: "time" }, h("div", { class: "track" })),
    h("td", { class: "num" }),
    h("td", { class: "details" }, h("span", { class: "what" }), h("span", { class: "next" })));
}

/** @param {HTMLElement} tr @param {Step} s */
function fillRow(tr, s) {
  if (tr.dataset.state !== s.state) {
    tr.dataset.state = s.state;
    fill(/** @type {Element} */ (tr.querySelector(".mark-slot")), mark(s.state));
    text(/** @type {Element} */ (tr.querySelector(".state")), s.state);
  }
  const what = /** @type {Element} */ (tr.querySelector(".what"));
  fill(what,
    s.state === "failed" && s.code ? h("code", { class: "code" }, s.code) : null,
    s.state === "failed" ? h("span", { class: "message" }, errorText(s.error ?? "", s.code)) : null,
    h("span", { class: "muted" }, [s.by ? `${s.by}` : "", (s.attempts ?? 0) > 1 ? count(s.attempts ?? 0, "try", "tries") : "", s.fault ? `on purpose: ${s.fault}` : "", s.note ?? "", s.state === "done" && !s.end ? "before the dashboard looked" : ""].filter(Boolean).join(" · ")));
}

/** @param {Step} s @param {number} now */
function took(s, now) {
  if (s.state === "active") return s.start ? `${duration(Math.max(0, now - Date.parse(s.start)))}…` : "";
  if (s.name === "claimed") return ""; // a moment, not a stretch
  if (s.state === "done" || s.state === "failed") return s.start && s.end ? `${s.coarse ? "~" : ""}${duration(s.ms ?? 0)}` : "";
  return "";
}

/** @param {Step} s @param {number} now */
function next(s, now) {
  if (s.state !== "failed" || !s.nextTry) return "";
  const wait = Date.parse(s.nextTry) - now;
  return wait > 500 ? `next try in about ${duration(Math.ceil(wait / 1000) * 1000)}` : "next try is due";
}
