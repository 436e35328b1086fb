/* An open page of a session follows what its agent appends. At the end of the page new entries appear; elsewhere a link
   says how many there are. The page is never scrolled, unless the link is followed. */
(() => {
  "use strict";

  const NEAR_END = 160;

  const text = document.querySelector("[data-follows]");
  if (!text) return;
  let socket = null;

  const sayHello = () => {
    const { view, last, count, from, to } = text.dataset;
    if (!socket) return;
    const { drawn } = document.getElementById("extent").dataset;
    const numbers = { count: Number(count), from: Number(from), to: Number(to) };
    socket.send(JSON.stringify({ view, last: decodeURIComponent(last), drawn, ...numbers }), text);
  };
  const isAtEnd = () => {
    const { scrollHeight } = document.documentElement;
    return window.scrollY + window.innerHeight >= scrollHeight - NEAR_END;
  };
  /* Between what the page shows and the new entries there may be others: then the link leads to another page. */
  const isComplete = () => !text.querySelector("#later");

  let isLoading = false;
  const load = async (link) => {
    if (isLoading) return;
    isLoading = true;
    const { href } = link;
    const { last, count } = link.dataset;
    const before = text.querySelector("#end").previousElementSibling;
    try {
      await window.htmx.ajax("GET", href, { target: "#end", swap: "beforebegin" });
      if (text.querySelector("#end").previousElementSibling === before) return;
      Object.assign(text.dataset, { last, count, to: count });
      link.remove();
      sayHello();
    } finally {
      isLoading = false;
    }
  };

  document.addEventListener("htmx:wsOpen", (event) => {
    if (event.target !== text) return;
    socket = event.detail.socketWrapper;
    sayHello();
  });
  document.addEventListener("htmx:wsClose", (event) => {
    if (event.target === text) socket = null;
  });
  document.addEventListener("htmx:wsAfterMessage", (event) => {
    const link = text.querySelector("[data-newer]");
    if (event.target === text && link && isAtEnd() && isComplete()) load(link);
  });
  text.addEventListener("click", async (event) => {
    const link = event.target.closest("[data-newer]");
    if (!link || !isComplete() || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const before = text.querySelector("#end").previousElementSibling;
    await load(link);
    const first = before && before.nextElementSibling;
    if (first) first.scrollIntoView({ block: "start" });
  });
})();
