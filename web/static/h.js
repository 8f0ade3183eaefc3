// @ts-check
// The smallest DOM helpers that the views need. No state, no templates.

/**
 * Makes an element. Props: `class`, `on<Event>` functions, `dataset`, anything else is an
 * attribute (false and null leave it out). Kids: nodes, texts, arrays; null and false are left out.
 * @param {string} tag @param {Record<string, any>|null} [props] @param {...any} kids
 * @returns {HTMLElement}
 */
export function h(tag, props, ...kids) {
  const el = document.createElement(tag);
  for (const [k, v] of Object.entries(props ?? {})) {
    if (v === false || v === null || v === undefined) continue;
    if (k === "class") el.className = v;
    else if (k === "dataset") Object.assign(el.dataset, v);
    else if (k.startsWith("on")) el.addEventListener(k.slice(2).toLowerCase(), v);
    else el.setAttribute(k, v === true ? "" : String(v));
  }
  add(el, kids);
  return el;
}

/** @param {Node} el @param {any} kid */
function add(el, kid) {
  if (Array.isArray(kid)) kid.forEach((k) => add(el, k));
  else if (kid instanceof Node) el.appendChild(kid);
  else if (kid !== null && kid !== undefined && kid !== false) el.appendChild(document.createTextNode(String(kid)));
}

/** Writes a text only if it differs, so that nothing is invalidated for nothing. @param {Element} el @param {string} s */
export function text(el, s) {
  if (el.textContent !== s) el.textContent = s;
}

/** Replaces an element's children. @param {Element} el @param {...any} kids */
export function fill(el, ...kids) {
  el.textContent = "";
  add(el, kids);
}

/**
 * Makes el's children be `items`, in that order, reusing elements by key and moving as few as possible.
 * @template T
 * @param {HTMLElement} el @param {T[]} items @param {(t: T) => string} key @param {(t: T) => HTMLElement} make @param {(el: HTMLElement, t: T) => void} update
 */
export function list(el, items, key, make, update) {
  const old = new Map();
  for (const c of /** @type {HTMLCollectionOf<HTMLElement>} */ (el.children)) old.set(c.dataset.key, c);
  /** @type {Element|null} */
  let at = el.firstElementChild;
  for (const t of items) {
    const k = key(t);
    let c = old.get(k);
    if (c) old.delete(k);
    else {
      c = make(t);
      c.dataset.key = k;
    }
    update(c, t);
    if (c === at) at = at.nextElementSibling;
    else el.insertBefore(c, at);
  }
  for (const c of old.values()) c.remove();
}

const svg = "http://www.w3.org/2000/svg";

/** Paths of the marks: each state has a shape of its own, so that colour is never the only sign. */
const shapes = {
  done: ["M8 1.5a6.5 6.5 0 1 0 0 13a6.5 6.5 0 0 0 0-13z", "M4.9 8.3l2.1 2.1 4.1-4.6"],
  active: ["M8 2a6 6 0 1 0 6 6", ""],
  failed: ["M8 1.3L15 14H1z", "M8 6v3.6M8 11.6v.2"],
  pending: ["M8 3.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 0 0 0-9z", ""],
  skipped: ["", "M3.5 8h9"],
  waiting: ["M8 1.8a6.2 6.2 0 1 0 0 12.4a6.2 6.2 0 0 0 0-12.4z", "M8 4.8V8l2.2 1.6"],
  leaving: ["M1.8 8h9M7.4 4.2L11.2 8l-3.8 3.8", "M14.2 3v10"],
  gone: ["", "M4 4l8 8M12 4l-8 8"],
  idle: ["M2.5 4.5h11v7h-11z", ""],
  event: ["M8 5.4a2.6 2.6 0 1 0 0 5.2a2.6 2.6 0 0 0 0-5.2z", ""],
};

/** A mark, hidden from assistive technology: the word beside it says the same. @param {string} name */
export function mark(name) {
  const el = document.createElementNS(svg, "svg");
  el.setAttribute("viewBox", "0 0 16 16");
  el.setAttribute("class", `mark m-${name}`);
  el.setAttribute("aria-hidden", "true");
  for (const [i, d] of (shapes[name] ?? shapes.pending).entries()) {
    if (!d) continue;
    const p = document.createElementNS(svg, "path");
    p.setAttribute("d", d);
    p.setAttribute("class", i ? "glyph" : "body");
    el.appendChild(p);
  }
  return el;
}
