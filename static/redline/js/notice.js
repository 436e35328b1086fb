/* New proposals and agents that wait: their number, a banner and the title at the top of each page and, if the user
   wants it, a notification of the system. The sessions socket brings them as JSON; everything else on it is for htmx. */
(() => {
  "use strict";

  const SOCKET = "/ws/sessions";
  const CHOICE = "redline.tell";
  const AGAIN_MS = 10000;

  const canNotify = "Notification" in window;
  const isOn = () =>
    canNotify && Notification.permission === "granted" && window.localStorage.getItem(CHOICE) !== "off";

  const showCount = (number) => {
    const badge = document.querySelector("#waiting");
    if (!badge) return;
    badge.hidden = !number;
    badge.firstElementChild.textContent = String(number);
    showWaiting();
  };

  /* Every open tab notifies; the system shows notifications with the same tag once. */
  const notify = ({ address: path, title, words, tag }) => {
    if (!isOn()) return;
    const address = new URL(path, window.location.origin);
    if (address.origin !== window.location.origin) return;
    const notice = new Notification(title, { body: words, tag });
    notice.addEventListener("click", () => {
      window.focus();
      notice.close();
      if (!window.open(address.href, tag)) window.location.assign(address.href);
    });
  };

  /* What happened before a socket was open, or while it was lost, did not arrive. */
  const lookAgain = () => window.htmx.trigger("#agents-waiting", "asked");

  /* Whether a message was for this script. */
  const receive = (message) => {
    if (!message.startsWith("{")) return false;
    const news = JSON.parse(message);
    if ("waiting" in news) showCount(news.waiting);
    if ("asked" in news) lookAgain();
    if ("tell" in news) notify(news.tell);
    return true;
  };

  const minutes = (milliseconds) => {
    const seconds = Math.max(0, Math.round(milliseconds / 1000));
    return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
  };
  const countTime = () => {
    const now = Date.now();
    document.querySelectorAll("[data-waiting-since]").forEach((place) => {
      place.textContent = `asked ${minutes(now - new Date(place.dataset.waitingSince))} ago`;
    });
    document.querySelectorAll("[data-ends]").forEach((place) => {
      place.textContent = `, ${minutes(new Date(place.dataset.ends) - now)} left`;
    });
  };

  /* How much waits, and who, in the title of the page: also after htmx has drawn one of them again. */
  const COUNT = /^\(\d+\)\s+/;
  const WAITS = /^.* waits until \d+:\d+ · /;
  const showWaiting = () => {
    const first = document.querySelector("[data-waits]");
    const badge = document.querySelector("#waiting:not([hidden])");
    const bare = document.title.replace(COUNT, "").replace(WAITS, "");
    const count = badge ? `(${badge.firstElementChild.textContent}) ` : "";
    const title = `${count}${first ? `${first.dataset.waits.trim()} · ` : ""}${bare}`;
    if (title !== document.title) document.title = title;
    countTime();
  };

  document.addEventListener("htmx:wsOpen", lookAgain);
  document.addEventListener("htmx:wsBeforeMessage", (event) => {
    if (receive(event.detail.message)) event.preventDefault();
  });

  /* Pages without the list have no such socket, and open one. */
  let listening = false;
  const listen = () => {
    if (listening || document.querySelector(`[ws-connect="${SOCKET}"]`)) return;
    listening = true;
    const scheme = window.location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(`${scheme}//${window.location.host}${SOCKET}`);
    socket.addEventListener("open", lookAgain);
    socket.addEventListener("message", (event) => receive(event.data));
    socket.addEventListener("close", () => {
      listening = false;
      window.setTimeout(listen, AGAIN_MS);
    });
  };

  /* The choice, on the page of runs. A browser asks for permission only after the user pressed a button. */
  const draw = () => {
    const place = document.querySelector("#notice");
    if (!place || !canNotify) return;
    const button = place.querySelector("button");
    const isDenied = Notification.permission === "denied";
    place.hidden = false;
    button.hidden = isDenied;
    button.textContent = isOn() ? "Stop notifying me in this browser" : "Notify me in this browser";
    place.querySelector("[data-denied]").hidden = !isDenied;
    place.querySelector("[data-on]").hidden = !isOn();
  };

  const choose = async () => {
    if (isOn()) {
      window.localStorage.setItem(CHOICE, "off");
    } else {
      await Notification.requestPermission();
      window.localStorage.removeItem(CHOICE);
    }
    draw();
    listen();
  };

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.querySelector("#notice button");
    if (button) button.addEventListener("click", choose);
    draw();
    listen();
    showWaiting();
    window.setInterval(countTime, 1000);
    new MutationObserver(showWaiting).observe(document.querySelector("#agents-waiting"), { childList: true });
  });
  ["htmx:afterSettle", "htmx:wsAfterMessage"].forEach((name) => document.addEventListener(name, showWaiting));
})();
