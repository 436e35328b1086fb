"""A dry resume: the client's program, the model on loopback, and what was sent, compared with what should be."""

import base64
import http.client
import json
import os
from pathlib import Path
from typing import Any

import pytest

from sessions_app.agents.edge.dry_resume import (
    OUTPUT_LIMIT,
    PROBE,
    ClientExit,
    ClientUnusable,
    difference,
    has_probe,
    new_scratch,
    run_client,
)
from sessions_app.agents.edge.model_server import ModelRequest, ModelServer
from tests.sessions_app.sessionlog.test_image_size import png
from tests.wait import wait_until

Said = dict[str, Any]


def said(role: str, *texts: str, **fields: Any) -> Said:
    return {"role": role, "content": [{"type": "text", "text": text} for text in texts], **fields}


FIRST, SECOND = said("user", "one"), said("assistant", "two")
SESSION = [FIRST, SECOND]
END = [said("user", "<reminder>be kind", PROBE), said("system", "# Rules")]
CACHED = {"role": "assistant", "content": [{"type": "text", "text": "two", "cache_control": {}}]}
REMINDED = said("user", "<reminder>be kind", "one")
ANOTHER, MORE = "message 2, assistant, has another content", "after the 2 messages of the session it sends another one"


def found(sent: list[Said], expected: list[Said]) -> str:
    return difference(sent, END, expected, ("<reminder>",))


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param([*SESSION, *END], id="plain"),
        pytest.param([REMINDED, SECOND, said("user", PROBE)], id="before"),
        pytest.param([*SESSION, said("user", "<reminder>you are elsewhere", PROBE)], id="elsewhere"),
        pytest.param([*SESSION, said("system", "the directory is another one"), said("user", PROBE)], id="system"),
        pytest.param([{"role": "user", "content": "one"}, SECOND, {"role": "user", "content": PROBE}], id="string"),
        pytest.param([{**FIRST, "id": "x"}, SECOND, said("system", output_config={}), *END], id="ids"),
        pytest.param([FIRST, CACHED, *END], id="cache"),
    ],
)
def test_what_a_client_adds_is_not_a_difference(sent):
    assert found(sent, SESSION) == ""
    assert found(sent, [REMINDED, SECOND]) == "", "what is recorded of it is not compared"


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ([FIRST, said("assistant", "other"), *END], ANOTHER),
        ([FIRST, said("assistant", "two", "more"), *END], ANOTHER),
        ([FIRST, said("assistant", "two", tool_calls=[{"id": "c1"}]), *END], ANOTHER),
        ([FIRST, said("user", "two"), *END], "message 2 is user instead of assistant"),
        ([FIRST, *END], "it sends 1 message instead of 2: message 2 (assistant) is missing"),
        ([*SESSION, said("user", "three"), *END], f"{MORE}, user"),
        ([*SESSION, said("assistant", "three"), *END], f"{MORE}, assistant"),
        ([*SESSION, said("user", "three", PROBE)], f"{MORE}, user"),
        ([said("system", "more rules"), *SESSION, *END], "message 1 is system instead of user"),
    ],
)
def test_the_first_difference_is_named(sent, words):
    assert found(sent, SESSION) == words


def test_a_type_that_is_no_text_is_compared_like_any_other_value():
    one, other = (
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {"type": recorded}}]}
        for recorded in (["string", "null"], {})
    )
    assert found([FIRST, one, *END], [FIRST, one]) == ""
    assert found([FIRST, other, *END], [FIRST, one]) == ANOTHER


def test_items_without_a_role_are_compared_whole():
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"}
    thought = {"type": "reasoning", "content": [{"type": "text", "text": "hm"}], "summary": []}
    items = [FIRST, thought, call]
    assert found([*items, *END], [FIRST, thought, {**call, "id": "fc_2"}]) == ""
    changed = {**call, "arguments": "{ }"}
    assert found([FIRST, thought, changed, *END], items) == "message 3, function_call, has another content"
    assert found([FIRST, call, *END], items) == "message 2 is function_call instead of reasoning"
    other = {**thought, "content": [{"type": "text", "text": "hm!"}]}
    assert found([FIRST, other, call, *END], items) == "message 2, reasoning, has another content"


def picture(width: int, height: int, more: bytes = b"") -> str:
    """The beginning of a PNG of this size."""
    return base64.b64encode(png(width, height) + more).decode()


LARGE, OTHER = picture(3000, 2000), picture(3000, 2000, b"other")
FORMS: dict[str, tuple[Any, Any, bool]] = {
    "a lone surrogate": ("cut \ufffd", "cut \ud83d", True),
    "another character": ("cut ?", "cut \ud83d", False),
    "null for nothing": ({"a": {"command": ["ls"], "env": None}}, {"a": {"command": ["ls"]}, "b": None}, True),
    "null for a value": ({"a": None}, {"a": 0}, False),
    "another type": ({"a": True}, {"a": 1}, False),
    "a smaller image": (picture(1920, 1280), LARGE, True),
    "a rounded side of an image": (picture(2048, 1365), LARGE, True),
    "another shape": (picture(1920, 1200), LARGE, False),
    "a larger image": (picture(6000, 4000), LARGE, False),
    "another image of the session": (OTHER, LARGE, False),
    "no image": ("aGk=", LARGE, False),
    "the same broken image": ("aGk=", "aGk=", True),
}
PLACES = {
    "Messages": lambda data: {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}},
    "Responses": lambda data: {"type": "input_image", "image_url": f"data:image/png;base64,{data}"},
    "Completions": lambda data: {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
}


def in_a_message(value: Any, image: Said) -> list[Said]:
    return [{"role": "user", "content": [{"type": "result", "content": value}, image]}]


def in_items(value: Any, image: Said) -> list[Said]:
    return [{"type": "f_output", "output": value}, {"role": "user", "content": [image]}]


@pytest.mark.parametrize("form", FORMS)
def test_the_form_of_a_value_is_no_difference(form):
    sent, recorded, is_same = FORMS[form]
    fields = "image" not in form
    for wrap in PLACES.values():
        one, other = (value if fields else [wrap(value)] for value in (sent, recorded))
        for made in (in_a_message, in_items):
            theirs, mine = made(one, wrap(OTHER)), made(other, wrap(OTHER))
            assert (found([*theirs, *END], mine) == "") is is_same


def test_a_conversation_ends_with_the_prompt_which_may_be_joined_and_texts_may_be_worded():
    assert has_probe([*SESSION, *END])
    assert not has_probe([said("user", PROBE), *SESSION])
    assert not has_probe(SESSION)
    for joined in (["one", "<reminder>you are elsewhere", PROBE], ["one\n", PROBE]):
        assert found([said("user", *joined)], [FIRST]) == ""
    assert found([said("user", "one", "two", PROBE)], [FIRST]) == "message 1, user, has another content"
    worded = [said("system", "While you worked, the user wrote: one. Answer it."), *END]
    assert found(worded, [said("system", "one")]) == ""
    assert found(worded, [said("system", "two")]) == "message 1, system, has another content"
    assert found([said("user", "<reminder>the user wrote: one", "go"), *END], [said("user", "one", "go")]) == ""
    assert found([said("user", "he wrote: one"), *END], [said("user", "one")]) != ""


@pytest.fixture
def server():
    with ModelServer() as started:
        yield started


def ask(server: ModelServer, path: str, body: Any = None, method: str = "POST", **options: Any) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"))
    connection.request(method, path, body, {"content-type": "application/json"}, **options)
    response = connection.getresponse()
    return response.status, response.read()


def events(stream: bytes) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in stream.decode().splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def test_a_request_is_recorded_without_its_query_and_so_is_a_body_in_chunks(server):
    assert ask(server, "/v1/messages?beta=true", b'{"model": "m"}')[0] == 200
    ask(server, "/v1/messages", iter([b'{"model"', b': "m"}']), encode_chunked=True)
    assert server.requests == [ModelRequest("/v1/messages", {"model": "m"})] * 2


def test_messages_responses_and_completions_are_streamed_on_request(server):
    _, whole = ask(server, "/v1/messages", b"{}")
    assert json.loads(whole)["content"] == [{"type": "text", "text": "OK"}]
    _, stream = ask(server, "/v1/messages", b'{"stream": true}')
    kinds = "message_start content_block_start content_block_delta content_block_stop message_delta message_stop"
    assert [event["type"] for event in events(stream)] == kinds.split()
    last = events(ask(server, "/v1/responses", b'{"stream": true}')[1])[-1]
    assert last["type"] == "response.completed"
    assert last["response"]["output"][0]["content"][0]["text"] == "OK"
    _, whole = ask(server, "/v1/chat/completions", b"{}")
    assert json.loads(whole)["choices"][0]["message"]["content"] == "OK"
    _, stream = ask(server, "/v1/chat/completions", b'{"stream": true}')
    assert events(stream)[0]["choices"][0]["delta"]["content"] == "OK"
    assert stream.endswith(b"data: [DONE]\n\n")


def test_other_paths_and_other_bodies_are_refused(server):
    for body in (b"[]", b"{", b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"):
        assert ask(server, "/v1/messages", body)[0] == 400
    assert server.requests == []
    assert ask(server, "/v1/embeddings", b"{}")[0] == 404
    assert ask(server, "/v1/models", method="GET")[0] == 404


def run(tmp_path: Path, code: str, seconds: float = 60) -> ClientExit:
    scratch = new_scratch(tmp_path, "http://127.0.0.1:1")
    return run_client(["sh", "-c", code], cwd=scratch.project, environment=scratch.environment, seconds=seconds)


def test_it_gets_no_input_and_nothing_of_the_users_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "secret")
    first, environment = run(tmp_path, 'echo "$(cat)$(pwd -P)"; env').output.split("\n", 1)
    assert first == str((tmp_path / "project").resolve())
    assert "secret" not in environment
    assert str(Path.home()) not in environment.replace(os.environ["PATH"], "")


def test_the_end_of_its_output_is_kept(tmp_path):
    ended = run(tmp_path, f"head -c {2 * OUTPUT_LIMIT} /dev/zero; echo end")
    assert len(ended.output) == OUTPUT_LIMIT
    assert ended.output.endswith("end\n")


def test_what_it_started_ends_with_it(tmp_path):
    pid = int(run(tmp_path, "sleep 600 & echo $!").output)
    wait_until(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text())


def test_it_is_ended_after_some_time(tmp_path):
    ended = run(tmp_path, "sleep 600", seconds=0.1)
    assert ended.code is None
    assert "did not end" in ended.last_words


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        (ClientExit(1, "out\n", "a\nb\n"), "b"),
        (ClientExit(1, "a\nout\n", " \n"), "out"),
        (ClientExit(3, "", ""), "exit code 3."),
    ],
)
def test_its_last_words(ended, words):
    assert ended.last_words == words


def test_a_program_that_does_not_exist(tmp_path):
    scratch = new_scratch(tmp_path, "")
    with pytest.raises(ClientUnusable, match="nothing: No such file"):
        run_client([str(tmp_path / "nothing")], cwd=tmp_path, environment=scratch.environment)
