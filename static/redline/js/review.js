/* The keys of the review. Each of them presses a button or follows a link of the page.

   keys ──▶ one after the other ──▶ cursor, which moves at once ──▶ decisions, sent one after the other,
                                                                     each on the page that the last response drew

   A key that can do nothing says why. A decision that could not be sent is taken back on the page, with those that
   wait behind it. */
(() => {
  "use strict";

  const form = document.getElementById("review");
  if (!form || !window.htmx) return;

  const area = document.getElementById("proposals");
  const help = document.getElementById("help");
  let current = "";
  let moved = false; /* to a proposal that was undecided then; an earlier decision may decide it too */

  const showMessage = (words) => {
    document.getElementById("message").textContent = words;
  };

  /* ---- responses -------------------------------------------------------------------------------------- */

  class RequestFailed extends Error {
    constructor(what, status) {
      const why = {
        0: "The server did not answer.",
        403: "The server no longer knows this browser: open the address that `redline address` prints.",
      };
      super(`${what} ${why[status] || `The server answered with an error (${status}); see its log.`}`);
    }
  }

  /* Waits for the response to a request of an element. Resolves to its status, 0 if none came. */
  const responseStatus = (element, make) =>
    new Promise((settle) => {
      const done = (event) => {
        if (event.detail.requestConfig.elt !== element) return;
        document.removeEventListener("htmx:afterRequest", done);
        settle(event.detail.xhr.status);
      };
      document.addEventListener("htmx:afterRequest", done);
      make();
    });

  /* Requests come from the area, which stays on the page, and post the form around it. htmx rejects a request without
     a response; `responseStatus` resolves to its status. */
  const request = (verb, address, values) =>
    responseStatus(area, () => window.htmx.ajax(verb, address, { source: area, swap: "none", values }).catch(() => {}));

  /* The response to a refused decision draws what has changed, or says what is wrong. */
  const isRefused = (status) => status === 409 || status === 422;

  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.requestConfig.verb !== "post" || !isRefused(event.detail.xhr.status)) return;
    event.detail.shouldSwap = true;
    event.detail.isError = false;
  });

  /* ---- decisions -------------------------------------------------------------------------------------- */

  /* Decisions that wait for a response, each as a function that finds its button once it is sent. */
  const queue = [];
  let sending = null;

  const send = async () => {
    try {
      while (queue.length) {
        const button = queue[0]();
        const status = button ? await request("POST", form.action, { [button.name]: button.value }) : 200;
        if (!button) showMessage("One of these was already decided with another one.");
        if (isRefused(status)) break;
        if (status !== 200) throw new RequestFailed("This decision may not have been saved.", status);
        queue.shift();
      }
    } catch (fault) {
      fail(fault);
    } finally {
      settle();
    }
  };

  const reopenUnsent = () => {
    const unsent = Array.from(form.querySelectorAll(".proposal[data-sent]"));
    unsent.forEach((one) => {
      one.removeAttribute("data-sent");
      one.setAttribute("data-open", "");
    });
    if (unsent.length) select(unsent[0]);
  };

  /* After the last response. A decision that was refused or got no response ends the queue; the rest is not sent. */
  const settle = () => {
    const behind = queue.length - 1;
    queue.length = 0;
    sending = null;
    reopenUnsent();
    if (behind > 0) showMessage(`${behind} more decision${behind === 1 ? " was" : "s were"} not sent.`);
    const one = currentProposal();
    if (moved && one && !isUndecided(one)) press(() => nextUndecided());
    moved = false;
  };

  const decision = (find) => {
    queue.push(find);
    sending = sending || Promise.resolve().then(send);
  };

  const allSent = async () => {
    while (sending) await sending;
  };

  const buttonOf = (scope, name) => scope?.querySelector(`button[name="${name}"]`);

  /* ---- keys, one after the other ---------------------------------------------------------------------- */

  let turn = Promise.resolve();
  let failures = 0;

  const press = (act) => {
    const before = failures;
    turn = turn.then(() => (failures === before ? act() : undefined)).catch(fail);
  };

  /* Bugs of this page end here too: an error that is thrown on would stop all later keys. */
  const fail = (fault) => {
    if (!(fault instanceof RequestFailed)) console.error(fault);
    failures += 1;
    const banner = document.getElementById("unsent").content.cloneNode(true);
    banner.querySelector("span").textContent = fault.message;
    document.getElementById("fault").replaceChildren(banner);
  };

  /* ---- the cursor ------------------------------------------------------------------------------------- */

  const proposals = () => Array.from(form.querySelectorAll(".proposal"));
  const visibleProposals = () => proposals().filter((one) => one.offsetParent);
  const currentProposal = () => document.getElementById(current);
  const isUndecided = (one) => one.hasAttribute("data-open");

  const mark = () => {
    form.querySelectorAll(".proposal.is-current").forEach((one) => {
      if (one.id !== current) one.classList.remove("is-current");
    });
    const one = currentProposal();
    if (!one) return one;
    one.classList.add("is-current");
    const link = document.getElementById(`r-${one.closest(".hunk")?.dataset.turn}`);
    document.querySelectorAll(".tree--turns [aria-current]").forEach((other) => other.removeAttribute("aria-current"));
    if (link) link.setAttribute("aria-current", "true");
    return one;
  };

  /* Below the sticky bars, and whole if it fits. */
  const show = (one) => {
    const bars = [".site-header", ".review-bar", ".review-keys"];
    const [header, bar, keysBar] = bars.map((name) => document.querySelector(name).offsetHeight);
    const head = one.closest(".hunk")?.querySelector(".hunk__head").offsetHeight ?? 0;
    const top = header + bar + head + 12;
    const bottom = window.innerHeight - keysBar - 12;
    const box = one.getBoundingClientRect();
    if (box.top < top || box.height > bottom - top) window.scrollBy(0, box.top - top);
    else if (box.bottom > bottom) window.scrollBy(0, box.bottom - bottom);
  };

  const unfold = (hunk) => {
    if (hunk) hunk.querySelector("details").open = true;
  };

  const select = (one) => {
    current = one.id;
    unfold(one.closest(".hunk"));
    mark();
    one.focus({ preventScroll: true });
    show(one);
  };

  /* Loads later proposals below those on the page. Resolves to whether there were any. */
  const loadLater = async () => {
    await allSent();
    const link = document.querySelector("#later a");
    if (!link) return false;
    const status = await responseStatus(link, () => link.click());
    if (status !== 200) throw new RequestFailed("Later proposals could not be loaded.", status);
    return true;
  };

  /* Loads other proposals in the place of those on the page. */
  const load = async (query) => {
    await allSent();
    const status = await request("GET", `?${query}&part=reload`);
    if (status !== 200) throw new RequestFailed("These proposals could not be loaded.", status);
  };

  const step = async (by) => {
    moved = false;
    const all = visibleProposals();
    const at = all.indexOf(currentProposal());
    const next = at < 0 ? all.find((one) => one.getBoundingClientRect().bottom > 160) || all[0] : all[at + by];
    if (next) return select(next);
    if (by > 0 && (await loadLater())) return step(by);
    const earlier = document.querySelector("#earlier a");
    if (by < 0 && earlier) {
      await load(earlier.search.slice(1));
      const last = visibleProposals().pop();
      if (last) return select(last);
    }
    if (!all.length) return showMessage("No proposal on this page is open.");
    return showMessage(by > 0 ? "This is the last proposal." : "This is the first proposal.");
  };

  /* First below the cursor, loading later proposals; then from the top; then the server says where. */
  const nextUndecided = async () => {
    const all = proposals();
    const next = all.slice(all.indexOf(currentProposal()) + 1).find(isUndecided);
    if (next) return select(next);
    if (await loadLater()) return nextUndecided();
    const first = proposals().find(isUndecided);
    if (first) return select(first);
    await allSent();
    const left = Number(document.getElementById("bar").dataset.undecided);
    if (!left) return showMessage("Everything is decided.");
    await load("undecided=1");
    const found = proposals().find(isUndecided);
    if (found) return select(found);
    return showMessage(`${left} more undecided proposals are not shown; a decision on their turn applies to them.`);
  };

  /* ---- what the keys do ------------------------------------------------------------------------------- */

  const stateOf = (one) => one.querySelector(".state").textContent.trim();

  const begin = async () => {
    await nextUndecided();
    const one = currentProposal();
    if (one && isUndecided(one)) showMessage("No proposal was selected: this is the next undecided one.");
  };

  const hide = (one) => {
    one.removeAttribute("data-open"); /* until the response says what was decided */
    one.setAttribute("data-sent", "");
  };

  const advance = async () => {
    const was = current;
    await nextUndecided();
    moved = current !== was;
  };

  const decide = async (name) => {
    const one = currentProposal();
    if (!one) return begin();
    if (one.hasAttribute("data-sent")) return showMessage("This decision is being sent.");
    if (!buttonOf(one, name)) return showMessage(`Nothing to ${name} here: ${stateOf(one)}.`);
    const { id } = one;
    if (isUndecided(one)) hide(one);
    decision(() => buttonOf(document.getElementById(id), name));
    return advance();
  };

  const approveTurn = async () => {
    const hunk = currentProposal()?.closest(".hunk");
    if (!hunk) return begin();
    if (!buttonOf(hunk, "approve_turn")) return showMessage("Nothing is undecided in this turn.");
    const { id } = hunk;
    const all = Array.from(form.querySelectorAll(`.hunk[data-turn="${hunk.dataset.turn}"] .proposal[data-open]`));
    all.forEach(hide);
    decision(() => buttonOf(document.getElementById(id), "approve_turn"));
    return advance();
  };

  const openFold = () => {
    const one = currentProposal();
    let near = one?.previousElementSibling;
    while (near && !near.matches(".fold, .staying")) {
      near = near.matches(".proposal") ? null : near.previousElementSibling;
    }
    if (!near) showMessage(one ? "No entries stay directly above this proposal." : "No proposal is selected.");
    else if (near.matches(".staying")) near.open = !near.open;
    else near.querySelector("a").click();
  };

  const keys = {
    j: () => step(1),
    k: () => step(-1),
    n: nextUndecided,
    a: () => decide("approve"),
    x: () => decide("reject"),
    A: approveTurn,
    u: () => decision(() => document.querySelector('button[name="undo"]')),
    o: openFold,
    "?": () => help.showModal(),
  };

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input:not([type=checkbox]), textarea, select, [contenteditable], dialog");
    if (typing || event.ctrlKey || event.altKey || event.metaKey || !Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    press(keys[event.key]);
  });

  document.querySelectorAll("[data-key]").forEach((button) => {
    button.hidden = false;
    button.addEventListener("click", () => press(keys[button.dataset.key]));
  });

  /* A pressed button waits its turn like a key. */
  form.addEventListener("submit", (event) => {
    const { name, value } = event.submitter || {};
    if (!name) return;
    event.preventDefault();
    decision(() => document.querySelector(`button[name="${name}"][value="${CSS.escape(value)}"]`));
  });

  form.addEventListener("click", (event) => {
    const one = event.target.closest(".proposal");
    if (one && one.id !== current) {
      current = one.id;
      mark();
    }
  });

  /* A link to something on the page does not load it again. */
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="?"][href*="#"]');
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const there = document.getElementById(link.hash.slice(1));
    if (!there) return;
    event.preventDefault();
    window.history.pushState(null, "", link.hash);
    unfold(there.closest(".hunk"));
    if (there.matches(".proposal")) select(there);
    else there.scrollIntoView();
  });

  /* The current proposal stays current when a response replaces it. */
  document.addEventListener("htmx:oobAfterSwap", () => {
    const lost = document.activeElement === document.body;
    const one = mark();
    if (one && lost) one.focus({ preventScroll: true });
  });

  /* The browser asks before the page is left with decisions that are not sent. */
  window.addEventListener("beforeunload", (event) => {
    if (queue.length) event.preventDefault();
  });

  const target = window.location.hash && document.getElementById(window.location.hash.slice(1));
  if (target && target.matches(".proposal")) select(target);
})();
