/* Runs before everything else on a page, and keeps the keys that are pressed until the scripts that handle them have run.
   They are handed over then, and the document says that it is ready: `data-ready`.

   - Keys that move are handed over in order.
   - Of any other key that is pressed repeatedly, the first press: its user saw nothing happen, and pressed it again.
   - A key that submits a form never: what it does must be seen first.
   - What is typed after / goes into the field that / leads to. */
(() => {
  "use strict";

  const MOVES = ["j", "k", "n", "N", "[", "]", "g", "ArrowDown", "ArrowUp", "ArrowLeft", "ArrowRight"];
  const NAMED = [...MOVES, "Enter", "Escape"];
  const FIELDS = "input:not([type=checkbox], [type=radio], [type=range]), textarea";
  const CONTROLS = "a, button, summary, input, select, textarea, [contenteditable]";

  const kept = [];

  const isText = (key) => key.length === 1;
  const last = () => kept.at(-1)?.key;
  const isTyped = () => kept.some(({ key }) => key === "/");
  const isNew = (key) => MOVES.includes(key) || last() === "g" || isTyped() || !kept.some((one) => one.key === key);

  const keep = (event) => {
    const { key, shiftKey, target } = event;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (!isText(key) && !NAMED.includes(key)) return;
    /* A control that has the focus takes the key itself, with or without a script. */
    if (target.closest(key === "Enter" || key === " " ? CONTROLS : `${FIELDS}, select, [contenteditable]`)) return;
    if (isText(key) && key !== " ") event.preventDefault();
    if (isNew(key)) kept.push({ key, shiftKey });
  };

  const submits = (key) => document.querySelector(`button[type=submit][data-key="${CSS.escape(key)}"]`) !== null;

  const type = (field, key) => {
    if (key === "Enter") {
      field.form?.requestSubmit();
    } else {
      field.setRangeText(key, field.selectionStart, field.selectionEnd, "end");
      field.dispatchEvent(new InputEvent("input", { bubbles: true, data: key }));
    }
  };

  const handOver = ({ key, shiftKey }) => {
    const focused = document.activeElement || document.body;
    const isField = focused.matches(FIELDS);
    if (!isField && submits(key)) return;
    const event = new KeyboardEvent("keydown", { key, shiftKey, bubbles: true, cancelable: true });
    if (focused.dispatchEvent(event) && isField && (isText(key) || key === "Enter")) type(focused, key);
  };

  window.addEventListener("keydown", keep, true);

  /* The scripts of a page run before this event, and htmx and they act on it at the document, which comes first. */
  window.addEventListener("DOMContentLoaded", () => {
    window.removeEventListener("keydown", keep, true);
    document.documentElement.dataset.ready = "";
    kept.splice(0).forEach(handOver);
  });
})();
