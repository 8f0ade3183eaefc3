// @ts-check
// What the page knows about the steps of a life. Pure. The names are those of
// internal/stages.

/** @typedef {{start: string, end?: string, code?: string, error?: string, by?: string, node?: string, op?: string}} Try */
/** @typedef {{name: string, state: "pending"|"active"|"done"|"failed"|"skipped", start?: string, end?: string, ms?: number, coarse?: boolean, attempts?: number, tries?: Try[], error?: string, code?: string, nextTry?: string, note?: string, by?: string, fault?: string}} Step */
/** @typedef {{pod: string, podUID: string, node?: string, over?: boolean, steps: Step[]}} Use */
/** @typedef {{exists: boolean, attached: string[], published: string[]}} Placement */
/** @typedef {{namespace: string, name: string, uid: string, class?: string, size?: string, mode: string, phase: string, pv?: string, handle?: string, driver?: string, health: string, doing: string, changed?: string, provision: Step[], uses: Use[], end: Step[], truths: {desired: Placement, recorded: Placement, actual: Placement, mismatch?: string[], since?: string}}} Life */

/** short: in the strip; long: in the table; doing: while it lasts or where it failed. */
export const words = {
  claimed: { short: "claim", long: "Claim created", doing: "creating the claim" },
  created: { short: "volume", long: "Volume created in the cloud", doing: "creating the volume" },
  bound: { short: "bound", long: "Claim bound", doing: "binding" },
  scheduled: { short: "scheduled", long: "Pod scheduled", doing: "scheduling" },
  attached: { short: "attached", long: "Attached to the node", doing: "attaching" },
  device: { short: "device", long: "Device ready", doing: "waiting for the device" },
  formatted: { short: "formatted", long: "Filesystem made", doing: "formatting" },
  staged: { short: "staged", long: "Staged on the node", doing: "staging" },
  published: { short: "published", long: "Published to the pod", doing: "publishing" },
  running: { short: "running", long: "Pod running", doing: "starting the pod" },
  unpublished: { short: "unpublished", long: "Unpublished", doing: "unpublishing" },
  unstaged: { short: "unstaged", long: "Unstaged", doing: "unstaging" },
  detached: { short: "detached", long: "Detached", doing: "detaching" },
  deleted: { short: "deleted", long: "Volume deleted in the cloud", doing: "deleting the volume" },
};

const back = new Set(["unpublished", "unstaged", "detached", "deleted"]);
const isBack = (/** @type {Step} */ s) => back.has(s.name);

/** Steps of a use that does not exist yet: the outline of what is to come. */
const planned = ["scheduled", "attached", "device", "formatted", "staged", "published", "running"].map((name) => /** @type {Step} */ ({ name, state: "pending" }));

/** The way up, whether or not a pod has begun to use the volume. @param {Life} l */
export function wayUp(l) {
  const use = l.uses.at(-1);
  return [...l.provision, ...(use ? use.steps.filter((s) => !isBack(s)) : planned)];
}

/** The way back, empty until it has begun. @param {Life} l */
export function wayBack(l) {
  const steps = [...(l.uses.at(-1)?.steps.filter(isBack) ?? []), ...l.end];
  return steps.some((s) => s.state !== "pending") ? steps : [];
}

/** The step that failed, unless it was given up. @param {Life} l */
export function failure(l) {
  if (l.health !== "failed") return null;
  return [...wayBack(l), ...wayUp(l)].find((s) => s.state === "failed") ?? null;
}

/** How long it took from the claim, or from the pod if that came much later, to running. @param {Life} l */
export function timeToRunning(l) {
  const use = l.uses.at(-1);
  const running = use?.steps.find((s) => s.name === "running");
  const scheduled = use?.steps.find((s) => s.name === "scheduled");
  const claimed = l.provision[0];
  if (!running?.end || !scheduled?.start || scheduled.coarse) return null;
  const pod = Date.parse(scheduled.start), claim = Date.parse(claimed?.start ?? scheduled.start);
  const from = !claimed?.coarse && claim <= pod && pod - claim < 2000 ? claim : pod;
  return Date.parse(running.end) - from;
}

/** Which mark goes with a health. @param {string} health */
export function healthMark(health) {
  return { waiting: "waiting", working: "active", "in use": "done", idle: "idle", failed: "failed", leaving: "leaving", gone: "gone" }[health] ?? "pending";
}

/** Lanes group the strip. @param {string} name */
export function lane(name) {
  if (name === "claimed" || name === "created" || name === "bound") return "provision";
  if (name === "scheduled" || name === "attached") return "attach";
  if (name === "device" || name === "formatted" || name === "staged") return "stage";
  if (name === "published" || name === "running") return "publish";
  return "back";
}
