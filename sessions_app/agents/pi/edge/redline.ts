/**
 * Redline's bridge for pi and Atomic: before a compaction it asks Redline, and waits until the plan is reviewed.
 *
 *   pi from 0.87            the approved edits are appended through pi's session manager, and nothing is summarised
 *   Atomic 0.8.28 to 0.9.8  the approved deletions become the result of Atomic's own compaction
 *   other versions          they cannot apply a plan themselves: Redline is asked, and says what to do instead
 *
 * It reads only the connection file and the agent's package.json. What it shares with the bridges for other agents is
 * in bridge_core.js.
 */
import { existsSync, realpathSync } from "node:fs";
import { dirname, join } from "node:path";
import {
  CONNECTION,
  Question,
  Unfit,
  WITHDRAWAL_MS,
  branchOf,
  connection,
  knownCompactions,
  pause,
  plain,
  readJson,
  sendTest,
} from "../../edge/bridge_core.js";

/** Atomic applies deletions within milliseconds, or refuses them without a word to extensions. */
const APPLYING_MS = 2_000;
/** Agents that do not say when they have shown an error have shown it by then. */
const ERROR_SHOWN_MS = 300;
const PREPARATION_CHARACTERS = 4_000;
const EDITABLE_ROLES = ["user", "assistant", "toolResult"];
const REASONS = ["manual", "threshold", "overflow"];

type Edits = { targetId: string; replacement: null | { content: unknown } }[];

/** The agent that the connection file was made for; empty if it cannot be read. */
function connectedAgent(): string {
  try {
    return connection().agent === "atomic" ? "atomic" : "pi";
  } catch {
    return "";
  }
}

/** The agent's version: that of the package to which the running program belongs. */
function agentVersion(): string {
  for (const program of [process.argv[1], process.execPath]) {
    try {
      for (let at = dirname(realpathSync(program)); at !== dirname(at); at = dirname(at)) {
        try {
          const description = readJson(join(at, "package.json"));
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

// ---- approved edits ----------------------------------------------------------------------------------------------

/** Append all edits, or none. Raises Unfit. */
function applyEdits(sessionManager: any, edits: Edits | undefined, leaf: string | null): void {
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

class PiQuestion extends Question {
  readonly event: any;
  readonly ctx: any;
  readonly run: Run;
  /** Taken once: after the end of its session, `ctx` raises errors. */
  readonly ui: any;
  readonly sessionManager: any;
  readonly leaf: string | null;
  readonly honours: string;
  readonly notices: [string, string][] = [];
  /** The approved deletions, which the agent applies after its handler has returned. */
  deletions: unknown[] | undefined;

  constructor(event: any, ctx: any, ending: AbortSignal, run: Run) {
    const stop = AbortSignal.any(event.signal ? [ending, event.signal] : [ending]);
    super("the agent", REASONS.includes(event.reason) ? event.reason : "manual", stop);
    this.event = event;
    this.ctx = ctx;
    this.run = run;
    this.ui = ctx.ui;
    this.sessionManager = ctx.sessionManager;
    this.leaf = this.sessionManager.getLeafId();
    this.honours = honoured(this.sessionManager, event.preparation);
  }

  /** Show a message once the handler has returned. */
  showNotice(message: string, level: string): void {
    this.notices.push([message, level === "success" ? "info" : level]);
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

  showStatus(text: string | undefined): void {
    try {
      this.ui.setStatus?.("redline", text);
      // Atomic that applies deletions has no line for the status.
      if (this.honours === "deletions") this.ui.setWidget?.("redline", text === undefined ? undefined : [text]);
    } catch {
      // As above.
    }
  }

  fields(): object {
    const entries: { id: string }[] = this.event.branchEntries ?? this.sessionManager.getBranch();
    return {
      agent: isAtomic(this.event) ? "atomic" : connectedAgent(),
      version: agentVersion(),
      session: this.sessionManager.getSessionFile(),
      reason: this.reason,
      honours: this.honours,
      leaf: this.leafNow(),
      branch: branchOf(entries.map(({ id }) => id)),
      preparation: described(this.event, this.ctx),
    };
  }

  leafNow(): string {
    return this.sessionManager.getLeafId() ?? "";
  }

  declined(how: string): void {
    this.run.isDecided = !this.isManual;
    if (how === "stop" && !this.isManual) {
      // Elsewhere, a run that has not begun cannot be told from the next one.
      this.run.stops = this.honours === "edits";
      this.ctx.abort?.();
    }
  }

  async apply(answer: any): Promise<void> {
    if (answer.do !== "apply") throw new Unfit("this version of the bridge does not understand the decision");
    if (this.sessionManager.getLeafId() !== this.leaf) {
      throw new Unfit("the session continued while the plan was reviewed");
    }
    if (this.honours === "edits") {
      applyEdits(this.sessionManager, answer.edits, this.leaf);
      this.run.isDecided = !this.isManual;
      await this.confirm();
      this.run.retries = this.event.willRetry === true;
    } else if (this.honours === "deletions" && Array.isArray(answer.deletions)) {
      this.deletions = answer.deletions;
    } else {
      throw new Unfit("this version of the agent cannot apply the approved plan");
    }
  }
}

// ---- the bridge --------------------------------------------------------------------------------------------------

const known: WeakSet<object> = knownCompactions(new WeakSet());

/**
 * Of a run: `isFull`, the agent wants to compact before its next turn; `isDecided`, it is not asked about as long as
 * that is so; `stops`, it is stopped; `retries`, its request is repeated.
 */
const begun = () => ({ isFull: false, isDecided: false, stops: false, retries: false });
type Run = ReturnType<typeof begun>;

export default function (pi: any): void {
  /** Aborted when the session ends in this agent. */
  let ending = new AbortController();
  const open = new Set<Promise<unknown>>();
  /** Reports what became of the deletions that the agent applies now. */
  let reportDeletions: (() => Promise<void>) | undefined;
  let showNotices = () => {};
  const run = begun();
  /** The last event of a run: versions that cannot apply edits may not have the later one. */
  let lastEvent: "agent_settled" | "agent_end" = "agent_end";

  /** Let the agent apply deletions; it says in another event, or not at all, that it did. */
  function applyDeletions(asked: PiQuestion): object {
    const { sessionManager, leaf, deletions } = asked;
    const timer = setTimeout(() => reportDeletions?.(), APPLYING_MS);
    reportDeletions = async () => {
      reportDeletions = undefined;
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

  /** What the handler returns: undefined lets the agent compact. */
  async function handle(event: any, ctx: any): Promise<object | undefined> {
    const asked = new PiQuestion(event, ctx, ending.signal, run);
    lastEvent = asked.honours === "edits" ? "agent_settled" : "agent_end";
    const then = await asked.settle();
    let result: object | undefined;
    if (asked.deletions) result = applyDeletions(asked);
    else if (then !== "compact") result = { cancel: true };
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
    if (isAtomic(event) && connectedAgent() === "pi") return undefined;
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
  pi.on("session_compact", async () => reportDeletions?.());

  pi.on("agent_start", (_event: any, ctx: any) => {
    // A run that is stopped before its first request: the compaction was decided on before it began.
    if (run.stops) ctx.abort?.();
  });

  pi.on("turn_start", ({ turnIndex }: any) => {
    // Before each turn but the first, pi compares its context with the threshold. Once it is shorter, the next time
    // that it is too long is another question.
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
      if (name === lastEvent) Object.assign(run, begun());
    });
  }

  pi.on("session_shutdown", async () => {
    ending.abort();
    await Promise.race([Promise.allSettled([...open, reportDeletions?.()]), pause(2 * WITHDRAWAL_MS)]);
  });

  pi.on("session_start", async (_event: any, ctx: any) => {
    ending = new AbortController();
    await sendTest(() => {
      return { agent: connectedAgent(), version: agentVersion(), honours: honoured(ctx.sessionManager) };
    });
  });
}
