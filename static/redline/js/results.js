/* The results of a search: the arrows, and j and k, go from place to place; enter opens one, as any link. */
(() => {
  "use strict";

  const step = (by) => {
    const hits = [...document.querySelectorAll(".hit")];
    const at = hits.indexOf(document.activeElement);
    const next = hits[Math.max(0, Math.min(hits.length - 1, at < 0 ? 0 : at + by))];
    if (!next) return;
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  };

  const keys = { j: 1, n: 1, ArrowDown: 1, k: -1, N: -1, ArrowUp: -1 };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(keys, event.key)) return;
    const field = event.target.closest("input, select, textarea, [popover]");
    if (field && !(field.type === "search" && event.key === "ArrowDown")) return;
    event.preventDefault();
    step(keys[event.key]);
  });

  /* The field keeps the focus, and what is selected in it, when the results around it are replaced. */
  let typing = null;

  document.addEventListener("htmx:beforeSwap", () => {
    const field = document.activeElement;
    typing = field && field.id === "search-query" ? field : null;
  });
  document.addEventListener("htmx:afterSwap", () => {
    const field = document.getElementById("search-query");
    if (!typing || !field || field === typing) return;
    field.focus();
    field.setSelectionRange(typing.selectionStart, typing.selectionEnd);
  });
})();
