// @ts-check
// The page's copy of the server's objects. Changes are collected and handed to the
// views once a frame.

/** @typedef {{key: string, [k: string]: any}} Obj */
/** @typedef {{id: string, seq: number, at: string, kind: string, level: string, what: string, about?: string, claim?: string, node?: string, by?: string, code?: string, text?: string, fault?: string, count?: number, ms?: number, dropped?: number}} Entry */

const maxLog = 2000;

export class Store {
  constructor() {
    /** @type {Map<string, Obj>} */
    this.objects = new Map();
    /** @type {Entry[]} oldest first */
    this.log = [];
    this.loaded = false;
    /** Server time minus ours: the cluster's clock can be advanced. */
    this.skew = 0;
    /** @type {Set<string>} */
    this.changed = new Set();
    this.logChanged = false;
    /** @type {((changed: Set<string>, log: boolean) => void)[]} */
    this.views = [];
    this.scheduled = false;
  }

  /** The cluster's time, in ms. */
  now() {
    return Date.now() + this.skew;
  }

  /** @param {string} kind */
  all(kind) {
    return [...this.objects.values()].filter((o) => o.key.startsWith(kind));
  }

  /** @param {{objects: Obj[], log: Entry[], now: string}} s */
  snapshot(s) {
    for (const key of this.objects.keys()) this.changed.add(key);
    this.objects = new Map(s.objects.map((o) => [o.key, o]));
    for (const key of this.objects.keys()) this.changed.add(key);
    this.log = s.log.slice(-maxLog);
    this.loaded = this.logChanged = true;
    this.time(s.now);
    this.schedule();
  }

  /** @param {{put?: Obj[], del?: string[], log?: Entry[], logDropped?: number, now: string}} b */
  batch(b) {
    for (const o of b.put ?? []) {
      this.objects.set(o.key, o);
      this.changed.add(o.key);
    }
    for (const key of b.del ?? []) {
      this.objects.delete(key);
      this.changed.add(key);
    }
    if (b.logDropped) {
      this.log.push({ id: `gap/${b.now}`, seq: 0, at: b.now, kind: "gap", level: "warn", what: `${b.logDropped} events dropped by the server`, dropped: b.logDropped });
      this.logChanged = true;
    }
    if (b.log?.length) {
      this.log.push(...b.log);
      if (this.log.length > maxLog) this.log.splice(0, this.log.length - maxLog);
      this.logChanged = true;
    }
    this.time(b.now);
    this.schedule();
  }

  /** @param {string} now */
  time(now) {
    const skew = Date.parse(now) - Date.now();
    // What the network took looks like skew too; only a jump is news.
    if (Math.abs(skew - this.skew) > 1000) this.skew = Math.abs(skew) > 1000 ? skew : 0;
  }

  /** @param {(changed: Set<string>, log: boolean) => void} view */
  onChange(view) {
    this.views.push(view);
  }

  schedule() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => this.flush());
  }

  flush() {
    this.scheduled = false;
    const changed = this.changed, log = this.logChanged;
    this.changed = new Set();
    this.logChanged = false;
    for (const v of this.views) v(changed, log);
  }
}
