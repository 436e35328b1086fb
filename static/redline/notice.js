/* Proposals that begin to wait: their number at the top of the page and, where the user asked for it, a word by the
   system. The sessions socket brings what is to be said as JSON; everything else on it is for htmx. */
(() => {
  "use strict";

  const SOCKET = "/ws/sessions";
  const CHOICE = "redline.tell";
  const AGAIN_MS = 10000;

  const canTell = "Notification" in window;
  const isOn = () =>
    canTell && Notification.permission === "granted" && window.localStorage.getItem(CHOICE) !== "off";

  const count = (number) => {
    const badge = document.querySelector("#waiting");
    if (!badge) return;
    badge.hidden = !number;
    badge.firstElementChild.textContent = String(number);
  };

  /* Every open tab tells; what has the same tag is shown once. */
  const tell = (said) => {
    if (!isOn()) return;
    const address = new URL(said.address, window.location.origin);
    if (address.origin !== window.location.origin) return;
    const notice = new Notification(said.title, { body: said.words, tag: said.tag });
    notice.addEventListener("click", () => {
      window.focus();
      notice.close();
      if (!window.open(address.href, said.tag)) window.location.assign(address.href);
    });
  };

  /* Whether a message was meant for here. */
  const take = (message) => {
    if (!message.startsWith("{")) return false;
    const told = JSON.parse(message);
    if ("waiting" in told) count(told.waiting);
    if ("tell" in told) tell(told.tell);
    return true;
  };

  document.addEventListener("htmx:wsBeforeMessage", (event) => {
    if (take(event.detail.message)) event.preventDefault();
  });

  /* Pages without the list have no such socket; where the user wants to be told, they listen all the same. */
  let listening = false;
  const listen = () => {
    if (listening || !isOn() || document.querySelector(`[ws-connect="${SOCKET}"]`)) return;
    listening = true;
    const scheme = window.location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(`${scheme}//${window.location.host}${SOCKET}`);
    socket.addEventListener("message", (event) => take(event.data));
    socket.addEventListener("close", () => {
      listening = false;
      window.setTimeout(listen, AGAIN_MS);
    });
  };

  /* The choice, on the page of runs. A browser asks its user only where a button was pressed. */
  const draw = () => {
    const place = document.querySelector("#notice");
    if (!place || !canTell) return;
    const button = place.querySelector("button");
    const isDenied = Notification.permission === "denied";
    place.hidden = false;
    button.hidden = isDenied;
    button.textContent = isOn() ? "Stop telling me in this browser" : "Tell me in this browser";
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
  });
})();
