// Lets pi's own session manager open a session, and writes the messages it rebuilds to a file, one per line, after
// a first line that has pi's error, if it does not open the session.
// node rebuild.mjs MODULE SESSION LEAF RESULT     LEAF is empty for the session's own leaf
import { closeSync, openSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [modulePath, session, leaf, result] = process.argv.slice(2);
const { SessionManager } = await import(pathToFileURL(modulePath));
const file = openSync(result, "w", 0o600);
const write = (value) => writeFileSync(file, `${JSON.stringify(value)}\n`);
try {
  const manager = SessionManager.open(session);
  if (leaf) manager.branch(leaf);
  const { messages } = manager.buildSessionContext();
  write({});
  for (const message of messages) write(message);
} catch (error) {
  write({ error: String(error?.message ?? error) });
}
closeSync(file);
