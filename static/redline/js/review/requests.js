/* The requests of the review: decisions, sent one after the other, each on the page that the last response drew; and
   parts of the page. A decision that gets no answer is kept and sent again. */

export const form = document.getElementById("review");

/* The address of the review, from any page that shows it. */
export const address = form.action.replace(/\/decide$/, "");

const RETRY_MS = 4000;
const groups = document.getElementById("groups");

export class RequestFailed extends Error {
  constructor(what, status) {
    const why = {
      0: "The server did not answer.",
      403: "The server no longer knows this browser: open the address that `redline address` prints.",
    };
    super(`${what} ${why[status] || `The server answered with an error (${status}); see its log.`}`);
  }
}

const message = document.getElementById("message");
let said = "";

export const say = (words) => {
  said = words;
  message.textContent = words;
};

/* What was said about the key before means nothing any more; what the server said stays. */
export const hush = () => {
  if (said && message.textContent === said) message.textContent = "";
  said = "";
};

/* Resolves to the response to an element's request; its status is 0 if none came. */
const responseTo = (element, make) =>
  new Promise((settle) => {
    const done = (event) => {
      if (event.detail.requestConfig.elt !== element) return;
      document.removeEventListener("htmx:afterRequest", done);
      settle(event.detail.xhr);
    };
    document.addEventListener("htmx:afterRequest", done);
    make();
  });

/* htmx rejects a request without a response; its status says so as well. */
const request = (element, verb, address, options) =>
  responseTo(element, () => window.htmx.ajax(verb, address, { source: element, ...options }).catch(() => {}));

/* The response to a refused decision draws what has changed in another window, or says what is wrong. */
const isRefused = (status) => status === 409 || status === 422;
const drewChanges = (response) => response.getResponseHeader("HX-Trigger-After-Settle") !== null;

document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.requestConfig.verb !== "post" || !isRefused(event.detail.xhr.status)) return;
  event.detail.shouldSwap = true;
  event.detail.isError = false;
});

/* ---- banners ------------------------------------------------------------------------------------------ */

const banner = (words, name) => {
  const made = document.getElementById(name).content.cloneNode(true);
  made.querySelector("span").textContent = words;
  document.getElementById("fault").replaceChildren(made);
};

/* Bugs of this page end here too: an error that is thrown on would stop all later keys. */
export const fail = (fault) => {
  if (!(fault instanceof RequestFailed)) console.error(fault);
  banner(fault.message, "unsent");
};

const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

/* Resolves after a while, or when the user wants to try now. */
const nextTry = () =>
  new Promise((settle) => {
    const kept = `${counted(queue.length, "decision")} ${queue.length === 1 ? "is" : "are"} kept in this tab`;
    banner(`Redline does not answer. ${kept} and sent when it is back.`, "kept-decisions");
    const timer = window.setTimeout(settle, RETRY_MS);
    document.querySelector("#fault button").addEventListener("click", () => {
      window.clearTimeout(timer);
      settle();
    });
  });

/* ---- decisions ---------------------------------------------------------------------------------------- */

/* Decisions that wait for a response. `values` gives what is posted when its turn comes, or nothing if it can no
   longer be made; `done` is called when it was, `refused` when another window had decided differently. Then the next
   ones are still made, on what the response drew, except for the undo of the refused one: it was never made. */
const queue = [];
let sending = null;
let settled = () => {};

export const onSettled = (act) => {
  settled = act;
};

/* Called once for each response to a decision, when all of it is drawn: htmx has an event for each element. */
export const onDrawn = (act) =>
  groups.addEventListener("htmx:afterSwap", (event) => {
    if (event.target === groups) act();
  });

const dropUndo = () => {
  let depth = 0;
  const at = queue.findIndex(({ undoes }) => {
    depth += undoes ? -1 : 1;
    return depth < 0;
  });
  if (at >= 0) queue.splice(at, 1);
};

const send = async () => {
  const area = document.getElementById("fault");
  const refusals = [];
  try {
    while (queue.length) {
      const { values, done, refused, undoes } = queue[0];
      const posted = values();
      if (!posted) say("One of these was already decided with another one.");
      const response = posted ? await request(groups, "POST", form.action, { swap: "none", values: posted }) : null;
      const status = response ? response.status : 200;
      if (status === 0) {
        await nextTry();
        continue;
      }
      if (isRefused(status) && !drewChanges(response)) break;
      if (!isRefused(status) && status !== 200) throw new RequestFailed("This decision may not have been saved.", status);
      queue.shift();
      if (isRefused(status)) {
        refusals.push(...area.children);
        if (!undoes) dropUndo();
        refused?.();
      } else if (posted) done?.();
    }
  } catch (fault) {
    fail(fault);
  } finally {
    const behind = queue.length - 1;
    queue.length = 0;
    sending = null;
    area.prepend(...refusals);
    settled();
    if (behind > 0) say(`${behind} more decision${behind === 1 ? " was" : "s were"} not sent.`);
  }
};

export const decision = (values, how = {}) => {
  queue.push({ values, ...how });
  sending = sending || Promise.resolve().then(send);
};

export const isSending = () => sending !== null;

export const allSent = async () => {
  while (sending) await sending;
};

/* The browser asks before the page is left with decisions that are not sent. */
window.addEventListener("beforeunload", (event) => {
  if (queue.length) event.preventDefault();
});

/* ---- parts of the page -------------------------------------------------------------------------------- */

/* Loads a part of the page into an element, or to where the element's attributes say. */
export const load = async (element, address, how = {}) => {
  const { status } = await request(element, "GET", address, how);
  if (status !== 200) throw new RequestFailed("This part of the review could not be loaded.", status);
  /* htmx would see the links in it a moment later only: a key that presses one now would leave the page. */
  window.htmx.process(form);
};

/* Links that are gone because their parts were loaded. */
const followed = new WeakSet();

/* Gives what loads the part that a link leads to: earlier decisions come first, and a response may draw the link again. */
const following = (before) => {
  const place = before.closest("[id]")?.id;
  const { side } = before.dataset;
  const same = side ? `a[data-side="${side}"]` : `a[hx-get="${CSS.escape(before.getAttribute("hx-get"))}"]`;
  return async () => {
    await allSent();
    const link = before.isConnected ? before : document.getElementById(place)?.querySelector(same);
    if (link) {
      await load(link, link.getAttribute("hx-get"));
      followed.add(before).add(link);
    } else if (!followed.has(before)) {
      say("What this led to is no longer on the page.");
    }
  };
};

export const follow = (link) => following(link)();

/* htmx drops a request whose element is gone when its turn comes, and with it all that wait behind: a pressed link waits
   among the keys instead. */
export const onFollowed = (act) =>
  form.addEventListener("htmx:confirm", (event) => {
    const { elt, triggeringEvent } = event.detail;
    if (triggeringEvent?.type !== "click") return;
    event.preventDefault();
    act(following(elt));
  });
