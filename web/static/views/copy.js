// @ts-check
// Copying a command, with an answer that is seen and heard.
import { h, text } from "../h.js";
import { announce } from "../announce.js";

/** @param {string} line */
export async function copy(line) {
  try {
    await navigator.clipboard.writeText(line);
    announce(`Copied: ${line.split("\n")[0]}`);
    return true;
  } catch {
    announce("The browser refused to copy. Select the text instead.");
    return false;
  }
}

/** @param {string} line @param {string} label @param {string} [word] */
export function copyButton(line, label, word = "Copy") {
  const b = h("button", { type: "button", class: "quiet copy", "aria-label": label }, word);
  b.addEventListener("click", async () => {
    text(b, (await copy(line)) ? "Copied" : "Refused");
    setTimeout(() => text(b, word), 1500);
  });
  return b;
}
