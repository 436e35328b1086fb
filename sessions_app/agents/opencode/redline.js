/**
 * Redline's bridge for OpenCode: before a compaction it asks Redline, and waits until the plan is reviewed.
 *
 * `redline connect` installs it and fills in CONNECTION. The protocol is described in Redline's docs/handshake.md.
 *
 * OpenCode marks a compaction by a user message with a part of its own, and then asks its plugins. An approved plan is
 * applied part by part through OpenCode's own interface. A plugin can only keep OpenCode from compacting by ending the
 * run, so the run is ended, the mark is deleted, and a run that was in the middle of a turn is started again with the
 * same user message. OpenCode judges by the last reply whether a context is too long; that reply was made before the
 * plan was applied, so this check is passed over once.
 *
 * It fails open. If Redline was never reached, OpenCode compacts as usual. If Redline was lost while it was waited for,
 * an automatic compaction proceeds, and a manual one is cancelled.
 *
 * It needs no package, reads only the connection file, and sends to this computer only.
 */
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { request } from "node:http";
import { homedir } from "node:os";
import { join } from "node:path";

const BRIDGE = 1;
const CONNECTION = "@CONNECTION@";

/** The oldest version whose interface keeps all that a part has. */
const OLDEST = [1, 18, 33];
/** Commands that end with the run that they started: none could be started again in them. */
const ONE_RUN = ["run", "acp", "github"];
const REQUEST_MS = 10_000;
/** Before it answers a question, Redline reads what is new of the session. */
const QUESTION_MS = 60_000;
const WITHDRAWAL_MS = 2_000;
const NOTICE_MS = 10_000;
/** How long a status stays if nothing replaces it. */
const STATUS_MS = 65_000;
const ANSWER_BYTES = 256 * 1024 * 1024;
const LOOPBACK = ["127.0.0.1", "localhost", "[::1]"];

/** Redline answered, but with an error. The messages of these errors are sentences for the person. */
class Refused extends Error {}

/** Redline has the question, but gives no decision. */
class Lost extends Error {}

/** The approved plan cannot be applied. */
class Unfit extends Error {
  constructor(why) {
    super(`The approved plan was not applied: ${why}.`);
  }
}

// ---- requests to Redline -----------------------------------------------------------------------------------------

/** Where Redline is. It is read for each request, because a new start of Redline may change its port. */
function connection() {
  const { url, token } = JSON.parse(readFileSync(CONNECTION, "utf8"));
  const parsed = new URL(url);
  if (parsed.protocol !== "http:" || !LOOPBACK.includes(parsed.hostname)) throw new Error("it is not on this computer");
  if (typeof token !== "string") throw new Error("the connection file has no token");
  return { url: parsed, token };
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

/** The path of a question. */
const pathOf = (id) => `/api/handshakes/${encodeURIComponent(String(id))}`;

// ---- small helpers -----------------------------------------------------------------------------------------------

/** A text of Redline as one line without control characters. */
function plain(text) {
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
const pause = (ms, stop) =>
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

/** Whether a version is one that can apply plans. */
function canApply(version) {
  const numbers = /^(\d{1,6})\.(\d{1,6})\.(\d{1,6})/.exec(version)?.slice(1).map(Number);
  const at = numbers?.findIndex((number, place) => number !== OLDEST[place]);
  return numbers !== undefined && (at === -1 || numbers[at] > OLDEST[at]);
}

const isMark = (part) => part.type === "compaction";

// ---- the session in OpenCode -------------------------------------------------------------------------------------

/** A session, changed and read through OpenCode's own interface, inside its process. */
class Session {
  constructor(client, id) {
    this.client = client;
    this.id = id;
  }

  /** The document of an answer; `place` is below the session, unless it starts with `//`. Raises Error. */
  async call(method, place, body) {
    const url = place.startsWith("//") ? place.slice(1) : `/session/${this.id}${place}`;
    const headers = { "content-type": "application/json" };
    const { data, response } = await this.client._client.request({ method, url, body, headers });
    if (!response?.ok) throw new Error(`OpenCode answered ${method} ${url} with status ${response?.status}`);
    return data;
  }

  messages() {
    return this.call("GET", "/message");
  }

  /** Whether a run of it goes on. */
  async isBusy() {
    return this.id in (await this.call("GET", "//session/status"));
  }

  async version() {
    return plain((await this.call("GET", "//global/health")).version);
  }

  deletePart({ messageID, id }) {
    return this.call("DELETE", `/message/${messageID}/part/${id}`);
  }

  /** Change a part, or make it again in its place. */
  putPart(part) {
    return this.call("PATCH", `/message/${part.messageID}/part/${part.id}`, part);
  }

  /** Apply all changes of a plan, or none. Raises Unfit. */
  async applyParts(changes) {
    if (!Array.isArray(changes)) throw new Unfit("the approved plan has no parts");
    const known = new Map((await this.messages()).flatMap(({ parts }) => parts.map((part) => [part.id, part])));
    for (const { message, part } of changes) {
      if (known.get(part)?.messageID !== message) throw new Unfit(`the session has no part ${plain(part)} any more`);
    }
    const begun = [];
    try {
      for (const { part, data } of changes) {
        const before = known.get(part);
        begun.push(before);
        if (data === null) await this.deletePart(before);
        else await this.putPart({ ...data, id: part, messageID: before.messageID, sessionID: this.id });
      }
    } catch (error) {
      // A part of a plan was not approved.
      for (const before of begun.reverse()) await this.putPart(before);
      throw new Unfit(plain(error.message));
    }
  }

  /** Start the run again if it was in the middle of a turn: the same user message is sent, without anything new.
   * Returns whether it was. */
  async resume() {
    const messages = await this.messages();
    const user = messages.findLast(({ info }) => info.role === "user")?.info;
    const reply = messages.findLast(({ info }) => info.role === "assistant")?.info;
    const isFinished = reply?.finish && !["tool-calls", "unknown"].includes(reply.finish);
    if (!user || (isFinished && reply.parentID === user.id)) return false;
    const { agent, model, system, tools, format } = user;
    const same = { agent, model, system, tools, format, variant: model?.variant };
    await this.call("POST", "/prompt_async", { messageID: user.id, ...same, parts: [] });
    return true;
  }
}

/** The ids of a session as Redline reads them: messages, each with its parts, a tool's call before its result. */
function idsOf(messages) {
  return messages.flatMap(({ info, parts }) => [
    info.id,
    ...[...parts]
      .sort((one, other) => (one.id < other.id ? -1 : 1))
      .flatMap(({ id, type }) => (type === "tool" && info.role === "assistant" ? [`${id}.call`, id] : [id])),
  ]);
}

/** The path of a session as Redline knows it: its database, and its id. Redline finds it by its id as well. */
function pathOfSession(id) {
  const data = process.env.XDG_DATA_HOME || join(homedir(), ".local", "share");
  const database = join(data, "opencode", "opencode.db");
  return existsSync(database) ? join(database, id) : id;
}

// ---- one question ------------------------------------------------------------------------------------------------

class Question {
  constructor(session, mark) {
    this.session = session;
    /** The part by which OpenCode marks the compaction. */
    this.mark = mark;
    this.reason = mark.auto ? (mark.overflow ? "overflow" : "threshold") : "manual";
    this.isManual = !mark.auto;
    this.honours = "nothing";
    /** Aborted when the run ends, because the person stopped it. */
    this.stopping = new AbortController();
    this.stop = this.stopping.signal;
    this.stopped = new Promise((resolve) => this.stop.addEventListener("abort", () => resolve(undefined)));
    this.id = undefined;
    this.shown = undefined;
  }

  /** Show a message in OpenCode's interface; other clients of its server ignore it. */
  async notify(message, variant = "info", duration = NOTICE_MS) {
    if (!message) return;
    await this.session.client.tui.showToast({ body: { title: "Redline", message, variant, duration } }).catch(() => {});
  }

  status(message) {
    if (message === this.shown) return;
    this.shown = message;
    this.notify(message, "info", STATUS_MS);
  }

  /** The question about the session without the mark. */
  async fields() {
    const messages = await this.session.messages();
    const version = await this.session.version();
    const digest = createHash("sha256");
    const ids = idsOf(messages);
    for (const id of ids) digest.update(`${id}\n`);
    const user = messages.findLast(({ info }) => info.role === "user").info;
    const reply = messages.findLast(({ info }) => info.role === "assistant" && info.finish)?.info;
    this.honours = canApply(version) ? "parts" : "nothing";
    return {
      agent: "opencode",
      version,
      bridge: BRIDGE,
      session: pathOfSession(this.session.id),
      reason: this.reason,
      honours: this.honours,
      leaf: ids.at(-1),
      branch: { entries: ids.length, sha256: digest.digest("hex") },
      preparation: { model: plain(user.model?.modelID), tokens: reply?.tokens },
    };
  }

  report(outcome, message, ms = REQUEST_MS) {
    return exchange("POST", pathOf(this.id), { outcome, message }, ms);
  }

  async withdraw() {
    await this.report("withdrawn", "The compaction was stopped in OpenCode.", WITHDRAWAL_MS).catch(() => {});
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
    const asking = exchange("POST", "/api/handshakes", await this.fields(), QUESTION_MS);
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
        answer = (await Promise.race([exchange("GET", pathOf(this.id)), this.stopped])) ?? answer;
        failingSince = undefined;
      } catch {
        failingSince ??= performance.now();
      }
    }
    await this.withdraw();
    return undefined;
  }

  /** Do what was decided. Returns what OpenCode does then: `compact`; `continue`, or `apply`, which continues too; or
   * `stop`, also if the person has stopped it. */
  async act(answer) {
    if (!answer) {
      await this.notify("The compaction was stopped. Nothing was compacted.");
      return "stop";
    }
    if (answer.do === "apply") {
      if (this.honours !== "parts") throw new Unfit("this version of OpenCode cannot apply it");
      const last = (await this.session.messages()).at(-1);
      if (last?.info.id !== this.mark.messageID) throw new Unfit("the session continued while the plan was reviewed");
      await this.session.applyParts(answer.parts);
      await this.confirm();
      return "apply";
    }
    if (!["compact", "continue", "stop"].includes(answer.do)) throw new Unfit("this version of the bridge is too old");
    await this.notify(plain(answer.message));
    // A request that was too long is too long again.
    return answer.do === "continue" && this.reason !== "threshold" ? "stop" : answer.do;
  }

  /** What OpenCode does if something went wrong. */
  async failOpen(error) {
    const wasAsked = this.id !== undefined;
    const asUsual = !wasAsked || !this.isManual;
    const isKnown = error instanceof Refused || error instanceof Lost || error instanceof Unfit;
    const why = isKnown ? plain(error.message) : wasAsked ? "Redline's bridge failed." : "Redline was not reached.";
    if (wasAsked && !(error instanceof Lost)) {
      await this.report("failed", isKnown ? why : plain(error.message)).catch(() => {});
    }
    await this.notify(`${why} ${asUsual ? "Compacting as usual." : "Nothing was compacted."}`, "warning");
    return asUsual ? "compact" : "stop";
  }

  /** Ask about the session without the mark, which is put back if OpenCode compacts. */
  async settle() {
    let then;
    try {
      await this.session.deletePart(this.mark);
      then = await this.act(await this.decision());
    } catch (error) {
      then = await this.failOpen(error);
    }
    if (then === "compact") await this.session.putPart(this.mark);
    return then;
  }
}

// ---- the bridge --------------------------------------------------------------------------------------------------

/** Compactions that were asked about, also by another copy of this bridge: a user and a project may both have one. */
const known = (globalThis[Symbol.for("redline.bridge.compactions")] ??= new Set());

/** Send a test when OpenCode starts; Redline notices if it does not arrive. */
async function sendTest() {
  const test = { test: true, agent: "opencode", version: "", bridge: BRIDGE };
  const rest = { session: "", reason: "manual", honours: "parts", leaf: "", branch: null, preparation: {} };
  await exchange("POST", "/api/handshakes", { ...test, ...rest }).catch(() => {});
}

export const Redline = async ({ client }) => {
  if (process.env.REDLINE_BRIDGE_TEST === "1") await sendTest();

  /** OpenCode's configuration in memory. */
  let configuration = {};
  /** Open questions, by session. */
  const waiting = new Map();
  /** Sessions whose run is ended here: the event of its end is still to come. */
  const ending = new Set();
  /** Messages that mark no compaction any more, and could not be deleted because a new run had begun, by session. */
  const leftovers = new Map();
  /** Sessions that are not asked about again, until their turn ends, or their context was short enough meanwhile. */
  const decided = new Set();
  /** Sessions whose length is not to be checked before their next request: it is known. */
  const measured = new Set();
  /** Those of them whose next request is being prepared, and the setting that counts otherwise. */
  const unchecked = new Set();
  let usual;

  function uncheck(id) {
    if (!unchecked.size) usual = configuration.compaction;
    unchecked.add(id);
    configuration.compaction = { ...usual, auto: false };
  }

  /** Returns whether the check was passed over. */
  function checkAgain(id) {
    const wasUnchecked = unchecked.delete(id);
    if (wasUnchecked && !unchecked.size) configuration.compaction = usual;
    return wasUnchecked;
  }

  /** Delete the message that marked a compaction: after the next run, if the person has begun one meanwhile. */
  async function deleteMessage(session, id) {
    try {
      await session.call("DELETE", `/message/${id}`);
      leftovers.delete(session.id);
    } catch {
      leftovers.set(session.id, id);
    }
  }

  /** End the run in which OpenCode would compact now. */
  async function endRun(session, mark) {
    ending.add(session.id);
    try {
      await session.call("POST", "/abort");
    } catch (error) {
      ending.delete(session.id);
      throw error;
    }
    await deleteMessage(session, mark.messageID);
  }

  /** The question about the compaction that a session is about to make; undefined if it is not asked about. */
  async function questionAbout(session) {
    // Without a connection file, Redline is disconnected.
    if (!existsSync(CONNECTION)) return undefined;
    const messages = await session.messages();
    const mark = messages.findLast(({ info }) => info.role === "user")?.parts.find(isMark);
    if (!mark || known.has(mark.id)) return undefined;
    // A subagent's run is part of another one, and that of these commands is all they do.
    if ((await session.call("GET", "")).parentID || (mark.auto && ONE_RUN.includes(process.argv[2]))) return undefined;
    known.add(mark.id);
    return new Question(session, mark);
  }

  async function settled(question) {
    const { id } = question.session;
    waiting.set(id, question);
    try {
      return await question.settle();
    } finally {
      waiting.delete(id);
    }
  }

  async function handle(question) {
    const { session, mark, isManual, reason } = question;
    const isDecided = decided.has(session.id) && reason === "threshold";
    const then = isDecided ? "continue" : await settled(question);
    if (then === "compact") return;
    const continues = then === "continue" || then === "apply";
    // Before the run ends: the person's next prompt may begin one at once.
    if (continues) measured.add(session.id);
    await endRun(session, mark);
    if (!continues || isManual || (await session.isBusy())) return;
    if (await session.resume()) decided.add(session.id);
  }

  return {
    config: async (loaded) => {
      configuration = loaded;
    },

    "experimental.session.compacting": async ({ sessionID }) => {
      // If OpenCode does not show the session, it compacts as usual.
      const question = await questionAbout(new Session(client, sessionID)).catch(() => undefined);
      if (question) await handle(question);
    },

    "chat.message": async ({ sessionID }) => {
      if (measured.delete(sessionID)) uncheck(sessionID);
    },

    // OpenCode has passed the check, and is about to send the context.
    "experimental.chat.messages.transform": async (_input, { messages }) => {
      const id = messages[0]?.info.sessionID;
      if (!checkAgain(id)) decided.delete(id);
    },

    event: async ({ event }) => {
      const id = event.properties?.sessionID;
      if (event.type !== "session.idle" || ending.delete(id)) return;
      // The turn has ended; while a question is open, because the person stopped it.
      decided.delete(id);
      checkAgain(id);
      if (leftovers.has(id)) deleteMessage(new Session(client, id), leftovers.get(id));
      waiting.get(id)?.stopping.abort();
    },
  };
};
