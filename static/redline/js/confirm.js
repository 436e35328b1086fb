/* The ticks of Confirm. The bar at the foot shows which are missing; its button leads to the first of them and says so.
   Without script the form is submitted, and its answer shows what is missing. */
(() => {
  "use strict";

  const form = document.getElementById("confirm");
  if (!form) return;
  const ticks = [...form.querySelectorAll("[name=yes]")];
  const button = form.querySelector("[data-missing]");
  const message = document.getElementById("missing");

  const missing = () => ticks.filter((tick) => !tick.checked);

  const update = () => {
    const left = missing().length;
    ticks.forEach((tick) => {
      const link = form.querySelector(`[data-tick="${CSS.escape(tick.id)}"]`);
      link.classList.toggle("tick-link--given", tick.checked);
    });
    if (button) button.querySelector("[data-missing-count]").textContent = `${left} tick${left === 1 ? "" : "s"} missing`;
    message.textContent = "";
  };

  const leadToMissing = () => {
    const [first] = missing();
    if (!first) return false;
    first.scrollIntoView({ block: "center" });
    first.focus();
    message.textContent = `Needs your yes: ${first.labels[0].textContent}`;
    return true;
  };

  form.addEventListener("change", update);
  if (button) {
    button.addEventListener("click", (event) => {
      if (leadToMissing()) event.preventDefault();
    });
  }
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.metaKey || event.ctrlKey) || event.defaultPrevented) return;
    event.preventDefault();
    const submit = form.querySelector("button[type=submit]");
    if (!leadToMissing() && !submit.disabled) form.requestSubmit(submit);
  });
  window.addEventListener("pageshow", update);
})();
