/* The keys of a list of rows: they go from row to row, from page to page and from filter to filter, and press the buttons
   that name a key. Enter follows the row's link, as everywhere. Each key that cannot act says why. Beside a list with a
   preview, that shows the current row. */
import { makeCursor } from "./cursor.js";

const SAID_MS = 3000;
const FIELDS = "input:not([type=checkbox]), select, textarea, [contenteditable], dialog";

const rows = () => Array.from(document.querySelectorAll("[data-stop]"));
const cursor = makeCursor({ rows, linkOf: (row) => row.querySelector("a[href], button") });

let forget = 0;
const say = (words) => {
  const said = document.getElementById("said");
  said.textContent = words;
  window.clearTimeout(forget);
  forget = window.setTimeout(() => {
    said.textContent = "";
  }, SAID_MS);
};

/* The preview follows the cursor once that rests; where there is no room for it, nothing is requested. */
const PREVIEW_MS = 120;
const preview = document.getElementById("preview");
let previewed = "";
let resting = 0;
const showPreview = (row) => {
  const link = row?.querySelector("a.name");
  if (!preview?.offsetParent || !link || previewed === row.id) return;
  window.clearTimeout(resting);
  resting = window.setTimeout(() => {
    previewed = row.id;
    window.htmx.ajax("GET", `${link.pathname}/preview`, { target: preview, swap: "innerHTML" });
  }, PREVIEW_MS);
};

const select = (row) => {
  cursor.select(row);
  showPreview(row);
};

const compact = () => {
  const link = cursor.currentRow()?.querySelector("a.name");
  if (!link) return say("Choose a session first: j goes to the next one");
  return window.location.assign(`${link.pathname}/compact`);
};

const step = (by) => {
  const next = cursor.beside(by);
  if (next) return select(next);
  if (!rows().length) return say("There is no row on this page");
  return say(by > 0 ? "This is the last row of this page" : "This is the first row of this page");
};

/* Rows that wait for the user are marked by the reason. */
const nextWaiting = (by) => {
  const all = rows();
  const at = all.indexOf(cursor.currentRow());
  const behind = by > 0 ? all.slice(at + 1) : all.slice(0, Math.max(at, 0)).reverse();
  const found = behind.find((row) => row.dataset.stop);
  return found ? select(found) : say(`Nothing waits for you ${by > 0 ? "below" : "above"} this row`);
};

const turnPage = (rel, words) => {
  const link = document.querySelector(`a[rel="${rel}"]`);
  return link ? link.click() : say(`This is the ${words} page`);
};

const nextFilter = (by) => {
  const all = Array.from(document.querySelectorAll(".filters .tabs a"));
  if (!all.length) return say("This page has no filter");
  const at = all.findIndex((link) => link.hasAttribute("aria-current"));
  return all[(at + by + all.length) % all.length].click();
};

/* The button of the current row comes before the one of the page. */
const button = (key) => {
  const sought = `[data-key="${CSS.escape(key)}"]`;
  return cursor.currentRow()?.querySelector(sought) || document.querySelector(`${sought}:not([data-stop] *)`);
};

const keys = {
  j: () => step(1),
  k: () => step(-1),
  ArrowDown: () => step(1),
  ArrowUp: () => step(-1),
  n: () => nextWaiting(1),
  N: () => nextWaiting(-1),
  "]": () => turnPage("next", "last"),
  "[": () => turnPage("prev", "first"),
  f: () => nextFilter(1),
  F: () => nextFilter(-1),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest(FIELDS)) return;
  if (document.querySelector(":popover-open")) return;
  const pressed = button(event.key);
  const compacts = event.key === "c" && document.querySelector(".sessions") && compact;
  const act = Object.hasOwn(keys, event.key) ? keys[event.key] : (pressed && (() => pressed.click())) || compacts;
  if (!act) return;
  event.preventDefault();
  act();
});

document.addEventListener("focusin", ({ target }) => {
  const row = target.closest("[data-stop]");
  if (!row) return;
  cursor.put(row);
  showPreview(row);
});

/* A row that is drawn again by its own button keeps the focus. A response is swapped in one step, so that no other response
   comes between these two events; before its "settle" one may. */
let hadFocus = false;
document.addEventListener("htmx:beforeSwap", () => {
  hadFocus = Boolean(cursor.currentRow()?.contains(document.activeElement));
});
document.addEventListener("htmx:afterSwap", () => {
  if (hadFocus && document.activeElement === document.body && cursor.currentRow()) cursor.select(cursor.currentRow());
  hadFocus = false;
});

/* Sessions that appear while the list is open are announced: the list makes room for them in its order. */
const listing = () => Number(document.getElementById("listing")?.dataset.known);
let known = listing();
document.addEventListener("htmx:wsAfterMessage", () => {
  const more = listing() - known;
  if (more > 0) say(`${more} new session${more === 1 ? "" : "s"}`);
  known = listing();
});

showPreview(rows()[0]);
