// @ts-check
// One stream for all tabs: a browser allows six connections to a server, and a tab
// that holds one for good would soon leave none for anything else.
import { Stream } from "./stream-core.js";

/** @type {Set<MessagePort>} */
const ports = new Set();
/** What a tab that joins later is told: the same as a snapshot of the server. */
const copy = { loaded: false, objects: new Map(), log: /** @type {any[]} */ ([]), skew: 0 };
const maxLog = 500;

/** @param {any} m */
const tell = (m) => ports.forEach((p) => p.postMessage(m));
const whole = () => ({ objects: [...copy.objects.values()], log: copy.log, now: new Date(Date.now() + copy.skew).toISOString() });

const stream = new Stream({
  onSnapshot(s) {
    copy.loaded = true;
    copy.objects = new Map(s.objects.map((/** @type {any} */ o) => [o.key, o]));
    copy.log = s.log;
    copy.skew = Date.parse(s.now) - Date.now();
    tell({ type: "snapshot", data: whole() });
  },
  onBatch(b) {
    for (const o of b.put ?? []) copy.objects.set(o.key, o);
    for (const k of b.del ?? []) copy.objects.delete(k);
    copy.log = [...copy.log, ...(b.log ?? [])].slice(-maxLog);
    copy.skew = Date.parse(b.now) - Date.now();
    tell({ type: "batch", data: b });
  },
  onState(s) {
    tell({ type: "state", data: s });
  },
});

/** @type {any} */ (self).onconnect = (/** @type {MessageEvent} */ e) => {
  const port = e.ports[0];
  port.onmessage = ({ data }) => {
    if (data === "hello") {
      ports.add(port);
      if (ports.size === 1) stream.start();
      port.postMessage({ type: "state", data: stream.state });
      if (copy.loaded) port.postMessage({ type: "snapshot", data: whole() });
    } else if (data === "bye") {
      ports.delete(port);
      if (!ports.size) stream.stop();
    } else if (data === "retry") {
      stream.start();
    }
  };
  port.start();
};
