/**
 * Redline's bridge for pi and Atomic: before a compaction it asks Redline, and waits until the plan is reviewed.
 *
 * `redline connect` installs it and fills in CONNECTION. The protocol is described in Redline's docs/handshake.md.
 *
 *   pi from 0.87            the approved edits are appended through pi's session manager, and nothing is summarised
 *   Atomic 0.8.28 to 0.9.8  the approved deletions become the result of Atomic's own compaction
 *   other versions          they cannot apply a plan themselves: Redline is asked, and says what to do instead
 *
 * It fails open. If Redline was never reached, the agent compacts as usual. If Redline was lost while it was waited for,
 * an automatic compaction proceeds, because the agent must be able to continue, and a manual one is cancelled.
 *
 * It needs no package, reads only the connection file and the agent's package.json, and sends to this computer only.
 */
import { createHash } from "node:crypto";
import { existsSync, readFileSync, realpathSync } from "node:fs";
import { request } from "node:http";
import { dirname, join } from "node:path";

const BRIDGE = 1;
const CONNECTION = "@CONNECTION@";

const REQUEST_MS = 10_000;
/** Before it answers a question, Redline reads what is new of the session. */
const QUESTION_MS = 60_000;
const WITHDRAWAL_MS = 2_000;
/** Atomic applies deletions within milliseconds, or refuses them without a word to extensions. */
const APPLYING_MS = 2_000;
/** Agents that do not say when they have shown an error have shown it by then. */
const ERROR_SHOWN_MS = 300;
const ANSWER_BYTES = 256 * 1024 * 1024;
const PREPARATION_CHARACTERS = 4_000;
const EDITABLE_ROLES = ["user", "assistant", "toolResult"];
const LOOPBACK = ["127.0.0.1", "localhost", "[::1]"];

type Level = "info" | "warning" | "error";
type Outcome = "applied" | "failed" | "withdrawn";
type Answer = {
  id: number | string;
  state: string;
  do: string;
  message: string;
  seconds: number;
  poll: number;
  grace: number;
  edits?: { targetId: string; replacement: null | { content: unknown } }[];
  deletions?: unknown[];
};

/** Redline answered, but with an error. The messages of these errors are sentences for the person. */
class Refused extends Error {}

/** Redline has the question, but gives no decision. */
class Lost extends Error {}

/** The approved plan cannot be applied. */
class Unfit extends Error {
  constructor(why: string) {
    super(`The approved plan was not applied: ${why}.`);
  }
}

// ---- requests ----------------------------------------------------------------------------------------------------

/** Where Redline is. It is read for each request, because a new start of Redline may change its port. */
function connection(): { agent: string; url: URL; token: string } {
  const { agent, url, token } = JSON.parse(readFileSync(CONNECTION, "utf8"));
  const parsed = new URL(url);
  if (parsed.protocol !== "http:" || !LOOPBACK.includes(parsed.hostname)) throw new Error("it is not on this computer");
  if (typeof token !== "string") throw new Error("the connection file has no token");
  return { agent: agent === "atomic" ? "atomic" : "pi", url: parsed, token };
}

/** Whether the connection file was made for pi. */
function isForPi(): boolean {
  try {
    return connection().agent === "pi";
  } catch {
    return false;
  }
}

/** One request and its answer. Neither proxies nor redirects are followed. */
function exchange(method: string, path: string, body: unknown, ms = REQUEST_MS): Promise<any> {
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
        const chunks: Buffer[] = [];
        let size = 0;
        response.on("data", (chunk: Buffer) => {
          size += chunk.length;
          if (size > ANSWER_BYTES) sent.destroy(new Error("its answer is too long"));
          chunks.push(chunk);
        });
        response.on("error", reject);
        response.on("end", () => {
          let answer: any;
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
const pathOf = (id: number | string) => `/api/handshakes/${encodeURIComponent(String(id))}`;

// ---- small helpers -----------------------------------------------------------------------------------------------

/** A text of Redline as one line without control characters. */
function plain(text: unknown): string {
  const unsafe = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]+/g;
  return typeof text === "string" ? text.replace(unsafe, " ").trim().slice(0, 500) : "";
}

/** A number of an answer within its limits, in milliseconds. */
function milliseconds(seconds: unknown, otherwise: number, most: number, least = 0): number {
  const value = typeof seconds === "number" && Number.isFinite(seconds) ? seconds : otherwise;
  return Math.min(Math.max(value, least), most) * 1000;
}

/** The time that is left, as exact as is useful: the status line does not change twice a second. */
function left(ms: number): string {
  const seconds = Math.max(0, ms / 1000);
  if (seconds > 90) return `${Math.round(seconds / 60)} min left`;
  return `${Math.ceil(seconds / 10) * 10} s left`;
}

/** Waits; ends early if `stop` is aborted. */
const pause = (ms: number, stop?: AbortSignal) =>
  new Promise<void>((resolve) => {
    const wake = () => {
      clearTimeout(timer);
      stop?.removeEventListener("abort", wake);
      resolve();
    };
    const timer = setTimeout(wake, ms);
    stop?.addEventListener("abort", wake);
    if (stop?.aborted) wake();
  });

/** The agent's version: that of the package to which the running program belongs. */
function agentVersion(): string {
  for (const program of [process.argv[1], process.execPath]) {
    try {
      for (let at = dirname(realpathSync(program)); at !== dirname(at); at = dirname(at)) {
        try {
          const description = JSON.parse(readFileSync(join(at, "package.json"), "utf8"));
          if (description.piConfig && typeof description.version === "string") return description.version;
        } catch {
          // The next directory above may have one.
        }
      }
    } catch {
      // There is no such program.
    }
  }
  return "";
}

/** What this agent can do with an approved plan. */
function honoured(sessionManager: any, preparation?: any): "edits" | "deletions" | "nothing" {
  if (preparation?.region) return "nothing";
  if (preparation?.transcript) return "deletions";
  if (typeof sessionManager.appendContextEdit === "function") return "edits";
  return !preparation && typeof sessionManager.appendContextCompaction === "function" ? "deletions" : "nothing";
}

/** What else the agent says about the compaction. */
function described(event: any, ctx: any): object {
  const { preparation } = event;
  const clipped = (text: unknown) => (typeof text === "string" ? text.slice(0, 1_000) : undefined);
  const query = clipped(event.parameters?.query);
  const all = {
    tokensBefore: preparation?.tokensBefore,
    firstKeptEntryId: preparation?.firstKeptEntryId,
    willRetry: event.willRetry,
    instructions: clipped(event.customInstructions),
    parameters: event.parameters && { ...event.parameters, ...(query === undefined ? {} : { query }) },
    model: clipped(ctx.model?.id),
    contextWindow: ctx.model?.contextWindow,
  };
  return JSON.stringify(all).length <= PREPARATION_CHARACTERS ? all : {};
}

/** Whether Atomic compacts, and not pi. Atomic also loads the extensions of pi. */
const isAtomic = (event: any) => Boolean(event.preparation?.transcript || event.preparation?.region);

/** The question about a compaction. */
function question(event: any, ctx: any): object {
  const sessionManager = ctx.sessionManager;
  const entries: { id: string }[] = event.branchEntries ?? sessionManager.getBranch();
  const digest = createHash("sha256");
  for (const { id } of entries) digest.update(`${id}\n`);
  return {
    agent: isAtomic(event) ? "atomic" : connection().agent,
    version: agentVersion(),
    bridge: BRIDGE,
    session: sessionManager.getSessionFile(),
    reason: ["manual", "threshold", "overflow"].includes(event.reason) ? event.reason : "manual",
    honours: honoured(sessionManager, event.preparation),
    leaf: sessionManager.getLeafId() ?? "",
    branch: { entries: entries.length, sha256: digest.digest("hex") },
    preparation: described(event, ctx),
  };
}

// ---- approved edits ----------------------------------------------------------------------------------------------

/** Append all edits, or none. Raises Unfit. */
function applyEdits(sessionManager: any, edits: Answer["edits"], leaf: string | null): void {
  if (!Array.isArray(edits)) throw new Unfit("the approved plan has no edits");
  const branch = new Map<string, any>(sessionManager.getBranch().map((entry: any) => [entry.id, entry]));
  for (const { targetId, replacement } of edits) {
    const target = branch.get(targetId);
    const isMessage = target?.type === "message" && EDITABLE_ROLES.includes(target.message.role);
    if (!isMessage && target?.type !== "custom_message") throw new Unfit(`entry ${plain(targetId)} cannot be edited`);
    const content = replacement?.content;
    if (replacement !== null && typeof content !== "string" && !Array.isArray(content)) {
      throw new Unfit(`the replacement of entry ${plain(targetId)} has no content`);
    }
  }
  try {
    for (const { targetId, replacement } of edits) {
      sessionManager.appendContextEdit(targetId, replacement && { content: replacement.content });
    }
  } catch (error) {
    // A part of a plan was not approved. The agent continues from where it was, and so does who reads the file.
    if (leaf !== null) sessionManager.branch(leaf);
    else sessionManager.resetLeaf();
    try {
      sessionManager.appendCustomEntry("redline.undo");
    } catch {
      // The disk may be full: the agent's memory is right, and the next entry continues from there.
    }
    throw new Unfit(`the edits were not written (${plain((error as Error).message)})`);
  }
}

// ---- one question ------------------------------------------------------------------------------------------------

class Question {
  readonly event: any;
  readonly ctx: any;
  /** Taken once: after the end of its session, `ctx` raises errors. */
  readonly ui: any;
  readonly sessionManager: any;
  readonly leaf: string | null;
  readonly honours: string;
  readonly isManual: boolean;
  /** Aborted when the person stops the compaction, or the session ends. */
  readonly stop: AbortSignal;
  readonly stopped: Promise<undefined>;
  readonly notices: [string, Level][] = [];
  id: number | string | undefined;
  shown: string | undefined;

  constructor(event: any, ctx: any, ending: AbortSignal) {
    this.event = event;
    this.ctx = ctx;
    this.ui = ctx.ui;
    this.sessionManager = ctx.sessionManager;
    this.leaf = this.sessionManager.getLeafId();
    this.honours = honoured(this.sessionManager, event.preparation);
    this.isManual = event.reason !== "threshold" && event.reason !== "overflow";
    this.stop = AbortSignal.any(event.signal ? [ending, event.signal] : [ending]);
    this.stopped = new Promise((resolve) => {
      this.stop.addEventListener("abort", () => resolve(undefined));
      if (this.stop.aborted) resolve(undefined);
    });
  }

  /** Show a message once the handler has returned. */
  notify(message: string, level: Level = "info"): void {
    if (message) this.notices.push([message, level]);
  }

  showNotices(): void {
    for (const [message, level] of this.notices.splice(0)) {
      try {
        this.ui.notify(message, level);
      } catch {
        // The agent no longer shows anything.
      }
    }
  }

  status(text: string | undefined): void {
    if (text === this.shown) return;
    this.shown = text;
    try {
      this.ui.setStatus?.("redline", text);
      // Atomic that applies deletions has no line for the status.
      if (this.honours === "deletions") this.ui.setWidget?.("redline", text === undefined ? undefined : [text]);
    } catch {
      // As above.
    }
  }

  report(outcome: Outcome, message: string, ms = REQUEST_MS): Promise<Answer> {
    const leaf = this.sessionManager.getLeafId() ?? "";
    return exchange("POST", pathOf(this.id!), { outcome, message, leaf }, ms);
  }

  async withdraw(): Promise<undefined> {
    await this.report("withdrawn", "The compaction was stopped in the agent.", WITHDRAWAL_MS).catch(() => undefined);
  }

  /** Report that the plan was not applied. */
  async fail(why: string): Promise<void> {
    await this.report("failed", why).catch(() => undefined);
  }

  /** Report an applied plan, which Redline then verifies by the session itself. */
  async confirm(): Promise<void> {
    for (let tries = 0; tries < 4; tries++) {
      if (tries) await pause(1_000);
      try {
        const { state, message } = await this.report("applied", "", REQUEST_MS / 4);
        return this.notify(plain(message), state === "failed" ? "error" : "info");
      } catch {
        // Redline may be restarting.
      }
    }
    this.notify("The approved plan was applied, but Redline was not reached to verify it.", "warning");
  }

  /** Ask, and wait for an answer other than `wait`. undefined: the question was withdrawn. */
  async decision(): Promise<Answer | undefined> {
    this.status("Redline: preparing the review");
    const asking: Promise<Answer> = exchange("POST", "/api/handshakes", question(this.event, this.ctx), QUESTION_MS);
    let answer = await Promise.race([asking, this.stopped]);
    if (!answer) {
      // Redline may have the question already: it is withdrawn as soon as its id is known.
      const withdrawn = asking.then(({ id }) => {
        this.id = id;
        return this.withdraw();
      });
      await Promise.race([withdrawn.catch(() => undefined), pause(WITHDRAWAL_MS)]);
      return undefined;
    }
    this.id = answer.id;
    let end = Infinity;
    let failingSince: number | undefined;
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
        answer = (await Promise.race([exchange("GET", pathOf(this.id!), undefined), this.stopped])) ?? answer;
        failingSince = undefined;
      } catch {
        failingSince ??= performance.now();
      }
    }
    return this.withdraw();
  }

  /** What the handler returns if something went wrong. */
  async failOpen(error: Error): Promise<object | undefined> {
    const wasAsked = this.id !== undefined;
    const asUsual = !wasAsked || !this.isManual;
    const isKnown = error instanceof Refused || error instanceof Lost || error instanceof Unfit;
    const why = isKnown ? plain(error.message) : wasAsked ? "Redline's bridge failed." : "Redline was not reached.";
    if (wasAsked && !(error instanceof Lost)) await this.fail(isKnown ? why : plain(error.message));
    this.notify(`${why} ${asUsual ? "Compacting as usual." : "Nothing was compacted."}`, "warning");
    return asUsual ? undefined : { cancel: true };
  }
}

// ---- the bridge --------------------------------------------------------------------------------------------------

/** Compactions that were asked about, also by another copy of this bridge: a user's and a project's may both be there. */
const KNOWN = Symbol.for("redline.bridge.compactions");
const known: WeakSet<object> = ((globalThis as any)[KNOWN] ??= new WeakSet());

export default function (pi: any): void {
  /** Aborted when the session ends in this agent. */
  let ending = new AbortController();
  const open = new Set<Promise<unknown>>();
  /** Reports what became of the deletions that the agent applies now. */
  let settle: (() => Promise<void>) | undefined;
  let showNotices = () => {};
  /**
   * Of a run: `isFull`, the agent wants to compact before its next turn; `isDecided`, it is not asked about as long as
   * that is so; `stops`, it is stopped; `retries`, its request is repeated.
   */
  const begun = () => ({ isFull: false, isDecided: false, stops: false, retries: false });
  let run = begun();
  /** The last event of a run: versions that cannot apply edits may not have the later one. */
  let lastEvent: "agent_settled" | "agent_end" = "agent_end";

  /** Let the agent apply deletions; it says in another event, or not at all, that it did. */
  function applyDeletions(asked: Question, deletions: unknown[]): object {
    const { sessionManager, leaf } = asked;
    const timer = setTimeout(() => settle?.(), APPLYING_MS);
    settle = async () => {
      settle = undefined;
      clearTimeout(timer);
      const branch: { id: string; type: string }[] = sessionManager.getBranch();
      const next = branch[branch.findIndex(({ id }) => id === leaf) + 1];
      if (next?.type === "context_compaction") {
        await asked.confirm();
        return asked.showNotices();
      }
      const why = "The agent did not apply the approved plan.";
      asked.notify(why, "error");
      asked.showNotices();
      await asked.fail(why);
    };
    return { deletionRequest: { deletions } };
  }

  /** Do what was decided; what the handler returns. Raises Unfit. */
  async function act(asked: Question, answer: Answer): Promise<object | undefined> {
    const { event, ctx, honours, isManual, sessionManager, leaf } = asked;
    if (answer.do === "compact") {
      asked.notify(plain(answer.message));
      return undefined;
    }
    if (answer.do === "continue" || answer.do === "stop") {
      asked.notify(plain(answer.message));
      run.isDecided = !isManual;
      if (answer.do === "stop" && !isManual) {
        // Elsewhere, a run that has not begun cannot be told from the next one.
        run.stops = honours === "edits";
        ctx.abort?.();
      }
      return { cancel: true };
    }
    if (answer.do !== "apply") throw new Unfit("this version of the bridge does not understand the decision");
    if (sessionManager.getLeafId() !== leaf) throw new Unfit("the session continued while the plan was reviewed");
    if (honours === "edits") {
      applyEdits(sessionManager, answer.edits, leaf);
      run.isDecided = !isManual;
      await asked.confirm();
      run.retries = event.willRetry === true;
      return { cancel: true };
    }
    if (honours === "deletions" && Array.isArray(answer.deletions)) return applyDeletions(asked, answer.deletions);
    throw new Unfit("this version of the agent cannot apply the approved plan");
  }

  async function handle(event: any, ctx: any): Promise<object | undefined> {
    const asked = new Question(event, ctx, ending.signal);
    lastEvent = asked.honours === "edits" ? "agent_settled" : "agent_end";
    let result: object | undefined;
    try {
      const answer = await asked.decision();
      result = answer ? await act(asked, answer) : { cancel: true };
    } catch (error) {
      result = await asked.failOpen(error as Error);
    }
    asked.status(undefined);
    // The agent shows a cancelled compaction as an error. What became of it is shown below that.
    showNotices = () => asked.showNotices();
    if (result && "cancel" in result) setTimeout(showNotices, ERROR_SHOWN_MS);
    else showNotices();
    return result;
  }

  pi.on("session_before_compact", async (event: any, ctx: any) => {
    // A session without a file cannot be reviewed; without a connection file, Redline is disconnected.
    if (known.has(event) || !ctx.sessionManager.getSessionFile() || !existsSync(CONNECTION)) return undefined;
    if (isAtomic(event) && isForPi()) return undefined;
    known.add(event);
    run.isFull = true;
    // Neither the threshold nor an overflow of a complete reply stands in the way of the next request.
    const canWait = event.reason === "threshold" || (event.reason === "overflow" && event.willRetry === false);
    if (run.isDecided && canWait) return { cancel: true };
    const handling = handle(event, ctx).catch(() => undefined);
    open.add(handling);
    const result = await handling;
    open.delete(handling);
    return result;
  });

  // pi has shown that the compaction was cancelled.
  pi.on("session_compact_failed", () => showNotices());

  // Atomic has applied the deletions.
  pi.on("session_compact", async () => settle?.());

  pi.on("agent_start", (_event: any, ctx: any) => {
    // A run that is stopped before its first request: the compaction was decided on before it began.
    if (run.stops) ctx.abort?.();
  });

  pi.on("turn_start", ({ turnIndex }: any) => {
    // Before each turn but the first, pi compares its context with the threshold. Once it is shorter, the next time that
    // it is too long is another question.
    if (turnIndex > 0 && !run.isFull) run.isDecided = false;
    run.isFull = false;
  });

  // After an overflow, pi repeats the request only if it has compacted itself.
  pi.on("agent_before_settle", () => {
    const { retries } = run;
    run.retries = false;
    return retries ? { continue: true } : undefined;
  });

  for (const name of ["agent_end", "agent_settled"]) {
    pi.on(name, () => {
      if (name === lastEvent) run = begun();
    });
  }

  pi.on("session_shutdown", async () => {
    ending.abort();
    await Promise.race([Promise.allSettled([...open, settle?.()]), pause(2 * WITHDRAWAL_MS)]);
  });

  pi.on("session_start", async (_event: any, ctx: any) => {
    ending = new AbortController();
    if (process.env.REDLINE_BRIDGE_TEST !== "1") return;
    try {
      const test = { test: true, agent: connection().agent, version: agentVersion(), bridge: BRIDGE };
      const honours = honoured(ctx.sessionManager);
      const rest = { session: "", reason: "manual", honours, leaf: "", branch: null, preparation: {} };
      await exchange("POST", "/api/handshakes", { ...test, ...rest });
    } catch {
      // Redline notices that the test did not arrive.
    }
  });
}
