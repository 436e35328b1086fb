/* The keys of the review. Every one of them presses a button or follows a link that the page has anyway. */
(() => {
  "use strict";

  const form = document.getElementById("review");
  const help = document.getElementById("help");
  if (!form) return;

  let current = "";
  let moved = false; /* on to what was undecided then, and may be decided by what else went or stayed */

  const proposals = () => Array.from(form.querySelectorAll(".prop")).filter((one) => one.offsetParent);
  const here = () => document.getElementById(current);
  const undecided = (one) => one.hasAttribute("data-open");

  const mark = () => {
    form.querySelectorAll(".prop.is-cur").forEach((one) => one.id !== current && one.classList.remove("is-cur"));
    const one = here();
    if (!one) return one;
    one.classList.add("is-cur");
    const turn = document.getElementById(`r-${one.closest(".hunk")?.dataset.turn}`);
    document.querySelectorAll(".tree--turns [aria-current]").forEach((link) => link.removeAttribute("aria-current"));
    if (turn) turn.setAttribute("aria-current", "true");
    return one;
  };

  /* Below the bars that stick, and whole where it fits. */
  const show = (one) => {
    const bars = [".top", ".bar"].reduce((sum, name) => sum + document.querySelector(name).offsetHeight, 0);
    const head = one.closest(".hunk") ? one.closest(".hunk").querySelector(".hunk__h").offsetHeight : 0;
    const top = bars + head + 12;
    const bottom = window.innerHeight - document.querySelector(".keys").offsetHeight - 12;
    const box = one.getBoundingClientRect();
    if (box.top < top || box.height > bottom - top) window.scrollBy(0, box.top - top);
    else if (box.bottom > bottom) window.scrollBy(0, box.bottom - bottom);
  };

  const select = (one) => {
    if (!one) return;
    current = one.id;
    mark();
    one.focus({ preventScroll: true });
    show(one);
  };

  /* From the current proposal on; from the first that can be seen, where none is current. After the last that is
     undecided comes the first. */
  const step = (by, wanted) => {
    const all = proposals();
    const at = all.indexOf(here());
    if (at < 0) return select(all.find((one) => one.getBoundingClientRect().bottom > 160 && wanted(one)));
    const rest = by > 0 ? all.slice(at + 1) : all.slice(0, at).reverse();
    const next = rest.find(wanted);
    const later = document.querySelector("#later a");
    if (next) select(next);
    else if (by > 0 && later) later.click();
    else if (wanted === undecided) select(all.find(wanted));
    return undefined;
  };

  /* Decisions go out one after the other, each with its own button's value, however fast they are made. */
  const send = (button) => {
    if (!window.htmx) return form.submit();
    window.htmx.ajax("POST", form.action, {
      source: form,
      swap: "none",
      values: { [button.name]: button.value },
    });
    return undefined;
  };

  const press = (name, scope) => {
    const button = scope?.querySelector(`button[name="${name}"]`);
    if (button) send(button);
    return Boolean(button);
  };

  const decide = (name) => {
    const one = here();
    if (!one) return step(1, undecided);
    if (press(name, one)) {
      one.removeAttribute("data-open"); /* until the answer says how it stands */
      step(1, undecided);
      moved = current !== one.id;
    }
    return undefined;
  };

  const openFold = () => {
    let near = here()?.previousElementSibling;
    while (near && !near.matches(".fold, .staying")) near = near.matches(".prop") ? null : near.previousElementSibling;
    if (!near) return;
    if (near.matches(".staying")) near.open = !near.open;
    else near.querySelector("a").click();
  };

  const keys = {
    j: () => step(1, () => true),
    k: () => step(-1, () => true),
    n: () => step(1, undecided),
    a: () => decide("approve"),
    x: () => decide("reject"),
    A: () => {
      moved = press("approve_turn", here()?.closest(".hunk"));
    },
    u: () => send({ name: "undo", value: "1" }),
    o: openFold,
    "?": () => help.showModal(),
  };

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input:not([type=checkbox]), textarea, select, [contenteditable], dialog");
    if (typing || event.ctrlKey || event.altKey || event.metaKey || !Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  });

  document.querySelectorAll("[data-key]").forEach((button) => {
    button.hidden = false;
    button.addEventListener("click", () => keys[button.dataset.key]());
  });

  /* A button that is pressed does the same as its key. */
  form.addEventListener("submit", (event) => {
    if (!event.submitter?.name) return;
    event.preventDefault();
    send(event.submitter);
  });

  form.addEventListener("click", (event) => {
    const one = event.target.closest(".prop");
    if (one && one.id !== current) {
      current = one.id;
      mark();
    }
    /* A button in a turn's head decides; it does not fold the turn. */
    if (event.target.closest("summary button")) event.stopPropagation();
  });

  /* What is on the page already is not loaded again. */
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="?"][href*="#"]');
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const there = document.getElementById(link.hash.slice(1));
    if (!there) return;
    event.preventDefault();
    window.history.pushState(null, "", link.hash);
    const hunk = there.closest(".hunk");
    if (hunk) hunk.open = true;
    if (there.matches(".prop")) select(there);
    else there.scrollIntoView();
  });

  /* What is current stays so when the server's answer replaces it. */
  const settle = () => {
    const lost = document.activeElement === document.body;
    const one = mark();
    if (one && lost) one.focus({ preventScroll: true });
  };
  document.addEventListener("htmx:oobAfterSwap", settle);
  const failed = () => {
    const fault = document.getElementById("fault");
    fault.textContent = "No answer came, so this was perhaps not decided. Load the page again to see how it stands.";
    fault.classList.add("banner");
  };
  document.addEventListener("htmx:responseError", failed);
  document.addEventListener("htmx:sendError", failed);
  document.addEventListener("decided", () => {
    settle();
    if (moved && here() && !undecided(here())) step(1, undecided);
    moved = false;
  });

  const target = window.location.hash && document.getElementById(window.location.hash.slice(1));
  if (target && target.matches(".prop")) select(target);
})();
