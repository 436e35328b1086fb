/* What stays in sight of a session is out of the order of the focus while the head covers it. On the conversation it says
   which turn is read, and its button leads to the search. */
(() => {
  "use strict";

  const stick = document.querySelector("[data-stick]");
  const top = document.querySelector(".session-top");
  if (!stick || !top) return;

  const cover = (entries) => {
    for (const entry of entries) stick.classList.toggle("is-covered", entry.isIntersecting);
  };
  const watch = () => {
    const margin = Math.round(stick.getBoundingClientRect().height + Number.parseFloat(getComputedStyle(stick).top));
    new IntersectionObserver(cover, { rootMargin: `-${margin}px 0px 0px 0px` }).observe(top);
  };
  watch();

  const find = stick.querySelector("[data-find]");
  if (find) {
    find.addEventListener("click", (event) => {
      const field = document.getElementById("search-session");
      event.preventDefault();
      field.scrollIntoView({ block: "center" });
      field.focus({ preventScroll: true });
    });
  }

  /* ---- the turn that is read -------------------------------------------------------------------------------- */

  const text = document.getElementById("transcript");
  if (!text) return;
  let isPlanned = false;
  const turn = () => {
    isPlanned = false;
    const here = stick.querySelector("[data-turn-here]");
    if (!here) return;
    const begun = Array.from(text.querySelectorAll(".entry--user[id]")).findLast(
      (entry) => entry.getBoundingClientRect().top < window.innerHeight / 2,
    );
    const link = begun && document.querySelector(`.sidebar [data-turn="${CSS.escape(begun.id)}"] .tree__number`);
    if (link) here.textContent = link.textContent;
  };
  window.addEventListener(
    "scroll",
    () => {
      if (isPlanned) return;
      isPlanned = true;
      window.requestAnimationFrame(turn);
    },
    { passive: true },
  );
})();
