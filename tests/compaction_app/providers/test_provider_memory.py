"""A provider cannot fill the memory of the server: measured on a real one."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar, Final

from tests.compaction_app.providers.provider_bombs import bomb
from tests.server import start_server

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
    assert found is not None
    return int(found[1]) / 1_000


def test_a_doubly_gzipped_answer_does_not_fill_the_memory_of_the_server(tmp_path: Path) -> None:
    assert len(Provider.body) < 10_000
    with hostile() as address, start_server(tmp_path) as server:
        models = {}
        for name, url in (
            ("closed", "http://127.0.0.1:1/v1"),
            ("ok", f"{address}/200"),
            ("failing", f"{address}/500"),
        ):
            server.post("/providers/add", "/providers/add", name=name, dialect="openai", base_url=url)
            limits = {"window": "100000", "output_limit": "8000"}
            page = server.post("/models/add", "/models/add", provider=name, name="m", **limits)
            models[name] = page.rpartition("#model-")[2]

        def tested(name: str) -> None:
            server.post("/models", f"/models/{models[name]}/test")

        # What it needs for any request to a provider is loaded before it is measured.
        tested("closed")
        before = peak_megabytes(server.child.pid)
        tested("ok")
        tested("failing")
        grown = peak_megabytes(server.child.pid) - before
    assert Provider.answered == ["/200/chat/completions", "/500/chat/completions"]
    assert grown < BAR_MEGABYTES, f"{grown:.1f} MB"
