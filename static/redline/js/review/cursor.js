/* The cursor of the review: one row or one group's line, focused and in view. It moves through group ends and through
   rows that are not loaded yet. */

import {
  fresh,
  groupOf,
  headerOf,
  headers,
  isHeader,
  isOpen,
  isUndecided,
  linkOf,
  loadMore,
  open,
  rows,
  stops,
  undecidedIn,
} from "./groups.js";

import { makeCursor } from "../cursor.js";

import { allSent, say } from "./requests.js";

export const { currentRow: currentStop, put, select, beside } = makeCursor({
  rows: stops,
  linkOf,
  lineOf: (stop) => (isHeader(stop) ? stop : stop.querySelector(".proposal__line")),
  top: 160,
});

export const currentRow = () => currentStop()?.closest(".proposal");
export const currentGroup = () => currentStop()?.closest(".group");

export const step = async (by) => {
  const next = beside(by);
  const group = stops().includes(currentStop()) ? currentGroup() : null;
  const leaves = by > 0 && group?.querySelector(".group__more") && (!next || groupOf(next) !== group);
  if (leaves && (await loadMore(group))) return step(by);
  if (next) return select(next);
  if (!stops().length) return say("There is no proposal on this page.");
  return say(by > 0 ? "This is the last row." : "This is the first row.");
};

export const stepGroup = (by) => {
  const all = headers();
  const header = currentGroup() ? headerOf(currentGroup()) : null;
  const at = all.indexOf(header);
  if (at < 0) return all.length ? select(all[0]) : say("There is no group on this page.");
  if (by < 0 && header !== currentStop()) return select(header);
  const next = all[at + by];
  if (next) return select(next);
  return say(by > 0 ? "This is the last group." : "This is the first group.");
};

/* The next undecided row in one direction, up to the end of the page. Groups are opened, and their rows loaded. */
const undecidedFrom = async (start, by) => {
  for (let stop = start; stop; ) {
    const group = groupOf(stop);
    if (isHeader(stop) && !isOpen(group) && undecidedIn(group)) {
      await open(group);
      if (by < 0) {
        while (await loadMore(group));
        stop = rows(fresh(group)).at(-1);
      } else {
        stop = fresh(stop);
      }
    }
    if (!isHeader(stop) && isUndecided(stop)) return stop;
    let all = stops();
    let next = all[all.indexOf(stop) + by];
    const ends = by > 0 && group.querySelector(".group__more") && (!next || groupOf(next) !== group);
    if (ends && undecidedIn(group) && (await loadMore(group))) {
      all = stops();
      next = all[all.indexOf(fresh(stop)) + 1];
    }
    stop = next;
  }
  return null;
};

const nothingUndecided = async () => {
  await allSent();
  const left = Number(document.getElementById("bar").dataset.undecided);
  return say(left ? `${left.toLocaleString("en")} undecided proposals are not on this page.` : "Everything is decided.");
};

/* The next undecided row behind the cursor, then from the other end of the page. */
export const nextUndecided = async (by = 1) => {
  const all = stops();
  const at = all.indexOf(currentStop());
  const behind = at < 0 ? (by > 0 ? all[0] : null) : isHeader(all[at]) && by > 0 ? all[at] : all[at + by];
  const found = (await undecidedFrom(behind, by)) || (await undecidedFrom(by > 0 ? stops()[0] : stops().at(-1), by));
  return found ? select(found) : nothingUndecided();
};

/* The line of the next group with something undecided; after the last one, of the first. */
export const nextGroup = async () => {
  const all = headers();
  const at = all.indexOf(currentGroup() ? headerOf(currentGroup()) : null);
  const found = [...all.slice(at + 1), ...all.slice(0, at + 1)].find((one) => undecidedIn(groupOf(one)));
  return found ? select(found) : nothingUndecided();
};
