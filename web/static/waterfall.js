// @ts-check
// The arithmetic of a waterfall: times to places between 0 and 1. Pure, no DOM.

/** @typedef {{start: number, end: number}} Span a piece of work, in ms */
/** @typedef {{at: number, skipped: number}} Fold a place where time was left out, and how much */

const foldWidth = 0.06; // of what is left
const minGap = 250; // ms: shorter gaps are not worth folding

/**
 * Lays work out on a line. Gaps longer than three times the work are folded, so
 * that a volume that was used for an hour still shows the milliseconds at both ends.
 * @param {Span[]} work
 */
export function scale(work) {
  const spans = merge(work);
  if (!spans.length) return { place: () => 0, folds: /** @type {Fold[]} */ ([]), ticks: /** @type {{at: number, ms: number}[]} */ ([]), start: 0, total: 0 };
  const busy = Math.max(1, spans.reduce((sum, s) => sum + s.end - s.start, 0));
  const limit = Math.max(minGap, 3 * busy);
  const gaps = spans.slice(1).map((s, i) => s.start - spans[i].end);
  const kept = busy + gaps.reduce((sum, g) => sum + (g > limit ? 0 : g), 0);
  const fold = (kept * foldWidth) / Math.max(1 - foldWidth * gaps.filter((g) => g > limit).length, 0.4);
  /** Knots of a piecewise linear map from time to length. @type {{t: number, x: number}[]} */
  const knots = [{ t: spans[0].start, x: 0 }];
  /** @type {Fold[]} */
  const folds = [];
  let x = 0;
  spans.forEach((s, i) => {
    if (i) {
      const gap = gaps[i - 1];
      if (gap > limit) folds.push({ at: x + fold / 2, skipped: gap });
      x += gap > limit ? fold : gap;
      knots.push({ t: s.start, x });
    }
    x += Math.max(s.end - s.start, i === 0 && spans.length === 1 ? 1 : 0);
    knots.push({ t: s.end, x });
  });
  const total = Math.max(x, 1e-9);
  const place = (/** @type {number} */ t) => {
    if (t <= knots[0].t) return 0;
    for (let i = 1; i < knots.length; i++) {
      if (t <= knots[i].t) {
        const a = knots[i - 1], b = knots[i];
        return (a.x + ((b.x - a.x) * (t - a.t)) / Math.max(b.t - a.t, 1e-9)) / total;
      }
    }
    return 1;
  };
  const first = folds.length ? spans[findFold(gaps, limit)].end : spans.at(-1).end;
  return { place, folds: folds.map((f) => ({ at: f.at / total, skipped: f.skipped })), ticks: ticks(spans[0].start, first, place), start: spans[0].start, total };
}

/** @param {number[]} gaps @param {number} limit */
const findFold = (gaps, limit) => gaps.findIndex((g) => g > limit);

/** Up to six round times of the part before the first fold. @param {number} start @param {number} end @param {(t: number) => number} place */
function ticks(start, end, place) {
  const len = end - start;
  if (len <= 0) return [{ at: 0, ms: 0 }];
  let step = 1;
  for (const m of [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 3e4, 6e4, 12e4, 3e5, 6e5, 18e5, 36e5, 72e5, 144e5]) {
    step = m;
    if (len / m <= 5) break;
  }
  const out = [];
  for (let ms = 0; ms <= len && out.length < 8; ms += step) out.push({ at: place(start + ms), ms });
  return out.filter((t) => t.at <= 0.93); // a label further right would run into the one before it
}

/** The union of spans, in order. @param {Span[]} work */
function merge(work) {
  const sorted = work.filter((s) => Number.isFinite(s.start) && Number.isFinite(s.end)).sort((a, b) => a.start - b.start);
  /** @type {Span[]} */
  const out = [];
  for (const s of sorted) {
    const last = out.at(-1);
    if (last && s.start <= last.end) last.end = Math.max(last.end, s.end);
    else out.push({ start: s.start, end: Math.max(s.start, s.end) });
  }
  return out;
}

/**
 * What a step draws: its tries if there were several, else itself. Nothing if its times are not known.
 * @param {import("./steps.js").Step} step @param {number} now
 * @returns {{bars: (Span & {state: string})[], waits: Span[]}}
 */
export function drawing(step, now) {
  const at = (/** @type {string|undefined} */ s) => (s ? Date.parse(s) : NaN);
  const bars = [], waits = [];
  const tries = step.tries ?? [];
  if (tries.length > 1) {
    let before = NaN;
    for (const t of tries) {
      const start = at(t.start), end = t.end ? at(t.end) : now;
      if (start > before) waits.push({ start: before, end: start });
      bars.push({ start, end, state: !t.end ? "active" : t.error || (t.code && t.code !== "OK" && !/^[23]\d\d$/.test(t.code)) ? "failed" : "done" });
      before = end;
    }
    if (step.nextTry && at(step.nextTry) > before) waits.push({ start: before, end: Math.min(at(step.nextTry), Math.max(now, before)) });
    return { bars, waits };
  }
  const start = at(step.start), end = step.end ? at(step.end) : step.state === "active" ? now : NaN;
  if (Number.isFinite(start) && Number.isFinite(end)) bars.push({ start, end: Math.max(start, end), state: step.state });
  else if (Number.isFinite(end)) bars.push({ start: end, end, state: step.state });
  return { bars, waits };
}
