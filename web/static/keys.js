// @ts-check
// The keyboard. Single letters never fire in inputs or with a modifier, and can be
// switched off, as WCAG 2.1.4 asks.
import { fill, h } from "./h.js";

const off = "drydock-keys-off";

/** @typedef {{key: string, does: string, run(e: KeyboardEvent): void}} Binding */

/** @param {Binding[]} bindings */
export function keys(bindings) {
  let enabled = true;
  try {
    enabled = localStorage.getItem(off) !== "1";
  } catch { /* storage may be forbidden */ }
  const byKey = new Map(bindings.flatMap((b) => b.key.split(" ").map((k) => [k, b])));

  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented) return;
    const t = /** @type {HTMLElement} */ (e.target);
    if (t.closest("input, textarea, select, [contenteditable], dialog")) {
      if (e.key === "Escape" && t instanceof HTMLInputElement) t.blur();
      return;
    }
    if (e.key === "Enter" && t.closest("button, a, summary")) return; // it has a meaning of its own there
    if (!enabled && e.key.length === 1) return;
    const b = byKey.get(e.key);
    if (!b) return;
    e.preventDefault();
    b.run(e);
  });

  const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("help"));
  const box = h("input", { type: "checkbox", id: "keys-on" });
  /** @type {HTMLInputElement} */ (box).checked = enabled;
  box.addEventListener("change", () => {
    enabled = /** @type {HTMLInputElement} */ (box).checked;
    try {
      localStorage.setItem(off, enabled ? "0" : "1");
    } catch { /* then for this page only */ }
  });
  fill(dialog,
    h("h2", { id: "help-title" }, "Keys"),
    h("dl", { class: "keys" }, bindings.map((b) => h("div", null, h("dt", null, b.key.split(" ").map((k, i) => [i ? " or " : "", h("kbd", null, k)])), h("dd", null, b.does)))),
    h("label", { class: "check" }, box, " single-letter keys are on"),
    h("p", { class: "small muted" }, "The page only shows. What it shows comes from the Kubernetes API and from the calls that pass drydock's tap; kubectl sees the same."),
    h("form", { method: "dialog" }, h("button", { class: "primary" }, "Close")));
  return { help: () => dialog.showModal() };
}
