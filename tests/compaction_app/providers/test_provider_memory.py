"""A provider cannot fill the memory of the server: measured on a real one."""

import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar, Final

from tests.compaction_app.providers.provider_bombs import bomb
from tests.scripted_models import added_provider

BAR_MEGABYTES: Final = 20


class Provider(BaseHTTPRequestHandler):
    """Answers every request with 3.5 GB of zeros, gzipped twice: some 8 KB on the network."""

    body: Final = bomb(megabytes=3_500)
    answered: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.answered.append(self.path)
        self.rfile.read(int(self.headers["content-length"]))
        # The first part of the address says with which status.
        self.send_response(int(self.path.split("/")[1]))
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-encoding", "gzip, gzip")
        self.send_header("content-length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # as its base calls it
        del format, args


@contextmanager
def hostile() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def peak_megabytes(process: int) -> float:
    """The most memory that a process has had so far."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    return int(found[1]) / 1_000


def test_a_doubly_gzipped_answer_does_not_fill_the_memory_of_the_server(shared_server):
    assert len(Provider.body) < 10_000
    process = shared_server.child.pid
    with hostile() as address, ExitStack() as added:
        bases = {"closed": "http://127.0.0.1:1/v1", "ok": f"{address}/200", "failing": f"{address}/500"}
        models = {
            name: added.enter_context(added_provider(shared_server, name, base, "m"))[0] for name, base in bases.items()
        }
        # What it needs for any request to a provider is loaded before it is measured.
        shared_server.post("/models", f"{models['closed']}/test")
        # What it needed for earlier tests is forgotten.
        Path(f"/proc/{process}/clear_refs").write_text("5")
        before = peak_megabytes(process)
        for name in ("ok", "failing"):
            shared_server.post("/models", f"{models[name]}/test")
        grown = peak_megabytes(process) - before
    assert Provider.answered == ["/200/chat/completions", "/500/chat/completions"]
    assert grown < BAR_MEGABYTES, f"{grown:.1f} MB"
