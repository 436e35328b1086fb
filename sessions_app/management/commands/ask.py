import os
import sys
from typing import Any, Final

from django.conf import settings
from django.core.management.base import CommandParser

from sessions_app.agents.base import TEST_VARIABLE
from sessions_app.agents.pure.hooks import BRIDGE, CompactionHook, HookRequest
from sessions_app.agents.registry import AGENTS
from sessions_app.cli import DONE, RedlineCommand
from sessions_app.server.review_request import Caller, ServerRequests, report_if_killed, request_review
from sessions_app.sessionlog.errors import BadInput, RedlineError

INPUT_LIMIT: Final = 1_000_000


class Command(RedlineCommand):
    help = "Ask for a review before an agent compacts. For agents, which call it as a hook; not for people."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("agent", help="the key of the agent that calls it, such as claude-code")
        parser.add_argument("--connection", required=True, help="the name of the agent's connection")

    def warns(self, options: dict[str, Any]) -> bool:
        """Always False: some agents show standard error as the message about the compaction."""
        del options
        return False

    def report(self, failure: RedlineError) -> int:
        """Print the error, but let the agent compact as usual: another exit code could stop it."""
        super().report(failure)
        return DONE

    def run(self, options: dict[str, Any]) -> int | None:
        agent = AGENTS.get(options["agent"])
        hook = agent.bridge.hook if agent is not None and agent.bridge is not None else None
        if hook is None:
            raise BadInput("no_hook", f"No agent {options['agent']} calls a command before it compacts.")
        requested = _requested(hook)
        fields = {
            "agent": options["agent"],
            "bridge": BRIDGE,
            "session": requested.session,
            "reason": requested.reason,
            "honours": "nothing",
            "leaf": "",
            "branch": None,
            "preparation": requested.preparation,
            **({"test": True} if os.environ.get(TEST_VARIABLE) == "1" else {}),
        }
        requests = ServerRequests(settings.REDLINE_DATA_DIR, options["connection"])
        with Caller(sys.stdout.fileno()) as caller:
            decision = request_review(requests, fields, caller.still_waits, if_killed=report_if_killed)
        reply = hook.reply(decision.step, decision.message)
        if reply.output:
            self.say(reply.output)
        if reply.errors:
            sys.stderr.write(f"{reply.errors}\n")
        self.show_json({"do": decision.step, "message": decision.message})
        return reply.code


def _requested(hook: CompactionHook) -> HookRequest:
    """The review request that the agent sent. Raises BadInput `not_of_agent`."""
    if sys.stdin.isatty():
        raise BadInput("not_of_agent", "Agents call this command, and send it what they are about to do.")
    sent = sys.stdin.buffer.read(INPUT_LIMIT + 1)
    if len(sent) > INPUT_LIMIT:
        raise _not_of_agent(f"it is larger than {INPUT_LIMIT} bytes")
    try:
        return hook.review_request(sent)
    except ValueError as fault:
        raise _not_of_agent(str(fault)) from fault


def _not_of_agent(why: str) -> BadInput:
    return BadInput(
        "not_of_agent",
        f"Standard input is not what the agent sends: {why}. Redline was not asked. The compaction runs as usual.",
    )
