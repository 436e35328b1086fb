/* Buttons that copy the text beside them. Without script, or where the browser allows no copying, there are none: the
   text can be selected by one click. */
(() => {
  "use strict";

  const SAID_MS = 2000;

  const prepare = (line) => {
    const button = line.querySelector("[data-copy-button]");
    const status = line.querySelector("[data-copy-status]");
    const label = button.textContent;
    let forget = 0;

    const say = (words) => {
      button.textContent = words;
      status.textContent = words;
      window.clearTimeout(forget);
      forget = window.setTimeout(() => {
        button.textContent = label;
        status.textContent = "";
      }, SAID_MS);
    };

    button.hidden = false;
    button.addEventListener("click", () => {
      const { textContent } = line.querySelector("code");
      window.navigator.clipboard.writeText(textContent).then(
        () => say("Copied"),
        () => say("Not copied"),
      );
    });
  };

  if (window.navigator.clipboard) document.querySelectorAll("[data-copy]").forEach(prepare);
})();
