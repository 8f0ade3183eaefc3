// @ts-check
// One connection to the server: a snapshot, then a stream that starts at its
// revision. Runs in a shared worker or in the page.

/**
 * @typedef {{state: "connecting"|"live"|"offline"|"stopping", since: number, attempt: number}} State
 * @typedef {{onSnapshot(s: any): void, onBatch(b: any): void, onState(s: State): void}} Listener
 */

/** How long to wait before the nth try, in ms. @param {number} n */
const wait = (n) => Math.min(500 * 2 ** n, 5000);

export class Stream {
  /** @param {Listener} listener */
  constructor(listener) {
    this.listener = listener;
    /** @type {EventSource|null} */
    this.source = null;
    this.epoch = "";
    this.rev = 0;
    this.attempt = 0;
    this.timer = 0;
    /** Tells answers of an abandoned try from those of the present one. */
    this.turn = 0;
    /** @type {State} */
    this.state = { state: "connecting", since: Date.now(), attempt: 0 };
  }

  /** @param {State["state"]} state */
  report(state) {
    if (this.state.state !== state) this.state = { state, since: Date.now(), attempt: this.attempt };
    else if (this.state.attempt === this.attempt) return;
    else this.state = { ...this.state, attempt: this.attempt };
    this.listener.onState(this.state);
  }

  /** Begins, or begins again at once. */
  start() {
    this.stop();
    if (this.epoch) this.listen();
    else this.load();
  }

  /** Closes the connection and keeps the position, so that start() goes on from there. */
  stop() {
    this.turn++;
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  async load() {
    const turn = ++this.turn;
    try {
      const r = await fetch("/ui/v1/snapshot", { cache: "no-store" });
      if (!r.ok) throw new Error(`${r.status} ${await r.text()}`);
      const s = await r.json();
      if (turn !== this.turn) return;
      this.epoch = s.epoch;
      this.rev = s.rev;
      this.listener.onSnapshot(s);
      this.listen();
    } catch {
      if (turn === this.turn) this.again();
    }
  }

  /** Tries again a little later. */
  again() {
    this.stop();
    this.report(this.state.state === "stopping" ? "stopping" : "offline");
    this.timer = setTimeout(() => this.start(), wait(this.attempt++));
  }

  listen() {
    const source = new EventSource(`/ui/v1/events?epoch=${this.epoch}&rev=${this.rev}`);
    this.source = source;
    source.onopen = () => {
      this.attempt = 0;
      this.report("live");
    };
    source.onerror = () => {
      if (this.source !== source) return;
      if (source.readyState === EventSource.CLOSED) this.again();
      else {
        this.attempt++;
        this.report(this.state.state === "stopping" ? "stopping" : "offline");
      }
    };
    source.addEventListener("batch", (e) => {
      const b = JSON.parse(e.data);
      if (b.rev <= this.rev) return; // seen before; whole objects would do no harm, log entries would
      this.rev = b.rev;
      this.listener.onBatch(b);
    });
    source.addEventListener("reset", () => {
      this.stop();
      this.epoch = "";
      this.load();
    });
    source.addEventListener("bye", () => {
      this.report("stopping");
    });
  }
}
