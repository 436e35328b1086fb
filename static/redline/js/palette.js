/* The palette: sessions by their titles, what can be done on this page, pages, and then the search in texts. The server
   finds sessions and pages; the actions are the buttons of the page, and `#` are its turns. */
(() => {
  "use strict";

  const WAIT_MS = 120;
  const MOST = 8;
  const ACTIONS = "main :is(a.button, button.button, .menu__item)";
  const TURNS = "main [data-turn]";

  const palette = document.getElementById("palette");
  const jump = document.getElementById("jump");
  const field = palette.querySelector("input");
  const found = document.getElementById("palette-found");

  if (/Mac|iP/.test(navigator.platform)) {
    jump.querySelector("kbd").textContent = "⌘K";
    palette.querySelector("[data-search-key] kbd").textContent = "⌘↵";
  }

  const typed = () => field.value.trim();
  const bare = () => typed().replace(/^[>#]\s*/, "");

  /* What an element says, without the keys that it names. */
  const wordsOf = (element) => {
    const copy = element.cloneNode(true);
    copy.querySelectorAll("kbd, svg").forEach((part) => part.remove());
    return (copy.textContent.trim() || element.ariaLabel || "").replace(/\s+/g, " ");
  };
  const has = (words) => words.toLowerCase().includes(bare().toLowerCase());

  const isOffered = (element) => !element.disabled && (element.offsetParent || element.closest("[popover]"));

  /* The elements of the page that match, by what they say: the first of each. */
  const matching = (css) => {
    const all = Array.from(document.querySelectorAll(css)).filter(isOffered);
    const named = new Map(all.reverse().map((element) => [wordsOf(element), element]));
    return Array.from(named).reverse().filter(([words]) => words && has(words)).slice(0, MOST);
  };

  const row = ([words, element]) => {
    const option = document.createElement("div");
    option.className = "palette__row";
    option.role = "option";
    const name = document.createElement("span");
    name.className = "palette__name";
    name.textContent = words;
    const key = document.createElement("small");
    key.textContent = element.dataset.key || "";
    option.append(document.createElement("span"), name, key);
    option.addEventListener("click", () => {
      palette.close();
      element.click();
    });
    return option;
  };

  const options = () => Array.from(found.querySelectorAll("[role=option]"));
  const current = () => found.querySelector('[aria-selected="true"]');

  const choose = (option) => {
    current()?.setAttribute("aria-selected", "false");
    if (!option) return field.removeAttribute("aria-activedescendant");
    option.setAttribute("aria-selected", "true");
    option.scrollIntoView({ block: "nearest" });
    return field.setAttribute("aria-activedescendant", option.id);
  };

  const step = (by) => {
    const all = options();
    choose(all[(all.indexOf(current()) + by + all.length) % all.length]);
  };

  /* Actions or turns into their place among what the server sent. */
  const complete = (css, heading) => {
    const group = found.querySelector("[data-actions]");
    const rows = matching(css).map(row);
    group.append(...rows);
    group.hidden = !rows.length;
    group.firstElementChild.textContent = heading;
    options().forEach((option, number) => {
      option.id = `palette-${number}`;
      option.setAttribute("aria-selected", "false");
    });
    choose(options()[0]);
  };

  /* A response that comes after another one was requested is not shown. Enter that is pressed before it opens it. */
  let asked = 0;
  let isAwaited = false;
  let opensNext = false;
  const load = async () => {
    const mine = ++asked;
    isAwaited = true;
    const only = { ">": [ACTIONS, "On this page"], "#": [TURNS, "Turns of this session"] }[typed()[0]];
    const address = `${found.dataset.source}?q=${encodeURIComponent(typed())}`;
    const answer = await fetch(address, { headers: { "HX-Request": "true" } }).catch(() => null);
    if (mine !== asked) return;
    isAwaited = false;
    found.innerHTML = answer?.ok ? await answer.text() : "";
    if (!found.querySelector("[data-actions]")) {
      found.textContent = "Redline does not answer.";
      return;
    }
    if (only) found.querySelectorAll("[role=group]:not([data-actions])").forEach((group) => group.remove());
    complete(...(only || [ACTIONS, "On this page"]));
    if (opensNext) current()?.click();
    opensNext = false;
  };

  let waiting = 0;
  field.addEventListener("input", () => {
    asked += 1; // a response to what was typed before is not shown either
    isAwaited = true;
    window.clearTimeout(waiting);
    waiting = window.setTimeout(load, WAIT_MS);
  });

  const open = () => {
    if (palette.open) return;
    palette.showModal();
    field.select();
    load();
  };

  const keys = {
    ArrowDown: () => step(1),
    ArrowUp: () => step(-1),
    Enter: () => {
      if (isAwaited) opensNext = true;
      else current()?.click();
    },
  };

  palette.addEventListener("keydown", (event) => {
    event.stopPropagation();
    const searches = event.key === "Enter" && (event.ctrlKey || event.metaKey);
    if (!searches && !Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    if (searches) field.form.submit();
    else keys[event.key]();
  });
  palette.addEventListener("click", ({ target }) => {
    if (target === palette) palette.close();
  });
  palette.addEventListener("close", () => {
    opensNext = false;
  });

  jump.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    open();
  });
  window.addEventListener("keydown", (event) => {
    if (event.key !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
    event.preventDefault();
    open();
  });
})();
