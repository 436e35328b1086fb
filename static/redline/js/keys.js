/* The keys that every page has: ? shows help on it; g and a letter go where the link with this letter leads. The scripts
   of a page listen on the document and come first: what they handle is not handled here. */
(() => {
  "use strict";

  const GO_MS = 1500;
  const help = document.getElementById("keys-help");
  let going = -Infinity;

  const isTyping = (element) => element.closest("input, select, textarea, [contenteditable]");

  const go = (letter) => {
    const link = document.querySelector(`a[data-go="${CSS.escape(letter)}"]`);
    if (link) link.click();
    return Boolean(link);
  };

  /* Without this script, the help is a popover beside the page. */
  const toggle = () => {
    if (help.matches(":popover-open")) help.hidePopover();
    else if (help.open) help.close();
    else help.showModal();
  };

  document.querySelectorAll("[popovertarget=keys-help]").forEach((button) => {
    button.addEventListener("click", (event) => {
      event.preventDefault();
      toggle();
    });
  });

  /* While it is open, the page hears no key, and a press beside it closes it. */
  help.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "?") toggle();
  });
  help.addEventListener("click", (event) => {
    if (event.target === help && event.clientX < help.getBoundingClientRect().left) help.close();
  });

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
      toggle();
    }
  });
})();
