// @ts-check
// The list of volumes: newest first, filtered, holding still while it is used.
import { fill, h, list, text } from "../h.js";
import { count } from "../format.js";
import { healthMark } from "../steps.js";
import { mark } from "../h.js";
import { example } from "../kubectl.js";
import { announce } from "../announce.js";
import { copyButton } from "./copy.js";
import { Hold } from "./hold.js";
import { VolumeCard } from "./volume.js";

/** @typedef {import("../store.js").Store} Store */

/** Cards drawn at first, and more at a time when the end comes into view: a card has some 80 elements. */
const portion = 30;
const healths = ["failed", "working", "leaving", "waiting", "in use", "idle", "gone"];
const $ = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));

export class VolumesView {
  /** @param {Store} store @param {{filter(): string, select(claim: string|null): void}} page */
  constructor(store, page) {
    this.store = store;
    this.page = page;
    /** @type {Map<string, VolumeCard>} */
    this.cards = new Map();
    /** Keys in the order they are shown; newest first. @type {string[]} */
    this.order = [];
    this.health = "";
    this.limit = portion;
    this.ul = $("volumes");
    this.hold = new Hold(this.ul, $("volumes-held"), "volume", () => this.draw());
    this.chips = new Map(healths.map((name) => [name, this.chip(name)]));
    fill($("health"), [...this.chips.values()]);
    $("volumes-more").addEventListener("click", () => this.grow());
    new IntersectionObserver((seen) => seen.some((s) => s.isIntersecting) && this.grow(), { rootMargin: "200px" }).observe($("volumes-more"));
    store.onChange((changed) => this.change(changed));
  }

  /** @param {string} name */
  chip(name) {
    const b = h("button", { type: "button", class: "chip", "aria-pressed": "false", hidden: true, dataset: { health: name } }, mark(healthMark(name)), h("span", null, name), h("span", { class: "n" }));
    b.addEventListener("click", () => {
      this.health = this.health === name ? "" : name;
      for (const [n, c] of this.chips) c.setAttribute("aria-pressed", String(n === this.health));
      this.limit = portion;
      this.draw();
    });
    return b;
  }

  /** @param {Set<string>} changed */
  change(changed) {
    let ours = false;
    for (const key of changed) {
      if (key === "cluster" || key.startsWith("node/")) ours = true;
      if (!key.startsWith("volume/")) continue;
      ours = true;
      const o = this.store.objects.get(key), card = this.cards.get(key);
      if (card && o) {
        this.news(card.life, o.life);
        card.update(o.life, this.store.now());
      }
    }
    if (ours || !this.store.loaded) this.draw();
  }

  /** Says aloud what matters of a change. @param {any} before @param {any} now */
  news(before, now) {
    if (before.health === now.health) return;
    const name = `${now.namespace}/${now.name}`;
    if (now.health === "failed") announce(`${name}: ${now.doing}`);
    else if (["in use", "gone"].includes(now.health)) announce(`${name} is ${now.health === "gone" ? "deleted" : now.doing}`);
  }

  /** @param {any} life */
  matches(life) {
    if (this.health && life.health !== this.health) return false;
    const q = this.page.filter();
    if (!q) return true;
    const steps = [...life.provision, ...life.uses.flatMap((/** @type {any} */ u) => u.steps), ...life.end];
    const hay = [life.namespace + "/" + life.name, life.class, life.pv, life.handle, life.driver, life.health, life.doing,
      ...life.uses.flatMap((/** @type {any} */ u) => [u.pod, u.node]), ...steps.flatMap((s) => [s.error, s.code])].join(" ").toLowerCase();
    return q.split(/\s+/).every((w) => hay.includes(w));
  }

  grow() {
    this.limit += portion;
    this.draw();
  }

  draw() {
    const all = this.store.all("volume/");
    const born = (/** @type {any} */ o) => o.life.provision[0]?.start ?? "";
    const wanted = all.filter((o) => this.matches(o.life)).sort((a, b) => (born(a) < born(b) ? 1 : born(a) > born(b) ? -1 : a.key < b.key ? -1 : 1));
    const keys = new Set(wanted.map((o) => o.key));
    let order = wanted.map((o) => o.key);
    if (this.hold.on && this.order.length) {
      // Keep what is shown where it is; what left stays out, what is new waits.
      const shown = new Set(this.order);
      this.hold.set(order.filter((k) => !shown.has(k)).length);
      order = this.order.filter((k) => keys.has(k));
    } else {
      this.hold.set(0);
    }
    this.order = order;
    const drawn = order.slice(0, this.limit);
    const kept = new Set(drawn);
    for (const key of this.cards.keys()) if (!kept.has(key)) this.cards.delete(key);
    list(this.ul, drawn, (k) => k, (k) => {
      const card = new VolumeCard(k, { onToggle: (c) => this.toggle(c) });
      this.cards.set(k, card);
      card.update(this.store.objects.get(k)?.life, this.store.now());
      return card.el;
    }, () => {});
    const note = [];
    const rest = order.length - drawn.length;
    $("volumes-more").hidden = rest === 0;
    if (rest) text($("volumes-more"), `Show more: ${count(rest, "older volume")} not drawn`);
    if (wanted.length < all.length) note.push(`${count(all.length - wanted.length, "volume")} hidden by the filter.`);
    $("volumes-note").hidden = !note.length;
    text($("volumes-note"), note.join(" "));
    this.empty(all.length === 0);
    const counts = this.store.objects.get("cluster")?.volumes ?? {};
    for (const [name, c] of this.chips) {
      c.hidden = !counts[name] && this.health !== name;
      text(/** @type {Element} */ (c.querySelector(".n")), String(counts[name] ?? 0));
    }
  }

  /** @param {boolean} none */
  empty(none) {
    const el = $("volumes-empty");
    el.hidden = !none || !this.store.loaded;
    if (el.hidden) return;
    const classes = this.store.objects.get("cluster")?.classes ?? [];
    const driver = this.store.all("node/").flatMap((n) => n.drivers)[0]?.name;
    const line = example((classes.find((/** @type {any} */ c) => c.default) ?? classes[0])?.name, driver);
    if (el.dataset.line === line) return;
    el.dataset.line = line;
    fill(el, h("h3", null, "No volumes yet"),
      h("p", null, "Every PersistentVolumeClaim appears here with the steps of its volume, from the claim to a running pod and back, as they happen. This makes the first one:"),
      h("pre", null, h("code", null, line)), copyButton(line, "Copy the kubectl command"));
  }

  /** @param {VolumeCard} card */
  toggle(card) {
    const open = !card.open;
    for (const c of this.cards.values()) if (c.open) c.toggle(false, 0);
    if (open) card.toggle(true, this.store.now());
    this.page.select(open ? `${card.life.namespace}/${card.life.name}` : null);
  }

  get moving() {
    for (const c of this.cards.values()) if (c.moving) return true;
    return false;
  }

  /** @param {number} now */
  tick(now) {
    for (const c of this.cards.values()) if (c.moving) c.tick(now);
  }

  /** Opens the card of a claim and goes there; false if it is not drawn. @param {string} claim */
  show(claim) {
    const card = this.cards.get(`volume/${claim}`);
    if (!card) return false;
    if (!card.open) this.toggle(card);
    card.button.focus();
    card.el.scrollIntoView({ block: "nearest" });
    return true;
  }

  /** The card that has the focus. */
  current() {
    for (const c of this.cards.values()) if (c.el.contains(document.activeElement)) return c;
    return null;
  }

  /** Moves the focus by n cards. @param {number} n */
  move(n) {
    const at = this.current()?.key;
    if (n > 0 && at && this.order.indexOf(at) + n >= this.limit) this.grow();
    const shown = this.order.slice(0, this.limit);
    const i = at ? shown.indexOf(at) + n : n > 0 ? 0 : shown.length - 1;
    const next = this.cards.get(shown[Math.min(Math.max(i, 0), shown.length - 1)]);
    next?.button.focus();
    next?.el.scrollIntoView({ block: "nearest" });
  }
}
