/* The token map as a way through the session: pointing or moving the slider names an entry, a click or Enter goes there.
   Without this script the slider's form goes to the chosen entry. */
(() => {
  "use strict";

  const MARGIN = 3;
  const KEPT = 500;

  /* The number of the entry to which the focused slider was moved, before its map is drawn again. */
  let chosen = "";

  const navigate = (part) => {
    const svg = part.querySelector("svg.map");
    const form = part.querySelector("[data-place]");
    if (!form || svg.classList.contains("is-navigable")) return;
    const range = form.querySelector("[type=range]");
    const name = form.querySelector("output");
    const frame = svg.querySelector(".map__place");
    const start = {
      number: range.value,
      name: name.textContent,
      previous_turn: range.dataset.previous,
      next_turn: range.dataset.next,
      top: Number(frame.getAttribute("y")) + 2,
      height: Math.max(0, Number(frame.getAttribute("height")) - 4),
    };
    const known = new Map();
    /* What is to be shown, and whether a request is under way. */
    let wanted = null;
    let isAsking = false;

    const show = (place) => {
      range.value = place.number;
      range.setAttribute("aria-valuetext", place.name);
      range.dataset.previous = place.previous_turn;
      range.dataset.next = place.next_turn;
      name.textContent = place.name;
      frame.setAttribute("y", place.height ? place.top - 2 : 0);
      frame.setAttribute("height", place.height ? place.height + 4 : 0);
    };

    const place = async (query) => {
      const view = new URLSearchParams(new FormData(form));
      view.delete("number");
      const address = `${form.action}?${view}&${query}`;
      if (!known.has(address)) {
        const response = await fetch(address, { headers: { Accept: "application/json" } });
        if (!response.ok) throw new Error(`The place was answered with ${response.status}`);
        if (known.size > KEPT) known.clear();
        known.set(address, await response.json());
      }
      return known.get(address);
    };

    /* One request at a time: of the places wanted meanwhile, only the last is asked for. */
    const ask = async (query) => {
      wanted = query;
      if (isAsking) return;
      isAsking = true;
      try {
        for (let asked = null; wanted !== null && wanted !== asked; ) {
          asked = wanted;
          const found = await place(asked);
          if (wanted === asked) show(found);
        }
      } catch (fault) {
        name.textContent = "The server does not answer: no entry can be named";
      } finally {
        isAsking = false;
      }
    };

    const byNumber = (number) => `number=${number}`;
    const go = async (query) => {
      try {
        /* A link, so that a page that shows the entry already can go there itself. */
        const link = document.createElement("a");
        link.href = (await place(query)).address;
        document.body.append(link);
        link.click();
        link.remove();
      } catch (fault) {
        name.textContent = "The server does not answer: this page stays where it is";
      }
    };

    const query = (event) => {
      const box = svg.getBoundingClientRect();
      const { width, height } = svg.viewBox.baseVal;
      const x = Math.floor(((event.clientX - box.left) / box.width) * width) - MARGIN;
      const y = Math.floor(((event.clientY - box.top) / box.height) * height) - MARGIN;
      return `x=${x - (x % 3)}&y=${y - (y % 10)}`;
    };
    svg.classList.add("is-navigable");
    svg.addEventListener("pointermove", (event) => ask(query(event)));
    svg.addEventListener("pointerleave", () => {
      wanted = null;
      show(start);
    });
    svg.addEventListener("click", (event) => go(query(event)));

    range.addEventListener("input", () => ask(byNumber(range.value)));
    range.addEventListener("keydown", (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      if (event.key === "Enter") {
        event.preventDefault();
        go(byNumber(range.value));
        return;
      }
      const turn = { PageUp: range.dataset.previous, PageDown: range.dataset.next }[event.key];
      if (!turn) return;
      event.preventDefault();
      range.value = turn;
      ask(byNumber(turn));
    });
    if (range === document.activeElement && chosen) ask(byNumber(chosen));
  };

  const navigateAll = () => document.querySelectorAll("[data-map]").forEach(navigate);
  document.addEventListener("DOMContentLoaded", navigateAll);

  /* The map of a session that grows is drawn again. */
  document.addEventListener("htmx:wsBeforeMessage", () => {
    const active = document.activeElement;
    chosen = active && active.matches("[data-place] [type=range]") ? active.value : "";
  });
  document.addEventListener("htmx:wsAfterMessage", navigateAll);
  document.addEventListener("htmx:afterSettle", navigateAll);
})();
