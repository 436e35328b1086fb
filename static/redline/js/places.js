/* A search within a session: n and N go to the next and the previous place, and what was found is marked in the texts.
   The marks change nothing in the page: the browser paints them (CSS Custom Highlight API). */
(() => {
  "use strict";

  const MAX_MARKS = 5000;
  const field = document.getElementById("search-session");
  const links = { n: "next", N: "previous" };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(links, event.key)) return;
    if (event.target.closest("input, select, textarea, [contenteditable], [popover], dialog")) return;
    const link = document.querySelector(`a[data-place="${links[event.key]}"]`);
    if (!link) return;
    event.preventDefault();
    link.click();
  });

  if (!field || !field.dataset.marks || !window.Highlight) return;

  const LETTER = "[\\p{L}\\p{N}]";
  const pattern = ({ words, prefix, bounded }) => {
    const end = bounded ? (prefix ? `${LETTER}{0,60}` : `(?!${LETTER})`) : "";
    return (bounded ? `(?<!${LETTER})` : "") + words.join("[^\\p{L}\\p{N}]+") + end;
  };
  const patterns = JSON.parse(field.dataset.marks).map(pattern);
  const found = new RegExp(patterns.join("|"), "giu");

  const mark = () => {
    const ranges = [];
    document.querySelectorAll("article.entry").forEach((entry) => {
      const walker = document.createTreeWalker(entry, NodeFilter.SHOW_TEXT);
      while (walker.nextNode() && ranges.length < MAX_MARKS) {
        for (const match of walker.currentNode.data.matchAll(found)) {
          const range = new Range();
          range.setStart(walker.currentNode, match.index);
          range.setEnd(walker.currentNode, match.index + match[0].length);
          ranges.push(range);
        }
      }
    });
    CSS.highlights.set("found", new Highlight(...ranges));
  };

  mark();
  document.addEventListener("htmx:afterSettle", mark);
})();
