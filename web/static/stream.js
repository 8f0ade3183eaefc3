// @ts-check
// Connects the page: through the shared worker where there is one, else directly.
import { Stream } from "./stream-core.js";

/**
 * @param {import("./stream-core.js").Listener} listener
 * @returns {{retry(): void, shared: boolean}}
 */
export function connect(listener) {
  const link = { shared: false, retry() {} };
  if (typeof SharedWorker === "undefined") return direct(listener, link);
  let heard = false, given = false;
  const giveUp = () => {
    if (heard || given) return;
    given = true;
    direct(listener, link);
  };
  try {
    const worker = new SharedWorker(new URL("./stream-worker.js", import.meta.url), { type: "module", name: "drydock" });
    worker.onerror = giveUp;
    worker.port.onmessage = ({ data }) => {
      if (given) return;
      heard = true;
      if (data.type === "snapshot") listener.onSnapshot(data.data);
      else if (data.type === "batch") listener.onBatch(data.data);
      else listener.onState(data.data);
    };
    // A page that is put aside or closed must leave, or the worker would keep its stream for nobody.
    addEventListener("pagehide", () => worker.port.postMessage("bye"));
    addEventListener("pageshow", (e) => e.persisted && worker.port.postMessage("hello"));
    worker.port.start();
    worker.port.postMessage("hello");
    link.shared = true;
    link.retry = () => worker.port.postMessage("retry");
    setTimeout(giveUp, 4000);
  } catch {
    giveUp();
  }
  return link;
}

/**
 * @param {import("./stream-core.js").Listener} listener
 * @param {{retry(): void, shared: boolean}} link
 */
function direct(listener, link) {
  const stream = new Stream(listener);
  // One tab's own stream gives its connection back while nobody looks.
  document.addEventListener("visibilitychange", () => (document.hidden ? stream.stop() : stream.start()));
  link.shared = false;
  link.retry = () => stream.start();
  stream.start();
  return link;
}
