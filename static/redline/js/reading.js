/* Keys on the page of a session, and copying what an entry is. Each key that cannot act says why. */
(() => {
  "use strict";

  const SAID_MS = 3000;

  const text = document.getElementById("transcript");
  if (!text) return;
  const tools = document.getElementById("entry-tools");
  const like = tools && tools.querySelector("[data-like]");
  const status = document.getElementById("said");

  let forget = 0;
  const say = (words) => {
    status.textContent = words;
    window.clearTimeout(forget);
    forget = window.setTimeout(() => {
      status.textContent = "";
    }, SAID_MS);
  };

  /* ---- the current entry -------------------------------------------------------------------------------------- */

  /* Those of a folded line are not among them until it is opened. */
  const isShown = (entry) => !entry.closest("details:not([open])");
  const entries = () => Array.from(text.querySelectorAll(".entry[id], .band[id]")).filter(isShown);
  let current = null;

  const isBelowTop = (entry) => entry.getBoundingClientRect().bottom > 104;
  const place = () => {
    const all = entries();
    const at = all.indexOf(current);
    return at >= 0 ? at : all.findIndex(isBelowTop) - 0.5;
  };

  const focus = (entry) => {
    current = entry;
    entry.tabIndex = -1;
    entry.focus({ preventScroll: true });
    entry.scrollIntoView({ block: "nearest" });
    offerTools(entry);
  };

  /* A link that htmx has just inserted may not be its own yet. */
  const press = (link) => {
    window.htmx.process(link);
    link.click();
  };

  /* Beyond the last entry are those that are loaded next. */
  const loadLater = () => {
    const link = text.querySelector("#later a");
    if (!link) return false;
    say("Loading later entries");
    press(link);
    return true;
  };
  const openEarlier = () => {
    const link = text.querySelector("[data-earlier]");
    if (link) link.click();
    return Boolean(link);
  };

  const step = (by) => {
    const found = entries()[by > 0 ? Math.floor(place() + 1) : Math.ceil(place() - 1)];
    if (found) return focus(found);
    if (!(by > 0 ? loadLater() : openEarlier())) say(by > 0 ? "This is the last entry" : "This is the first entry");
    return null;
  };

  const turnLinks = () => Array.from(document.querySelectorAll(".sidebar [data-turn]"));
  const turn = (by) => {
    const all = entries();
    const at = place();
    const begins = (entry, number) => entry.classList.contains("entry--user") && (by > 0 ? number > at : number < at);
    const inside = by > 0 ? all.find(begins) : all.findLast(begins);
    if (inside) return focus(inside);
    const shown = all.filter((entry) => entry.classList.contains("entry--user")).map((entry) => entry.id);
    const links = turnLinks();
    const known = links.findLastIndex((link) => shown.includes(link.dataset.turn));
    const first = links.findIndex((link) => shown.includes(link.dataset.turn));
    const here = links.findIndex((link) => link.hasAttribute("aria-current"));
    const link = by > 0 ? links[(known < 0 ? here : known) + 1] : links[(first < 0 ? here + 1 : first) - 1];
    if (link) return link.click();
    return say(by > 0 ? "This is the last turn" : "This is the first turn");
  };

  const open = () => {
    const more = current && current.querySelector(".more");
    if (more) press(more);
    else say(current ? "This entry is shown in full" : "No entry is chosen: j chooses the next one");
  };

  /* ---- copying ------------------------------------------------------------------------------------------------ */

  const offerTools = (entry) => {
    if (!tools || !entry.id || tools.parentElement === entry) return;
    entry.append(tools);
    tools.hidden = false;
    /* The reference of an entry is its quoted id, and is quoted again in an address. */
    if (like) like.href = `${like.dataset.like}${encodeURIComponent(encodeURIComponent(entry.id))}`;
    for (const link of tools.querySelectorAll("[data-from]")) {
      link.href = `${link.dataset.from}${encodeURIComponent(recordedId(entry))}`;
    }
  };

  const address = (entry) => new URL(entry.querySelector("a.ref").href);
  /* The id as it was recorded: that of the element has its control characters escaped. */
  const recordedId = (entry) => {
    const from = address(entry);
    return from.searchParams.get("entry") || decodeURIComponent(from.pathname.split("/entries/").pop());
  };
  const wholeText = async (entry) => {
    const from = address(entry);
    from.pathname += "/text";
    const response = await fetch(from, { headers: { Accept: "text/plain" } });
    if (!response.ok) throw new Error(`The text was answered with ${response.status}`);
    return response.text();
  };
  const copies = {
    link: (entry) => address(entry).href,
    id: (entry) => entry.id,
    text: wholeText,
  };

  const copy = async (kind, entry) => {
    const button = tools.querySelector(`[data-copies="${kind}"]`);
    try {
      await window.navigator.clipboard.writeText(await copies[kind](entry));
    } catch (fault) {
      say(`The ${kind} was not copied`);
      return;
    }
    const words = button.dataset.words || button.textContent;
    button.dataset.words = words;
    button.textContent = "Copied";
    say(`The ${kind} of ${entry.querySelector("a.ref").textContent.trim()} is copied`);
    window.setTimeout(() => {
      button.textContent = words;
    }, SAID_MS);
  };

  const chosen = (act) => () => (current ? act(current) : say("No entry is chosen: j chooses the next one"));

  if (tools && window.navigator.clipboard) {
    tools.addEventListener("click", (event) => {
      const button = event.target.closest("[data-copies]");
      if (button) copy(button.dataset.copies, tools.closest("[id]:not(#entry-tools)"));
    });
    text.addEventListener("pointerover", (event) => {
      const entry = event.target.closest(".entry[id], .band[id]");
      if (entry && !tools.contains(document.activeElement)) offerTools(entry);
    });
  }
  text.addEventListener("focusin", (event) => {
    const entry = event.target.closest(".entry[id], .band[id]");
    if (!entry) return;
    current = entry;
    offerTools(entry);
  });

  /* ---- keys --------------------------------------------------------------------------------------------------- */

  const search = () => {
    const field = document.querySelector(".page input[type=search]") || document.querySelector("input[type=search]");
    if (field) field.focus();
    else say("This page has no search field");
  };
  const compact = () => {
    const link = document.querySelector('.session-head [data-key="c"]');
    if (link) link.click();
    else say("Nothing can be planned for this session");
  };
  const keys = {
    j: () => step(1),
    k: () => step(-1),
    "]": () => turn(1),
    "[": () => turn(-1),
    c: compact,
    y: chosen((entry) => copy("link", entry)),
    o: chosen((entry) => entry.querySelector("a.ref").click()),
    "+": chosen(() => (like ? like.click() : say("Nothing can be planned for this session"))),
    "/": search,
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
    const act = event.key === "Enter" && event.target === current ? open : keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
})();
