/* The keys of every search: / goes to the field of the page, or to the one of all sessions; twice, from an empty field of
   the page, always to that one. Escape leaves a field. What the scripts of a page handle is not handled here. */
(() => {
  "use strict";

  const field = (name) => document.querySelector(`input[data-search="${name}"]`);
  const isTyping = (element) => element.closest("input:not([type=checkbox]), select, textarea, [contenteditable], dialog");

  /* In a narrow window, the field of all sessions is a link to its page. */
  const enter = (input) => {
    if (!input.offsetParent) {
      document.getElementById("search-link").click();
      return;
    }
    input.focus();
    input.select();
  };

  window.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    const all = field("all");
    if (!all) return;
    const { target } = event;
    if (event.key === "/" && !isTyping(target)) {
      event.preventDefault();
      enter(field("page") || all);
    } else if (event.key === "/" && target.type === "search" && goesOn(target, all)) {
      event.preventDefault();
      enter(all);
    } else if (event.key === "Escape" && target.dataset.search) {
      target.blur();
    }
  });

  /* A field for patterns takes the key as text: a pattern begins with it. */
  const goesOn = (input, all) => input !== all && input.dataset.search !== "pattern" && isUntouched(input);

  /* Empty, or selected as a whole, as the first press of the key leaves it. */
  const isUntouched = (input) => input.selectionEnd - input.selectionStart === input.value.length;
})();
