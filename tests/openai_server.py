"""A local server that speaks the OpenAI chat-completions protocol: scripted replies, recorded requests, bad behaviour on demand."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Reply:
    """One scripted answer. `content`: a dict is sent as JSON text; a string as it is."""

    content: dict[str, Any] | str = ""
    status: int = 200
    error: str = ""
    delay_s: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)
    finish_reason: str = "stop"
    raw_body: bytes | None = None


class OpenAIServer:
    """Answers POST /v1/chat/completions with the script, in order; `requests` holds (headers in lower case, body) of each call."""

    def __init__(self, replies: Iterable[Reply | dict[str, Any] | str]):
        self.replies = [reply if isinstance(reply, Reply) else Reply(reply) for reply in replies]
        self.requests: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.rejects_response_format = False
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    @contextmanager
    def running(self) -> Iterator[OpenAIServer]:
        thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        thread.start()
        try:
            yield self
        finally:
            self._http.shutdown()
            self._http.server_close()
            thread.join(timeout=5)

    def next_reply(self, headers: dict[str, str], body: dict[str, Any]) -> Reply:
        with self._lock:
            self.requests.append((headers, body))
            if self.rejects_response_format and "response_format" in body:
                return Reply(status=400, error="Unknown parameter: 'response_format'")
            if not self.replies:
                return Reply(status=500, error="the script has ended")
            return self.replies.pop(0)

    def _handler(server) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path != "/v1/chat/completions":
                    self._send(404, {"error": {"message": f"no route {self.path}"}}, {})
                    return
                reply = server.next_reply({name.lower(): value for name, value in self.headers.items()}, body)
                time.sleep(reply.delay_s)
                if reply.raw_body is not None:
                    self._send(reply.status, reply.raw_body, reply.headers)
                elif reply.status != 200:
                    error = {
                        "message": reply.error or "scripted failure",
                        "type": "scripted",
                        "code": str(reply.status),
                    }
                    self._send(reply.status, {"error": error}, reply.headers)
                else:
                    self._send(200, completion(body.get("model", ""), reply), reply.headers)

            def _send(self, status: int, body: dict[str, Any] | bytes, headers: dict[str, str]) -> None:
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                try:
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(data)))
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(data)
                except (BrokenPipeError, ConnectionResetError):
                    return  # the client gave up, as a test of timeouts wants

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
                return

        return Handler


def completion(model: str, reply: Reply) -> dict[str, Any]:
    """A chat.completion object as OpenAI documents it."""
    text = json.dumps(reply.content) if isinstance(reply.content, dict) else reply.content
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_750_000_000,
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text},
                "finish_reason": reply.finish_reason,
            }
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    }
