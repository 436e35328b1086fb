"""A server's address is on this machine, and one process listens there."""

import os
import socket

import pytest

from sessions_app.disk.loopback import LoopbackAddress, is_listening, loopback_address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("http://127.0.0.1:4096", "127.0.0.1", 4096),
        ("http://127.0.0.1:4096/", "127.0.0.1", 4096),
        ("http://127.8.9.1:1", "127.8.9.1", 1),
        ("http://[::1]:4096", "::1", 4096),
    ],
)
def test_an_address_on_this_machine(text, host, port):
    assert loopback_address(text) == (host, port)
    assert loopback_address(str(loopback_address(text))) == (host, port)


OTHERS = """
    127.0.0.1:4096 http://127.0.0.1 http://127.0.0.1:0 http://127.0.0.1:99999 http://localhost:4096
    http://192.168.0.2:4096 http://0.0.0.0:4096 http://[::]:4096 http://example.org:4096
    http://127.0.0.1.example.org:4096 http://me:secret@127.0.0.1:4096 http://127.0.0.1:4096/path
    http://127.0.0.1:4096?a https://127.0.0.1:4096
"""


@pytest.mark.parametrize("text", ["", *OTHERS.split()])
def test_any_other_address_is_refused(text):
    with pytest.raises(ValueError, match=r"address|[Pp]ort"):
        loopback_address(text)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "::"])  # noqa: S104  # all are to be found
def test_this_process_listens(host):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as server:
        server.bind((host, 0))
        reached = LoopbackAddress("::1" if ":" in host else "127.0.0.1", server.getsockname()[1])
        assert not is_listening(os.getpid(), reached)
        server.listen()
        assert is_listening(os.getpid(), reached)
        assert not is_listening(os.getppid(), reached)
        assert not is_listening(os.getpid(), LoopbackAddress("127.9.9.9", 1))
    assert not is_listening(os.getpid(), reached)
