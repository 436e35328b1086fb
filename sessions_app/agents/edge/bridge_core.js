/**
 * What the bridges for all agents share: the requests to Redline, and a question from its beginning to its end.
 *
 * An installed bridge is one file: `redline connect` puts this text in place of the import of it, without the word
 * `export`, and fills in CONNECTION. It is plain JavaScript, so that a bridge in TypeScript can contain it as well. The
 * protocol is described in Redline's docs/handshake.md.
 *
 * A bridge fails open. If Redline was never reached, the agent compacts as usual. If Redline was lost while it was
 * waited for, an automatic compaction proceeds, because the agent must be able to continue, and a manual one is
 * cancelled.
 *
 * It needs no package, and sends to this computer only.
 */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { request } from "node:http";

export const BRIDGE = 1;
export const CONNECTION = "@CONNECTION@";

const REQUEST_MS = 10_000;
/** Before it answers a question, Redline reads what is new of the session. */
const QUESTION_MS = 60_000;
export const WITHDRAWAL_MS = 2_000;
const ANSWER_BYTES = 256 * 1024 * 1024;
const QUESTIONS = "/api/handshakes";
const LOOPBACK = ["127.0.0.1", "localhost", "[::1]"];

/** Redline answered, but with an error. The messages of these errors are sentences for the person. */
class Refused extends Error {}

/** Redline has the question, but gives no decision. */
class Lost extends Error {}

/** The approved plan cannot be applied. */
export class Unfit extends Error {
  constructor(why) {
    super(`The approved plan was not applied: ${why}.`);
  }
}

// ---- requests to Redline -----------------------------------------------------------------------------------------

export const readJson = (path) => JSON.parse(readFileSync(path, "utf8"));

/** Where Redline is. It is read for each request, because a new start of Redline may change its port. */
export function connection() {
  const { agent, url, token } = readJson(CONNECTION);
  const parsed = new URL(url);
  if (parsed.protocol !== "http:" || !LOOPBACK.includes(parsed.hostname)) throw new Error("it is not on this computer");
  if (typeof token !== "string") throw new Error("the connection file has no token");
  return { agent, url: parsed, token };
}

/** One request and its answer. Neither proxies nor redirects are followed. */
function exchange(method, path, body, ms = REQUEST_MS) {
  return new Promise((resolve, reject) => {
    const { url, token } = connection();
    const content = body === undefined ? "" : JSON.stringify(body);
    const headers = {
      authorization: `Bearer ${token}`,
      "content-type": "application/json",
      "content-length": Buffer.byteLength(content),
    };
    const sent = request(
      // Node.js expects the address of IPv6 without brackets.
      { host: url.hostname.replace(/^\[|\]$/g, ""), port: url.port || 80, path, method, headers, agent: false },
      (response) => {
        const chunks = [];
        let size = 0;
        response.on("data", (chunk) => {
          size += chunk.length;
          if (size > ANSWER_BYTES) sent.destroy(new Error("its answer is too long"));
          chunks.push(chunk);
        });
        response.on("error", reject);
        response.on("end", () => {
          let answer;
          try {
            answer = JSON.parse(Buffer.concat(chunks).toString("utf8"));
          } catch {
            answer = undefined;
          }
          const status = response.statusCode ?? 0;
          if (status >= 200 && status < 300 && typeof answer?.do === "string") resolve(answer);
          else reject(new Refused(plain(answer?.error?.message) || `Redline answered with status ${status}.`));
        });
      },
    );
    const limit = setTimeout(() => sent.destroy(new Error(`it did not answer within ${ms / 1000} s`)), ms);
    sent.on("close", () => clearTimeout(limit));
    sent.on("error", reject);
    sent.end(content);
  });
}

const ask = (fields, ms) => exchange("POST", QUESTIONS, { bridge: BRIDGE, ...fields }, ms);

/** Send a test if Redline has started the agent for one; it notices if the test does not arrive. `describe` returns the
 * fields of a question that differ by agent. */
export async function sendTest(describe) {
  if (process.env.REDLINE_BRIDGE_TEST !== "1") return;
  const fields = { test: true, session: "", reason: "manual", leaf: "", branch: null, preparation: {} };
  try {
    await ask({ ...fields, ...describe() });
  } catch {
    // Redline notices.
  }
}

// ---- small helpers -----------------------------------------------------------------------------------------------

/** A text of Redline as one line without control characters. */
export function plain(text) {
  const unsafe = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]+/g;
  return typeof text === "string" ? text.replace(unsafe, " ").trim().slice(0, 500) : "";
}

/** A number of an answer within its limits, in milliseconds. */
function milliseconds(seconds, otherwise, most, least = 0) {
  const value = typeof seconds === "number" && Number.isFinite(seconds) ? seconds : otherwise;
  return Math.min(Math.max(value, least), most) * 1000;
}

/** The time that is left, as exact as is useful: the status does not change twice a second. */
function left(ms) {
  const seconds = Math.max(0, ms / 1000);
  if (seconds > 90) return `${Math.round(seconds / 60)} min left`;
  return `${Math.ceil(seconds / 10) * 10} s left`;
}

/** Waits; ends early if `stop` is aborted. */
export const pause = (ms, stop) =>
  new Promise((resolve) => {
    const wake = () => {
      clearTimeout(timer);
      stop?.removeEventListener("abort", wake);
      resolve();
    };
    const timer = setTimeout(wake, ms);
    stop?.addEventListener("abort", wake);
    if (stop?.aborted) wake();
  });

/** The branch of a question: how many entries it has, and a digest of their ids. */
export function branchOf(ids) {
  const digest = createHash("sha256");
  for (const id of ids) digest.update(`${id}\n`);
  return { entries: ids.length, sha256: digest.digest("hex") };
}

/** Compactions that were asked about, also by another copy of this bridge: a user and a project may both have one.
 * `empty` is the set to begin with. */
export const knownCompactions = (empty) => (globalThis[Symbol.for("redline.bridge.compactions")] ??= empty);

// ---- one question ------------------------------------------------------------------------------------------------

/**
 * The question about one compaction. The bridge of an agent adds:
 *
 *   fields()                     what is asked, without the version of the bridge
 *   apply(answer)                apply an approved plan. Raises Unfit, also if `answer.do` is unknown
 *   declined(how)                optional: what else happens after `continue` or `stop`
 *   leafNow()                    optional: the leaf that a report names
 *   showNotice(message, level)   show a message: `info`, `success`, `warning` or `error`
 *   showStatus(text)             show what is waited for; undefined: nothing any more
 */
export class Question {
  /** `agent` is what sentences call the agent; `reason` is the reason of the compaction; `stop` is aborted when the
   * person stops it. */
  constructor(agent, reason, stop) {
    this.agent = agent;
    this.reason = reason;
    this.isManual = reason === "manual";
    this.stop = stop;
    this.stopped = new Promise((resolve) => {
      stop.addEventListener("abort", () => resolve(undefined));
      if (stop.aborted) resolve(undefined);
    });
    this.id = undefined;
    this.shown = undefined;
  }

  async notify(message, level = "info") {
    if (message) await this.showNotice(message, level);
  }

  status(text) {
    if (text === this.shown) return;
    this.shown = text;
    this.showStatus(text);
  }

  /** The path of the question. */
  get path() {
    return `${QUESTIONS}/${encodeURIComponent(String(this.id))}`;
  }

  report(outcome, message, ms) {
    return exchange("POST", this.path, { outcome, message, leaf: this.leafNow?.() }, ms);
  }

  async withdraw() {
    const message = `The compaction was stopped in ${this.agent}.`;
    await this.report("withdrawn", message, WITHDRAWAL_MS).catch(() => {});
  }

  /** Report that the plan was not applied. */
  async fail(why) {
    await this.report("failed", why).catch(() => {});
  }

  /** Report an applied plan, which Redline then verifies by the session itself. */
  async confirm() {
    for (let tries = 0; tries < 4; tries++) {
      if (tries) await pause(1_000);
      try {
        const { state, message } = await this.report("applied", "", REQUEST_MS / 4);
        return this.notify(plain(message), state === "failed" ? "error" : "success");
      } catch {
        // Redline may be restarting.
      }
    }
    return this.notify("The approved plan was applied, but Redline was not reached to verify it.", "warning");
  }

  /** Ask, and wait for an answer other than `wait`. undefined: the question was withdrawn. */
  async decision() {
    this.status("Redline: preparing the review");
    const asking = ask(await this.fields(), QUESTION_MS);
    let answer = await Promise.race([asking, this.stopped]);
    if (!answer) {
      // Redline may have the question already: it is withdrawn as soon as its id is known.
      const withdrawn = asking.then(({ id }) => {
        this.id = id;
        return this.withdraw();
      });
      await Promise.race([withdrawn.catch(() => {}), pause(WITHDRAWAL_MS)]);
      return undefined;
    }
    this.id = answer.id;
    let end = Infinity;
    let failingSince;
    while (!this.stop.aborted) {
      if (answer.do !== "wait") return answer;
      const now = performance.now();
      const grace = milliseconds(answer.grace, 30, 600);
      if (failingSince === undefined) {
        const rest = milliseconds(answer.seconds, 0, 7 * 86_400);
        end = Math.min(end, now + rest + grace);
        this.status(`${plain(answer.message)} (${left(rest)})`);
      } else {
        if (now - failingSince >= grace) throw new Lost("Redline does not answer any more.");
        this.status("Redline does not answer. Asking again.");
      }
      if (now >= end) throw new Lost("Redline gave no decision in time.");
      await pause(milliseconds(answer.poll, 1, 60, 0.02), this.stop);
      try {
        answer = (await Promise.race([exchange("GET", this.path), this.stopped])) ?? answer;
        failingSince = undefined;
      } catch {
        failingSince ??= performance.now();
      }
    }
    return this.withdraw();
  }

  /** What the agent does if something went wrong: `compact` or `cancel`. */
  async failOpen(error) {
    const wasAsked = this.id !== undefined;
    const asUsual = !wasAsked || !this.isManual;
    const isKnown = error instanceof Refused || error instanceof Lost || error instanceof Unfit;
    const why = isKnown ? plain(error.message) : wasAsked ? "Redline's bridge failed." : "Redline was not reached.";
    if (wasAsked && !(error instanceof Lost)) await this.fail(isKnown ? why : plain(error.message));
    await this.notify(`${why} ${asUsual ? "Compacting as usual." : "Nothing was compacted."}`, "warning");
    return asUsual ? "compact" : "cancel";
  }

  /** Ask, and do what was decided. Returns the decision: `compact`, `continue`, `stop`, or `apply` of a plan that is
   * applied; `withdrawn` if the person stopped the compaction; what `failOpen` returns if something went wrong. */
  async settle() {
    try {
      const answer = await this.decision();
      if (!answer) return "withdrawn";
      if (["compact", "continue", "stop"].includes(answer.do)) {
        await this.notify(plain(answer.message));
        if (answer.do !== "compact") this.declined?.(answer.do);
      } else {
        await this.apply(answer);
      }
      return answer.do;
    } catch (error) {
      return this.failOpen(error);
    }
  }
}
