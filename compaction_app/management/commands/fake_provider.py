import argparse
import contextlib
from typing import Any, Final

from django.core.management.base import CommandParser

from compaction_app.scripted.app import ScriptedApp
from compaction_app.scripted.scripts import SCRIPTS, script_named
from compaction_app.scripted.server import base_url, server_of
from sessions_app.cli import RedlineCommand, printable
from sessions_app.server.connections import listening, shared_port
from sessions_app.sessionlog.errors import BadInput
from sessions_app.terminal import Column

PORT: Final = 8099
LONGEST_PACE: Final = 60.0
COLUMNS: Final = (Column("NAME"), Column("PLAYS", cut="end"))


class Command(RedlineCommand):
    help = "Serve a provider that plays scripts, to try Redline without a key or a model."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--port", type="port", default=PORT, help="the port to listen on; 0: any free port")
        parser.add_argument("--script", default="", metavar="NAME", help="play this script for every model name")
        parser.add_argument(
            "--pace",
            type=_pace,
            default=0.0,
            metavar="SECONDS",
            help="pause after each piece of an answer",
        )

    def run(self, options: dict[str, Any]) -> None:
        script = options["script"]
        if script and script_named(script) is None:
            raise BadInput(
                "unknown_script",
                f"There is no script {script}. Nothing was started. Known are {', '.join(SCRIPTS)}, and calls-N.",
            )
        app = ScriptedApp(script=script, pace=options["pace"], keeps=0)
        with listening(options["port"]) as listeners:
            port = shared_port(listeners)
            anthropic, openai = base_url(port, "anthropic"), base_url(port, "openai")
            self.show_json({"anthropic": anthropic, "openai": openai})
            self._report(anthropic, openai, script)
            self.stdout.flush()
            with contextlib.suppress(KeyboardInterrupt):
                # An interrupt is the normal way to stop it.
                server_of(app).run(sockets=listeners)

    def _report(self, anthropic: str, openai: str, script: str) -> None:
        self.say("The scripted provider is running on this machine. It needs no model and no key.")
        self.say()
        self.say(f"  Anthropic's dialect  {anthropic}")
        self.say(f"  OpenAI's dialect     {openai}")
        self.say()
        self.say("Add it in Settings › Models: a provider with one of these base URLs and no key, and a model of it")
        self.say("with a context window of 200000 tokens and an output limit of 8192, named after a script.")
        if script:
            self.say(f"Every model name plays {printable(script)}. Ctrl-C stops the provider.")
            return
        self.say("Ctrl-C stops the provider.")
        self.say()
        rows = [[one.name, one.plays] for one in SCRIPTS.values()]
        rows.append(["calls-N", "N budget calls, one per turn, then a good plan"])
        self.say_all(self.screen.table(COLUMNS, rows), paged=False)


def _pace(text: str) -> float:
    pace = float(text)
    if not 0 <= pace <= LONGEST_PACE:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and {LONGEST_PACE:g}")
    return pace
