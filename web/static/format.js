// @ts-check
// Words for numbers and times. Pure.

/** A duration for people: "0.3 ms", "25 ms", "3.2 s", "2 min 5 s", "1 h 4 min". @param {number} ms */
export function duration(ms) {
  if (!(ms >= 0)) return "";
  if (ms < 0.95) return `${ms.toFixed(1)} ms`;
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 59950) return `${(ms / 1000).toFixed(ms < 9950 ? 1 : 0)} s`;
  const s = Math.round(ms / 1000);
  if (s < 3600) return s % 60 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${s / 60} min`;
  const min = Math.round(s / 60);
  return min % 60 ? `${Math.floor(min / 60)} h ${min % 60} min` : `${min / 60} h`;
}

/** An age, coarser than a duration: "now", "12 s", "3 min". @param {number} ms */
export function age(ms) {
  if (ms < 1000) return "now";
  if (ms < 60000) return `${Math.floor(ms / 1000)} s`;
  if (ms < 3600000) return `${Math.floor(ms / 60000)} min`;
  if (ms < 86400000) return `${Math.floor(ms / 3600000)} h`;
  return `${Math.floor(ms / 86400000)} d`;
}

/** Time of day with milliseconds. @param {number} t */
export function clock(t) {
  const d = new Date(t), p = (n, w = 2) => String(n).padStart(w, "0");
  return `${p(d.getHours())}:${p(d.getMinutes())}:${p(d.getSeconds())}.${p(d.getMilliseconds(), 3)}`;
}

/** @param {number} n @param {string} one @param {string} [many] */
export function count(n, one, many) {
  return `${n.toLocaleString("en")} ${n === 1 ? one : many ?? one + "s"}`;
}

/** Cuts a Go error's wrapping where it only repeats the code. @param {string} s @param {string} [code] */
export function errorText(s, code) {
  const m = /rpc error: code = (\w+) desc = ([\s\S]*)/.exec(s);
  return m && (!code || m[1] === code) ? m[2] : s;
}
