/* What a page needs beside htmx to stay live: where to go on after a lost connection, and to say that it is lost. */
(() => {
  "use strict";

  /* A page that a form was answered with becomes one to come back to: its address, by GET. */
  window.history.replaceState(window.history.state, "");

  /* How often an address was told: what is drawn for an earlier one comes too late. */
  let asked = 0;

  /* A socket says first what its page shows already; the server sends what is new. */
  const hello = {
    seq: (element) => ({ after: Number(element.querySelector("[data-upto]").dataset.upto) }),
    query: () => ({ query: window.location.search, asked: ++asked }),
  };

  const lost = (element, isLost) => {
    const banner = document.querySelector(element.dataset.lost || "#lost");
    if (banner) banner.hidden = !isLost;
  };

  /* The sockets that are open, by their elements. */
  const open = new Map();

  const sayHello = (element) => {
    const say = hello[element.dataset.hello];
    if (say) open.get(element).send(JSON.stringify(say(element)), element);
  };

  document.addEventListener("htmx:wsOpen", (event) => {
    open.set(event.target, event.detail.socketWrapper);
    lost(event.target, false);
    sayHello(event.target);
  });
  document.addEventListener("htmx:wsClose", (event) => {
    /* A socket that the server ended for good (the run is over) is not lost. */
    const closed = event.detail.event;
    open.delete(event.target);
    lost(event.target, !closed || closed.code !== 1000);
  });
  document.addEventListener("htmx:wsError", (event) => lost(event.target, true));

  /* Reasoning that a reader has unfolded stays as it is, also where the page of a finished turn shows its beginning. */
  document.addEventListener("htmx:oobBeforeSwap", (event) => {
    const { fragment, target } = event.detail;
    if (target.closest(".thought[open]") && fragment.querySelector(".more")) event.preventDefault();
  });

  /* An address that htmx pushed is what the list shows now. */
  document.addEventListener("htmx:pushedIntoHistory", () => {
    open.forEach((_, element) => {
      if (element.dataset.hello === "query") sayHello(element);
    });
  });

  /* What is put in the place of a part that has the focus takes it over. */
  let focused = null;

  document.addEventListener("htmx:wsBeforeMessage", (event) => {
    const drawn = /^\s*<[^>]* data-asked="(\d+)"/.exec(event.detail.message);
    if (drawn && Number(drawn[1]) !== asked) event.preventDefault();
    const active = document.activeElement;
    focused = active && active.closest("#listing") ? active.getAttribute("href") : null;
  });
  document.addEventListener("htmx:wsAfterMessage", () => {
    if (focused === null || document.activeElement !== document.body) return;
    const links = document.querySelectorAll("#listing a[href]");
    const link = Array.from(links).find((one) => one.getAttribute("href") === focused);
    if (link) link.focus({ preventScroll: true });
  });
})();
