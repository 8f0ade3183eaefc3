// @ts-check
// The polite status line: one place, at most one message a second, merged.

let pending = /** @type {string[]} */ ([]);
let timer = 0;

/** @param {string} message */
export function announce(message) {
  if (!pending.includes(message)) pending.push(message);
  if (timer) return;
  say();
  timer = setTimeout(again, 1000);
}

function again() {
  timer = 0;
  if (pending.length) {
    say();
    timer = setTimeout(again, 1000);
  }
}

function say() {
  const el = document.getElementById("status");
  const shown = pending.slice(-3), left = pending.length - shown.length;
  pending = [];
  if (el) el.textContent = (left > 0 ? `${left} more changes; ` : "") + shown.join("; ");
}
