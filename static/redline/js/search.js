/* The keys of every search: / goes to the field of the page, or to the palette if there is none; twice, from an empty field
   of the page, always to the palette. Escape leaves a field. What the scripts of a page handle is not handled here. */
(() => {
  "use strict";

  const isTyping = (element) => element.closest("input:not([type=checkbox]), select, textarea, [contenteditable], dialog");

  const enter = () => {
    const input = document.querySelector('input[data-search="page"]');
    if (!input?.offsetParent) return everywhere();
    input.focus();
    return input.select();
  };

  const everywhere = () => document.getElementById("jump").click();

  /* A field for patterns takes the key as text: a pattern begins with it. */
  const goesOn = (input) => input.type === "search" && input.dataset.search !== "pattern" && isUntouched(input);

  /* Empty, or selected as a whole, as the first press of the key leaves it. */
  const isUntouched = (input) => input.selectionEnd - input.selectionStart === input.value.length;

  window.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    const { target } = event;
    if (event.key === "/" && (!isTyping(target) || goesOn(target))) {
      event.preventDefault();
      if (isTyping(target)) everywhere();
      else enter();
    } else if (event.key === "Escape" && target.dataset.search) {
      target.blur();
    }
  });
})();
