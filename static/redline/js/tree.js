/* The keys of the tree: they move the focus from row to row; Enter follows the row's link, as everywhere. */
(() => {
  "use strict";

  const graph = () => document.getElementById("graph");
  if (!graph()) return;

  const rows = () => Array.from(graph().querySelectorAll("[data-row]"));
  const isMark = (row) => row.dataset.row === "fork" || row.dataset.row === "compaction";

  const current = () => {
    const all = rows();
    const focused = all.indexOf(document.activeElement);
    return focused >= 0 ? focused : all.findIndex((row) => row.hasAttribute("aria-current"));
  };

  const focus = (row) => {
    if (!row) return;
    row.focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
  };

  /* Past the last row of a page, the focus goes to the link to the next one. */
  const step = (by) => {
    const all = rows();
    const links = graph().querySelectorAll(".fold a");
    const beyond = Array.from(links).find((link) => {
      const isAbove = link.compareDocumentPosition(all[0]) & Node.DOCUMENT_POSITION_FOLLOWING;
      return by < 0 ? isAbove : !isAbove;
    });
    focus(all[current() + by] || beyond);
  };

  const jump = (by) => {
    const all = rows();
    for (let place = current() + by; place >= 0 && place < all.length; place += by) {
      if (isMark(all[place])) return focus(all[place]);
    }
    return step(by);
  };

  const keys = {
    j: () => step(1),
    k: () => step(-1),
    ArrowDown: () => step(1),
    ArrowUp: () => step(-1),
    "]": () => jump(1),
    "[": () => jump(-1),
    e: () => document.getElementById("label-link")?.click(),
    "/": () => document.getElementById("tree-query").focus(),
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, select, textarea, [popover]")) {
      if (event.key === "Escape" && event.target.id === "tree-query") focus(rows()[Math.max(0, current())]);
      return;
    }
    const act = keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });

  /* Copying needs a script: without one, its button is not shown. */
  const showCopies = () => {
    graph().querySelectorAll("[data-copies]").forEach((one) => {
      one.hidden = false;
    });
  };

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("#graph [data-copy]");
    if (!button) return;
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "Copied";
  });

  /* Where a fold was, its first row takes the focus over. htmx itself gives it back to a row that is still there. */
  document.addEventListener("htmx:afterSettle", (event) => {
    showCopies();
    const opened = event.detail.requestConfig?.elt.id || "";
    if (opened.startsWith("fold-")) focus(document.getElementById(opened.replace("fold-", "row-")));
  });
  showCopies();
})();
