/* What is ticked of the deletions, as numbers at the foot of the page and beside the map. Without script they are those
   of the last answer. */
(() => {
  "use strict";

  const form = document.getElementById("undo");
  if (!form) return;
  const part = (name) => form.querySelector(`[data-${name}]`);
  const ticks = [...form.querySelectorAll("[data-tokens]")];

  const chosen = () => ticks.filter((tick) => tick.checked);
  const sum = () => chosen().reduce((total, tick) => total + Number(tick.dataset.tokens), 0);

  /* Three figures, as on all pages. */
  const shown = (tokens) => Number(tokens.toPrecision(3)).toLocaleString("en");

  /* What the form holds without a row is in the numbers of the server. */
  const before = { count: chosen().length, sum: sum() };
  const base = {
    count: Number(part("count").dataset.count) - before.count,
    sum: Number(part("sum").dataset.sum) - before.sum,
  };

  form.addEventListener("change", () => {
    const total = base.sum + sum();
    part("count").textContent = (base.count + chosen().length).toLocaleString("en");
    part("sum").textContent = shown(total);
    const together = part("with");
    if (together) together.textContent = shown(Number(together.dataset.after) + total);
  });
})();
