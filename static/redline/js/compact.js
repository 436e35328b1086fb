/* The panel that plans a compaction: a slider and shares to choose from set the field; esc closes; and when planning has
   ended, its review opens, unless the person has begun to type meanwhile. */
(() => {
  "use strict";

  const panel = document.querySelector(".compact");
  if (!panel) return;
  const FIELDS = "input:not([type=radio], [type=range]), select, textarea, [contenteditable], dialog";

  const isTyping = (element) => Boolean(element?.closest(FIELDS));
  const form = panel.querySelector("form");

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector(":popover-open, dialog[open]")) return;
    if (event.key === "Escape") {
      panel.querySelector("[data-close]").click();
    } else if (event.key === "Enter" && event.target === document.body && form) {
      form.requestSubmit();
    }
  });

  const keep = document.getElementById("keep");
  const slider = panel.querySelector(".compact__slider");
  if (keep && slider) {
    const presets = Array.from(panel.querySelectorAll("[data-keep]"));
    const mark = () => {
      presets.forEach((one) => {
        if (one.dataset.keep === keep.value) one.setAttribute("aria-current", "true");
        else one.removeAttribute("aria-current");
      });
    };
    const set = (percent) => {
      keep.value = percent;
      ["input", "change"].forEach((name) => keep.dispatchEvent(new Event(name, { bubbles: true })));
    };
    slider.hidden = false;
    slider.addEventListener("input", () => set(slider.value));
    keep.addEventListener("input", () => {
      slider.value = keep.value;
      mark();
    });
    presets.forEach((one) => {
      one.addEventListener("click", (event) => {
        event.preventDefault();
        set(one.dataset.keep);
      });
    });
  }

  const open = () => {
    const ended = panel.querySelector("[data-ended]");
    if (ended && !isTyping(document.activeElement)) window.location.replace(ended.dataset.ended);
  };
  document.addEventListener("htmx:wsAfterMessage", open);
})();
