// What pi itself would summarise. Reads requests from standard input, one JSON object each line, and prints an answer
// to each: {leaf, keep} for a compaction, {old, target, budget} for a branch that is left.
// node summaries.mjs PACKAGE SESSION
import { createInterface } from "node:readline";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [directory, session] = process.argv.slice(2);
const load = (...path) => import(pathToFileURL(join(directory, "dist", "core", ...path)));
const { SessionManager } = await load("session-manager.js");
const { convertToLlm } = await load("messages.js");
const pi = await load("compaction", "index.js");

const manager = SessionManager.open(session);
// Redline has its own words before summaries, and shows no notes on how a command's output was kept.
const isSaid = ({ role }) => role !== "branchSummary" && role !== "compactionSummary";
const withoutNotes = ({ cancelled, truncated, fullOutputPath, ...message }) => message;
const text = (messages) => pi.serializeConversation(convertToLlm(messages.filter(isSaid).map(withoutNotes)));
const compaction = ({ leaf, keep }) => {
  const settings = { enabled: true, reserveTokens: 16384, keepRecentTokens: keep };
  const found = pi.prepareCompaction(manager.getBranch(leaf), settings);
  if (!found) return null;
  const { firstKeptEntryId, tokensBefore, previousSummary, messagesToSummarize, turnPrefixMessages } = found;
  return {
    firstKeptEntryId,
    tokensBefore,
    previousSummary: previousSummary ?? null,
    history: text(messagesToSummarize),
    prefix: text(turnPrefixMessages),
    files: pi.computeFileLists(found.fileOps),
  };
};
const left = ({ old, target, budget }) => {
  const { entries, commonAncestorId } = pi.collectEntriesForBranchSummary(manager, old, target);
  const { messages, fileOps, totalTokens } = pi.prepareBranchEntries(entries, budget);
  return {
    commonAncestorId,
    entries: entries.map(({ id }) => id),
    conversation: text(messages),
    totalTokens,
    files: pi.computeFileLists(fileOps),
  };
};
for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  console.log(JSON.stringify(request.old ? left(request) : compaction(request)));
}
