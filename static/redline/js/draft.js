/* The editor of a draft: a missing name is inserted where the cursor is, and what was typed last is saved when the page
   is left. Everything works without this script, with a request for each step. */
(() => {
  "use strict";

  const text = document.getElementById("text");
  if (!text) return;
  const form = text.form;
  let isUnsaved = false;
  /* The text of the save that has no answer yet; null if there is none. */
  let sending = null;
  /* Before the text is touched, its cursor is where nobody put it. */
  let hasCursor = false;

  text.addEventListener("input", () => {
    isUnsaved = true;
  });
  for (const kind of ["pointerdown", "keydown"]) {
    text.addEventListener(kind, () => {
      hasCursor = true;
    });
  }
  text.addEventListener("htmx:beforeRequest", () => {
    sending = text.value;
  });
  text.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.successful) isUnsaved = text.value !== sending;
    sending = null;
  });
  form.addEventListener("submit", () => {
    isUnsaved = false;
  });
  window.addEventListener("pagehide", () => {
    if (!isUnsaved) return;
    const left = new FormData(form);
    /* A save without an answer may have changed the digest already. */
    if (sending !== null) left.delete("digest");
    navigator.sendBeacon(text.dataset.saves, left);
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[name=insert]");
    if (!button) return;
    event.preventDefault();
    if (hasCursor) {
      const { selectionStart: start, selectionEnd: end } = text;
      /* A name that touches a word is another name. */
      const before = /[\p{L}\p{N}_./-]$/u.test(text.value.slice(0, start)) ? " " : "";
      const after = /^[\p{L}\p{N}_/-]/u.test(text.value.slice(end)) ? " " : "";
      text.setRangeText(`${before}${button.value}${after}`, start, end, "end");
    } else {
      text.setRangeText(`${text.value.trimEnd()}\n\n${button.value}`, 0, text.value.length, "end");
      hasCursor = true;
    }
    text.dispatchEvent(new Event("input", { bubbles: true }));
    text.focus();
  });

  document.addEventListener("keydown", (event) => {
    if (event.key !== "e" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, select, textarea")) return;
    event.preventDefault();
    text.focus();
  });
})();
