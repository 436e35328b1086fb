/* What htmx leaves to a live page: it continues where it was after a lost connection, and says that it is lost. */
(() => {
  "use strict";

  /* The response to a form becomes a page to come back to: its address is loaded with GET. */
  window.history.replaceState(window.history.state, "");

  /* Counts the addresses sent to the server: a list that was drawn for an earlier one comes too late. */
  let asked = 0;

  /* The first message of a socket says what its page already shows; the server sends what is new. */
  const hello = {
    seq: (element) => ({ after: Number(element.querySelector("[data-upto]").dataset.upto) }),
    query: () => ({ query: window.location.search, asked: ++asked }),
  };

  /* The open sockets, by their elements, and those that are lost. */
  const open = new Map();
  const gone = new Map();

  const lost = (element, isLost) => {
    const banner = document.querySelector(element.dataset.lost || "#lost");
    if (!banner || banner.hidden === !isLost) return;
    banner.hidden = !isLost;
    const since = banner.querySelector("[data-since]");
    if (since) since.textContent = ` since ${new Date().toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })}`;
  };
  document.getElementById("reconnect").addEventListener("click", () => {
    gone.forEach((socket) => socket.reconnect());
  });

  const sayHello = (element) => {
    const say = hello[element.dataset.hello];
    if (say) open.get(element).send(JSON.stringify(say(element)), element);
  };

  document.addEventListener("htmx:wsOpen", (event) => {
    open.set(event.target, event.detail.socketWrapper);
    gone.delete(event.target);
    lost(event.target, false);
    sayHello(event.target);
  });
  document.addEventListener("htmx:wsClose", (event) => {
    /* A socket that the server closed for good, because the run is over, is not lost. */
    const closed = event.detail.event;
    const isLost = !closed || closed.code !== 1000;
    open.delete(event.target);
    if (isLost) gone.set(event.target, event.detail.socketWrapper);
    lost(event.target, isLost);
  });
  document.addEventListener("htmx:wsError", (event) => lost(event.target, true));

  /* A request without an answer: it is said until that request, or another that a person made, is answered. What the
     page requests by itself, such as the parts that it polls, must not hide it. The review has its own words. */
  const byPerson = ({ triggeringEvent }) => /^(click|submit|change|input)$/.test(triggeringEvent?.type);
  const addressOf = ({ verb, path }) => `${verb} ${path}`;
  let unanswered = "";
  const sayUnanswered = (address) => {
    unanswered = address;
    document.getElementById("unanswered").hidden = !address || Boolean(document.getElementById("review"));
  };
  document.addEventListener("htmx:sendError", ({ detail }) => sayUnanswered(addressOf(detail.requestConfig)));
  document.addEventListener("htmx:afterOnLoad", ({ detail: { requestConfig } }) => {
    if (byPerson(requestConfig) || addressOf(requestConfig) === unanswered) sayUnanswered("");
  });

  /* A form without htmx would lead to the browser's own page about a server that is gone. */
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!gone.size || form.method !== "post" || form.matches("[hx-post]")) return;
    event.preventDefault();
    sayUnanswered(`post ${form.action}`);
  });

  /* A request that was answered with a page about a failure: what that says is said here. The review has its own words. */
  const refused = document.getElementById("refused");
  document.addEventListener("htmx:responseError", ({ detail }) => {
    if (document.getElementById("review")) return;
    const page = new DOMParser().parseFromString(detail.xhr.responseText, "text/html");
    const words = (css) => page.querySelector(`main ${css}`)?.textContent.replace(/\s+/g, " ").trim() || "";
    /* The page of the form itself has an alert; the page about a failure has a title. */
    const alert = words("[role=alert]");
    refused.querySelector("[data-heading]").textContent = `${(!alert && words("h1")) || "This was refused"}.`;
    refused.querySelector("[data-message]").textContent = alert || words(".empty p");
    refused.hidden = false;
  });
  document.addEventListener("htmx:beforeRequest", ({ detail }) => {
    if (byPerson(detail.requestConfig)) refused.hidden = true;
  });
  document.getElementById("reload").addEventListener("click", () => window.location.reload());

  /* Reasoning that a reader has opened stays open, although the page of a finished turn shows only its beginning. */
  document.addEventListener("htmx:oobBeforeSwap", (event) => {
    const { fragment, target } = event.detail;
    if (target.closest(".thought[open]") && fragment.querySelector(".more")) event.preventDefault();
  });

  const requestLists = () =>
    open.forEach((_, element) => {
      if (element.dataset.hello === "query") sayHello(element);
    });

  /* The list now shows the address that htmx pushed. */
  document.addEventListener("htmx:pushedIntoHistory", requestLists);

  /* A part that replaces the one with the focus takes the focus over: its link to the same address, or its control with
     the same name. */
  let focused = null;
  const sameIn = ({ part, href, name }) => {
    const all = Array.from(document.querySelectorAll(`#${CSS.escape(part)} :is(a, button, input)`));
    return all.find((one) => (href ? one.getAttribute("href") === href : name && one.name === name));
  };

  /* A list that is drawn again between the press and the release of a button would swallow the click: it is requested
     again afterwards. */
  let isPressed = false;
  let isHeld = false;
  window.addEventListener("pointerdown", () => {
    isPressed = true;
  });
  const release = () => {
    isPressed = false;
    if (isHeld) requestLists();
    isHeld = false;
  };
  ["pointerup", "pointercancel"].forEach((name) => window.addEventListener(name, () => window.setTimeout(release)));

  document.addEventListener("htmx:wsBeforeMessage", (event) => {
    const drawn = /^\s*<[^>]* data-asked="(\d+)"/.exec(event.detail.message);
    if (drawn && isPressed) isHeld = true;
    if (drawn && (isPressed || Number(drawn[1]) !== asked)) event.preventDefault();
    const active = document.activeElement;
    const part = active && active.closest("#listing, [data-redrawn]");
    focused = part && { part: part.id, href: active.getAttribute("href"), name: active.name };
  });
  document.addEventListener("htmx:wsAfterMessage", () => {
    const titled = document.querySelector("[data-title]");
    if (titled) document.title = titled.dataset.title;
    if (!focused || document.activeElement !== document.body) return;
    const same = sameIn(focused);
    if (same) same.focus({ preventScroll: true });
  });
})();
