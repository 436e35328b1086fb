/* What a page needs beside htmx to stay live: where to go on after a lost connection, and to say that it is lost. */
(() => {
  "use strict";

  /* A socket says first what its page shows already; the server sends what is new. */
  const hello = {
    seq: (element) => {
      const rows = element.querySelectorAll("[data-seq]");
      return { after: rows.length ? Number(rows[rows.length - 1].dataset.seq) : 0 };
    },
    query: () => ({ query: window.location.search }),
  };

  const lost = (element, isLost) => {
    const banner = document.querySelector(element.dataset.lost || "#lost");
    if (banner) banner.hidden = !isLost;
  };

  document.addEventListener("htmx:wsOpen", (event) => {
    const element = event.target;
    lost(element, false);
    const say = hello[element.dataset.hello];
    if (say) event.detail.socketWrapper.send(JSON.stringify(say(element)), element);
  });
  document.addEventListener("htmx:wsClose", (event) => {
    /* A socket that the server ended for good (the run is over) is not lost. */
    const closed = event.detail.event;
    lost(event.target, !closed || closed.code !== 1000);
  });
  document.addEventListener("htmx:wsError", (event) => lost(event.target, true));

  /* An address that htmx pushed is what the list shows now. */
  document.addEventListener("htmx:pushedIntoHistory", () => {
    document.querySelectorAll("[data-hello='query']").forEach((element) => {
      element.dispatchEvent(new CustomEvent("redline:address"));
    });
  });
})();
