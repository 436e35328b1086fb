/* Groups and proposals of the review: what they say of themselves, and how they are folded open and shut. */

import { address, allSent, follow, form, load, onDrawn } from "./requests.js";

export const headers = () => Array.from(form.querySelectorAll(".group__row"));
/* An element as the last response drew it; nothing if it is gone. */
export const fresh = (element) => document.getElementById(element.id);

export const rows = (within = form) => Array.from(within.querySelectorAll(".proposal"));
export const stops = () =>
  Array.from(form.querySelectorAll(".group__row, .group__body:not([hidden]) .proposal"));

export const isHeader = (stop) => stop.matches(".group__row");
export const groupOf = (stop) => stop.closest(".group");
export const headerOf = (group) => group.querySelector(".group__row");
export const linkOf = (stop) => stop.querySelector(".disclose, .proposal__what");
export const isUndecided = (row) => row.hasAttribute("data-undecided");
export const undecidedIn = (group) => (group.hasAttribute("data-sent") ? 0 : Number(headerOf(group).dataset.undecided));

/* ---- groups ------------------------------------------------------------------------------------------- */

export const isOpen = (group) => group.matches(".group--open");
const body = (group) => group.querySelector(".group__body");

const drawDisclosure = (group) =>
  headerOf(group).querySelector(".disclose").setAttribute("aria-expanded", String(isOpen(group)));

/* What waits to be decided is decided first: the response may draw the group again. */
export const open = async (before) => {
  await allSent();
  const group = fresh(before);
  if (!group || isOpen(group)) return;
  if (!rows(group).length) await load(body(group), body(group).dataset.rows, { swap: "innerHTML" });
  draw(group, true);
};

/* Its rows stay on the page, hidden: responses draw them, and it opens again at once. */
export const shut = (group) => draw(group, false);

const draw = (group, isShown) => {
  body(group).hidden = !isShown;
  body(group).querySelectorAll('input[name="open"]').forEach((input) => {
    input.disabled = !isShown;
  });
  group.classList.toggle("group--open", isShown);
  drawDisclosure(group);
};

/* Loads further rows of a group. Resolves to whether there were any. */
export const loadMore = async (before) => {
  await allSent();
  const group = fresh(before);
  const more = group && isOpen(group) && group.querySelector(".group__more");
  if (!more) return false;
  await follow(more.querySelector("a"));
  return true;
};

/* The buttons of groups whose decisions wait; one that is not drawn again by a response gets them back. */
const hidden = new Map();
const SAVING = "saving…";
const actsOf = (group) => group.querySelector(".group__acts");

export const hideActs = (group) => {
  const acts = actsOf(group);
  hidden.set(group.id, Array.from(acts.childNodes));
  acts.textContent = SAVING;
};

export const showActs = () => {
  hidden.forEach((nodes, id) => {
    const group = document.getElementById(id);
    if (group && actsOf(group).textContent === SAVING) actsOf(group).replaceChildren(...nodes);
  });
  hidden.clear();
};

/* ---- proposals ---------------------------------------------------------------------------------------- */

export const unfolded = (row) => row.querySelector(".proposal__open");

export const unfold = async (before) => {
  await allSent();
  const row = fresh(before);
  if (!row || unfolded(row)) return;
  /* The line's link has the filter of the page, and so its group. */
  await load(row, `${linkOf(row).getAttribute("href").split("#")[0]}&part=open`, { swap: "beforeend" });
  linkOf(row).setAttribute("aria-expanded", "true");
};

export const fold = (row) => {
  unfolded(row)?.remove();
  linkOf(row).setAttribute("aria-expanded", "false");
};

/* Drawn again by a response, a header says whether its group is open. */
onDrawn(() => form.querySelectorAll(".group").forEach(drawDisclosure));

/* ---- selected ----------------------------------------------------------------------------------------- */

export const ticks = () => Array.from(form.querySelectorAll(".tick:checked"));

export const countTicks = () => {
  const all = ticks();
  document.getElementById("picked").textContent = `${all.length.toLocaleString("en")} selected`;
  weigh(all.filter((tick) => isUndecided(tick.closest(".proposal"))));
};

/* What approving the selection would do: the server knows what is deleted with it, and counts it once. */
const weigh = (undecided) => {
  const shown = document.getElementById("picked-tokens");
  shown.textContent = "";
  if (!undecided.length) return;
  const query = new URLSearchParams([["part", "picked"], ...undecided.map((tick) => ["pick", tick.value])]);
  window.htmx.ajax("GET", `${address}?${query}`, { source: shown, target: shown, swap: "innerHTML" }).catch(() => {});
};

export const tick = (row, on) => {
  row.querySelector(".tick").checked = on;
  countTicks();
};

export const clearTicks = () => {
  ticks().forEach((one) => {
    one.checked = false;
  });
  countTicks();
};
