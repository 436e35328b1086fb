/**
 * Redline's bridge for OpenCode: before a compaction it asks Redline, and waits until the plan is reviewed.
 *
 * OpenCode marks a compaction by a user message with a part of its own, and then asks its plugins. An approved plan is
 * applied part by part through OpenCode's own interface. A plugin can only keep OpenCode from compacting by ending the
 * run, so the run is ended, the mark is deleted, and a run that was in the middle of a turn is started again with the
 * same user message. OpenCode judges by the last reply whether a context is too long; that reply was made before the
 * plan was applied, so this check is passed over once.
 *
 * It reads only the connection file. What it shares with the bridges for other agents is in bridge_core.js.
 */
import { existsSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { CONNECTION, Question, Unfit, branchOf, knownCompactions, plain, sendTest } from "../../edge/bridge_core.js";

/** The oldest version whose interface keeps all that a part has. */
const OLDEST = [1, 18, 33];
/** Commands that end with the run that they started: none could be started again in them. */
const ONE_RUN = ["run", "acp", "github"];
/** What OpenCode answers if the session is busy, or there is no such session any more. */
const BUSY = 409;
const MISSING = 404;
const NOTICE_MS = 10_000;
/** How long a status stays if nothing replaces it. */
const STATUS_MS = 65_000;

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

  /** The document of an answer; `place` is below the session, unless it starts with `//`. Raises Error with the
   * `status`. */
  async call(method, place, body) {
    const url = place.startsWith("//") ? place.slice(1) : `/session/${this.id}${place}`;
    const headers = { "content-type": "application/json" };
    const { data, response } = await this.client._client.request({ method, url, body, headers });
    if (response?.ok) return data;
    const status = response?.status;
    throw Object.assign(new Error(`OpenCode answered ${method} ${url} with status ${status}`), { status });
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

class OpenCodeQuestion extends Question {
  /** `mark` is the part by which OpenCode marks the compaction. */
  constructor(session, mark) {
    const stopping = new AbortController();
    super("OpenCode", mark.auto ? (mark.overflow ? "overflow" : "threshold") : "manual", stopping.signal);
    this.session = session;
    this.mark = mark;
    this.stopping = stopping;
    this.honours = "nothing";
  }

  /** Show a message in OpenCode's interface; other clients of its server ignore it. */
  async showNotice(message, variant, duration = NOTICE_MS) {
    await this.session.client.tui.showToast({ body: { title: "Redline", message, variant, duration } }).catch(() => {});
  }

  showStatus(message) {
    this.showNotice(message, "info", STATUS_MS);
  }

  /** The question about the session without the mark. */
  async fields() {
    const messages = await this.session.messages();
    const version = await this.session.version();
    const ids = idsOf(messages);
    const user = messages.findLast(({ info }) => info.role === "user").info;
    const reply = messages.findLast(({ info }) => info.role === "assistant" && info.finish)?.info;
    this.honours = canApply(version) ? "parts" : "nothing";
    return {
      agent: "opencode",
      version,
      session: pathOfSession(this.session.id),
      reason: this.reason,
      honours: this.honours,
      leaf: ids.at(-1),
      branch: branchOf(ids),
      preparation: { model: plain(user.model?.modelID), tokens: reply?.tokens },
    };
  }

  async apply(answer) {
    if (answer.do !== "apply") throw new Unfit("this version of the bridge is too old");
    if (this.honours !== "parts") throw new Unfit("this version of OpenCode cannot apply it");
    const last = (await this.session.messages()).at(-1);
    if (last?.info.id !== this.mark.messageID) throw new Unfit("the session continued while the plan was reviewed");
    await this.session.applyParts(answer.parts);
    await this.confirm();
  }

  /** Ask about the session without the mark, which is put back if OpenCode compacts. */
  async settle() {
    const then = await this.session.deletePart(this.mark).then(
      () => super.settle(),
      (error) => this.failOpen(error),
    );
    if (then === "withdrawn") await this.notify("The compaction was stopped. Nothing was compacted.");
    if (then === "compact") await this.session.putPart(this.mark);
    return then;
  }
}

// ---- the bridge --------------------------------------------------------------------------------------------------

const known = knownCompactions(new Set());

export const Redline = async ({ client }) => {
  await sendTest(() => ({ agent: "opencode", version: "", honours: "parts" }));

  /** OpenCode's configuration in memory. */
  let configuration = {};
  /** Open questions, by session. */
  const waiting = new Map();
  /** Sessions whose run is ended here: the event of its end is still to come. */
  const ending = new Set();
  /** Messages that mark no compaction any more and are to be deleted, by session. */
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

  /** Delete the message that marked a compaction. If it fails, and also if the person has begun a run meanwhile, the
   * message is deleted after the next run. Raises Error. */
  async function deleteMessage(session, id) {
    leftovers.set(session.id, id);
    try {
      await session.call("DELETE", `/message/${id}`);
    } catch (error) {
      if (error.status === BUSY) return;
      if (error.status !== MISSING) throw error;
    }
    leftovers.delete(session.id);
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
    return new OpenCodeQuestion(session, mark);
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
    // A request that was too long is too long again.
    const continues = then === "apply" || (then === "continue" && reason === "threshold");
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
      // OpenCode does not wait for this handler, so nothing would catch the error.
      if (leftovers.has(id)) deleteMessage(new Session(client, id), leftovers.get(id)).catch(() => {});
      waiting.get(id)?.stopping.abort();
    },
  };
};
