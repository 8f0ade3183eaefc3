// @ts-check
// Rows that hold still: while the pointer or the focus is inside a list, new rows
// wait behind a button. Values of rows that are shown go on changing.
import { text } from "../h.js";
import { count } from "../format.js";

export class Hold {
  /**
   * @param {HTMLElement} area @param {HTMLElement} button @param {string} noun @param {() => void} release draws what was held
   */
  constructor(area, button, noun, release) {
    this.area = area;
    this.button = button;
    this.noun = noun;
    this.inside = false;
    this.release = release;
    this.held = 0;
    const end = () => {
      this.inside = false;
      this.let();
    };
    area.addEventListener("pointermove", (e) => { if (e.pointerType === "mouse") this.inside = true; });
    area.addEventListener("pointerleave", end);
    button.addEventListener("click", () => {
      this.let();
      button.hidden = true;
    });
  }

  get on() {
    return this.inside || (this.area.contains(document.activeElement) && this.area !== document.activeElement);
  }

  /** @param {number} n how many wait now */
  set(n) {
    this.held = n;
    this.button.hidden = n === 0;
    if (n) text(this.button, `${count(n, "new " + this.noun)}: show`);
  }

  let() {
    if (!this.held) return;
    this.set(0);
    this.release();
  }
}
