/* The keys that every page has: ? shows its keys; g and a letter go where the link with this letter leads. The scripts
   of a page listen on the document and come first: what they handle is not handled here. */
(() => {
  "use strict";

  const GO_MS = 1500;
  let going = -Infinity;

  const isTyping = (element) => element.closest("input, select, textarea, [contenteditable]");

  const go = (letter) => {
    const link = document.querySelector(`a[data-go="${CSS.escape(letter)}"]`);
    if (link) link.click();
    return Boolean(link);
  };

  window.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    const isSecond = event.timeStamp - going < GO_MS;
    going = -Infinity;
    if (isSecond && go(event.key)) {
      event.preventDefault();
    } else if (event.key === "g") {
      going = event.timeStamp;
    } else if (event.key === "?") {
      event.preventDefault();
      document.getElementById("keys-help").togglePopover();
    }
  });
})();
