/* The keys of the review. Each of them decides, moves, or folds something open; one that cannot says why.

   keys ──▶ one after the other ──▶ cursor, which moves at once ──▶ decisions, sent one after the other,
                                                                     each on the page that the last response drew */

import * as cursor from "./review/cursor.js";
import * as groups from "./review/groups.js";
import {
  allSent,
  decision,
  fail,
  follow,
  form,
  hush,
  isSending,
  onDrawn,
  onFollowed,
  onSettled,
  say,
} from "./review/requests.js";

/* ---- keys, one after the other ------------------------------------------------------------------------ */

let turn = Promise.resolve();
let failures = 0;

const press = (act) => {
  const before = failures;
  turn = turn
    .then(() => {
      hush();
      return failures === before ? act() : undefined;
    })
    .catch((fault) => {
      failures += 1;
      fail(fault);
    });
};

/* ---- decisions ---------------------------------------------------------------------------------------- */

/* What is sent looks decided until the response says what it is. */
const hide = (row) => {
  if (!groups.isUndecided(row)) return;
  row.removeAttribute("data-undecided");
  row.setAttribute("data-sent", "");
};

/* Rows whose decisions wait: a response to an earlier decision may draw them as they were. */
const waiting = new Set();

onDrawn(() => {
  waiting.forEach((id) => {
    const row = document.getElementById(id);
    if (row) hide(row);
  });
});

let refused = ""; /* the row whose decision was refused last */
let moved = false; /* to a row that was undecided then; an earlier decision may decide it too */

onSettled(() => {
  waiting.clear();
  const unsent = Array.from(form.querySelectorAll(".proposal[data-sent]"));
  unsent.forEach((row) => {
    row.removeAttribute("data-sent");
    row.setAttribute("data-undecided", "");
  });
  form.querySelectorAll(".group[data-sent]").forEach((group) => group.removeAttribute("data-sent"));
  groups.showActs();
  const row = cursor.currentRow();
  const back = document.getElementById(refused);
  refused = "";
  if (back) cursor.select(back);
  else if (unsent.length) cursor.select(unsent[0]);
  else if (moved && row && !groups.isUndecided(row)) press(() => cursor.nextUndecided());
  moved = false;
});

const advance = async () => {
  const was = cursor.currentStop();
  await cursor.nextUndecided();
  moved = cursor.currentStop() !== was;
};

const begin = async () => {
  await cursor.nextUndecided();
  if (cursor.currentRow()) say("No proposal was selected: this is the next undecided one.");
};

const stateOf = (row) => row.querySelector(".proposal__state").textContent.trim();
const canDo = (row, name) => row.dataset.acts.split(" ").includes(name);

const decide = async (name) => {
  if (groups.ticks().length) return decidePicked(name);
  const row = cursor.currentRow();
  if (!row) {
    const group = cursor.currentGroup();
    const key = name === "approve" ? "⇧A" : "⇧X";
    return group ? say(`This is a group: ${key} decides everything undecided in it, ↵ opens it.`) : begin();
  }
  if (row.hasAttribute("data-sent")) return say("This decision is being sent.");
  const act = name === "reject" && canDo(row, "withdraw") ? "withdraw" : name;
  if (!canDo(row, act)) return say(`Nothing to ${name} here: ${stateOf(row)}.`);
  const { id } = row;
  const { key } = row.dataset;
  const wasUndecided = groups.isUndecided(row);
  hide(row);
  groups.fold(row);
  waiting.add(id);
  decision(
    () => {
      const now = document.getElementById(id);
      const isAsSeen = !wasUndecided || !now || now.hasAttribute("data-sent") || groups.isUndecided(now);
      return !now || (canDo(now, act) && isAsSeen) ? { [act]: key } : null;
    },
    {
      done: () => waiting.delete(id),
      refused: () => {
        waiting.delete(id);
        refused = id;
      },
    },
  );
  return advance();
};

const decidePicked = (name) => {
  const picked = groups.ticks().map((tick) => tick.closest(".proposal"));
  if (!picked.some(groups.isUndecided)) return say(`Nothing to ${name}: what is selected is decided.`);
  picked.forEach(hide);
  decision(() => ({ [`${name}_picked`]: "1" }), { done: groups.clearTicks });
  return advance();
};

const decideGroup = async (name, group = cursor.currentGroup()) => {
  if (!group) return begin();
  if (!groups.undecidedIn(group)) return say("Nothing is undecided in this group.");
  const { key } = group.dataset;
  groups.rows(group).forEach(hide);
  group.setAttribute("data-sent", "");
  groups.hideActs(group);
  decision(() => ({ [`${name}_group`]: key }));
  cursor.put(groups.headerOf(group));
  groups.shut(group);
  return cursor.nextGroup();
};

/* What was undone is shown, wherever it is. */
const undo = () => {
  decision(() => ({ undo: "1" }), { done: () => press(showUndone), undoes: true });
};

const showUndone = async () => {
  const went = document.querySelector("#message [data-went]");
  const group = went && document.getElementById(`g-${went.dataset.group}`);
  if (!group) return;
  const row = () => document.getElementById(went.dataset.went);
  if (went.dataset.went) {
    await groups.open(group);
    while (!row() && (await groups.loadMore(group)));
  }
  cursor.select(row() || groups.headerOf(group));
};

/* ---- folding ------------------------------------------------------------------------------------------ */

const foldRow = (row) => {
  groups.fold(row);
  cursor.select(row);
};

const toggle = async () => {
  const row = cursor.currentRow();
  const group = cursor.currentGroup();
  if (row) return groups.unfolded(row) ? foldRow(row) : groups.unfold(row);
  if (group) return groups.isOpen(group) ? groups.shut(group) : groups.open(group);
  return say("No row is selected: j selects the first one.");
};

const LINE_LINK = ".disclose, .proposal__what";

/* Earlier keys move the focus: what has it when its turn comes has an Enter of its own, except for the cursor's link. A
   box has that of its fields, or none: the browser would press the first button of the page. */
const enter = async () => {
  const focused = document.activeElement;
  const fields = focused.matches("input") && focused.closest(".narrow");
  const own = fields ? fields.querySelector("button") : focused.closest(`:is(a, button, summary):not(${LINE_LINK})`);
  return own ? own.click() : toggle();
};

const expand = async () => {
  const row = cursor.currentRow();
  const group = cursor.currentGroup();
  if (row && groups.unfolded(row)) return say("This proposal is open.");
  if (!row && group && groups.isOpen(group)) return say("This group is open.");
  return toggle();
};

const collapse = async () => {
  const row = cursor.currentRow();
  const group = cursor.currentGroup();
  if (row && groups.unfolded(row)) return foldRow(row);
  if (!group || !groups.isOpen(group)) return say(group ? "This group is shut." : "No row is selected.");
  cursor.select(groups.headerOf(group));
  return groups.shut(group);
};

/* The current proposal, folded open; nothing, with the reason said, if none is current. */
const unfolded = async () => {
  const row = cursor.currentRow();
  if (!row) {
    say(cursor.currentGroup() ? "This is a group: go to one of its proposals." : "No proposal is selected.");
    return null;
  }
  await groups.unfold(row);
  const now = groups.fresh(row);
  cursor.select(now);
  return groups.unfolded(now);
};

const surroundings = async () => {
  const part = await unfolded();
  if (!part) return;
  const folds = Array.from(part.querySelectorAll(".fold a"));
  const shown = Array.from(part.querySelectorAll("details.staying"));
  shown.forEach((one) => {
    one.open = !one.open;
  });
  for (const link of folds) await follow(link);
  if (!folds.length && !shown.length) say("Nothing is kept directly around this proposal.");
};

const narrow = async () => {
  const part = await unfolded();
  if (!part) return;
  const choices = part.querySelector(".narrow");
  if (!choices) {
    say("This proposal is one block: it is deleted or kept as a whole.");
    return;
  }
  choices.open = true;
  choices.querySelector("input").focus();
};

const add = async () => {
  const part = await unfolded();
  if (!part) return;
  const links = Array.from(part.querySelectorAll(".fold a"));
  for (const link of links) await follow(link);
  const button = groups.unfolded(cursor.currentRow()).querySelector('button[name="add"]');
  if (button) button.focus();
  else say("Nothing is kept beside this proposal that could be deleted.");
};

const linked = (css) => async () => {
  const part = await unfolded();
  if (part) part.querySelector(css).click();
};

/* ---- the selection ------------------------------------------------------------------------------------ */

const pick = () => {
  const row = cursor.currentRow();
  if (!row) return say("Only proposals can be selected: go to one.");
  return groups.tick(row, !row.querySelector(".tick").checked);
};

const extend = async (by) => {
  const row = cursor.currentRow();
  if (row) groups.tick(row, true);
  await cursor.step(by);
  const next = cursor.currentRow();
  if (next) groups.tick(next, true);
  else say("The selection ends with the group.");
};

const clear = () => {
  if (groups.ticks().length) return groups.clearTicks();
  const all = document.getElementById("everything");
  return all ? all.click() : say("Nothing is selected, and nothing is filtered.");
};

/* A tick with shift selects everything from the last one on. */
let lastTick = null;

form.addEventListener("click", (event) => {
  const tick = event.target.closest(".tick");
  if (!tick) return;
  const all = Array.from(form.querySelectorAll(".tick"));
  const [from, to] = [all.indexOf(lastTick), all.indexOf(tick)].sort((one, other) => one - other);
  if (event.shiftKey && from >= 0) {
    all.slice(from, to + 1).forEach((one) => {
      one.checked = tick.checked;
    });
  }
  lastTick = tick;
  groups.countTicks();
});

/* ---- places ------------------------------------------------------------------------------------------- */

let goes = false;

const go = (key) => {
  const link = document.querySelector(`a[data-go="${CSS.escape(key)}"]`);
  if (link) link.click();
  else say(key === "c" ? "Nothing is approved yet, so there is nothing to confirm." : `g ${key} leads nowhere.`);
};

const find = () => {
  const field = document.getElementById("find");
  field.focus();
  field.select();
};

const filter = () => {
  const fields = document.getElementById("filter-menu");
  fields.showPopover();
  fields.querySelector("select").focus();
};

/* ---- keys --------------------------------------------------------------------------------------------- */

const keys = {
  j: () => cursor.step(1),
  k: () => cursor.step(-1),
  ArrowDown: () => cursor.step(1),
  ArrowUp: () => cursor.step(-1),
  n: () => cursor.nextUndecided(1),
  N: () => cursor.nextUndecided(-1),
  "]": () => cursor.stepGroup(1),
  "[": () => cursor.stepGroup(-1),
  Enter: enter,
  ArrowRight: expand,
  ArrowLeft: collapse,
  a: () => decide("approve"),
  x: () => decide("reject"),
  A: () => decideGroup("approve"),
  X: () => decideGroup("reject"),
  e: narrow,
  "+": add,
  s: pick,
  "shift ArrowDown": () => extend(1),
  "shift ArrowUp": () => extend(-1),
  u: undo,
  v: surroundings,
  o: linked("[data-session]"),
  m: linked("[data-like]"),
  "/": find,
  f: filter,
  Escape: clear,
};

const nameOf = (event) =>
  event.shiftKey && event.key.startsWith("Arrow") ? `shift ${event.key}` : event.key;

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input:not([type=checkbox], [type=range]), textarea, select, [contenteditable]");
  if (event.target.matches("[type=range]") && event.key.length > 1) return;
  const reads = document.querySelector(":popover-open");
  if (typing || reads || event.ctrlKey || event.altKey || event.metaKey) return;
  if (goes) {
    goes = false;
    event.preventDefault();
    go(event.key);
    return;
  }
  if (event.key === "g") {
    goes = true;
    say("g: c confirm, p select, s session, t tree, i inbox");
    return;
  }
  const name = nameOf(event);
  if (name === "Enter" && !form.contains(event.target) && event.target.closest("a, button, summary, input")) return;
  if (!Object.hasOwn(keys, name)) return;
  event.preventDefault();
  press(keys[name]);
});

document.querySelectorAll("[data-key]").forEach((button) => {
  if (!Object.hasOwn(keys, button.dataset.key)) return;
  button.hidden = false;
  button.addEventListener("click", () => press(keys[button.dataset.key]));
});

/* ---- the mouse ---------------------------------------------------------------------------------------- */

/* To the next page, once everything before it is saved: the responses draw the button again, or leave nothing for it. */
const leadOn = async (action) => {
  await allSent();
  const button = document.querySelector(`button[formaction="${CSS.escape(action)}"]`);
  if (button) form.requestSubmit(button);
  else go("c");
};

/* A pressed button waits its turn like a key. */
form.addEventListener("submit", (event) => {
  const { name, value } = event.submitter || {};
  if (!name) {
    if (!isSending()) return;
    event.preventDefault();
    leadOn(event.submitter.getAttribute("formaction"));
    return;
  }
  event.preventDefault();
  const [kind, extent] = name.split("_");
  if (name === "undo") press(undo);
  else if (extent === "picked") press(() => decidePicked(kind));
  else if (extent === "group" && kind !== "reopen") {
    press(() => decideGroup(kind, document.getElementById(`g-${value}`)));
  } else decision(() => ({ [name]: value }));
});

onFollowed(press);

const stopAround = (element) => element.closest(".group__row, .proposal");

form.addEventListener("focusin", (event) => {
  const stop = stopAround(event.target);
  if (stop) cursor.put(stop);
});

/* Before its turn comes, a response may draw the line again or move the cursor. */
const toggleAt = async (before) => {
  await allSent();
  const stop = groups.fresh(before);
  if (!stop) {
    say("This proposal is no longer on the page.");
    return;
  }
  cursor.put(stop);
  await toggle();
};

form.addEventListener("click", (event) => {
  const stop = stopAround(event.target);
  if (stop) cursor.put(stop);
  const link = event.target.closest(LINE_LINK);
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  press(() => toggleAt(stop));
});

/* A link to a proposal that is on the page does not load it again. */
document.addEventListener("click", (event) => {
  const link = event.target.closest('a[href*="at="][href*="#p-"]');
  if (!link || event.defaultPrevented || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const there = document.getElementById(link.hash.slice(1));
  if (!there) return;
  event.preventDefault();
  press(async () => {
    cursor.select(there);
    if (there.matches(".proposal")) await groups.unfold(there);
  });
});

onDrawn(groups.countTicks);

const start = document.getElementById(window.location.hash.slice(1));
if (start?.matches(".proposal")) cursor.select(start);
else if (start?.matches(".group")) cursor.select(groups.headerOf(start));
else if (document.getElementById("find").value && groups.rows().length) cursor.select(groups.rows()[0]);
