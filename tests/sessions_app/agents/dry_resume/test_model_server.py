"""The model on loopback: it records requests, and gives a short answer in each dialect."""

import http.client
import json
from typing import Any

import pytest

from sessions_app.agents.dry_resume.model_server import ModelRequest, ModelServer


@pytest.fixture
def server():
    with ModelServer() as started:
        yield started


def post(server: ModelServer, path: str, body: Any, **options: Any) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"))
    connection.request("POST", path, body, {"content-type": "application/json"}, **options)
    response = connection.getresponse()
    return response.status, response.read()


def events(stream: bytes) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in stream.decode().splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def test_a_request_is_recorded_without_its_query(server):
    status, _ = post(server, "/v1/messages?beta=true", b'{"model": "m"}')
    assert status == 200
    assert server.requests == [ModelRequest("/v1/messages", {"model": "m"})]


def test_a_body_in_chunks_is_recorded(server):
    post(server, "/v1/messages", iter([b'{"model"', b': "m"}']), encode_chunked=True)
    assert server.requests == [ModelRequest("/v1/messages", {"model": "m"})]


def test_messages_are_streamed_on_request(server):
    _, whole = post(server, "/v1/messages", b"{}")
    assert json.loads(whole)["content"] == [{"type": "text", "text": "OK"}]
    _, stream = post(server, "/v1/messages", b'{"stream": true}')
    assert [event["type"] for event in events(stream)] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_responses_are_streamed(server):
    _, stream = post(server, "/v1/responses", b'{"stream": true}')
    last = events(stream)[-1]
    assert last["type"] == "response.completed"
    assert last["response"]["output"][0]["content"][0]["text"] == "OK"


def test_completions_are_streamed_on_request(server):
    _, whole = post(server, "/v1/chat/completions", b"{}")
    assert json.loads(whole)["choices"][0]["message"]["content"] == "OK"
    _, stream = post(server, "/v1/chat/completions", b'{"stream": true}')
    assert events(stream)[0]["choices"][0]["delta"]["content"] == "OK"
    assert stream.endswith(b"data: [DONE]\n\n")


def test_other_paths_and_other_bodies_are_refused(server):
    assert post(server, "/v1/messages", b"[]")[0] == 400
    assert post(server, "/v1/messages", b"{")[0] == 400
    assert post(server, "/v1/messages", b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}")[0] == 400
    assert server.requests == []
    assert post(server, "/v1/embeddings", b"{}")[0] == 404
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"))
    connection.request("GET", "/v1/models")
    assert connection.getresponse().status == 404
