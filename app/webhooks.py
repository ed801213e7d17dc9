"""The HTTP door: signature over the raw body, size, duplicates; what passes is stored, then acknowledged, then processed."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import SecretStr
from sqlalchemy.exc import SQLAlchemyError

from app.deliveries import MODELS, subject_of
from app.store import NewDelivery

MAX_BODY_BYTES = 25 * 1024 * 1024  # GitHub delivers nothing larger
_SIGNATURE = "sha256="

Accept = Callable[[NewDelivery], Awaitable[bool]]  # keeps a delivery; False when it is known


def signature_is_valid(secret: str, body: bytes, header: str | None) -> bool:
    """Whether X-Hub-Signature-256 is the HMAC of the raw body."""
    if not secret or header is None or not header.isascii() or not header.startswith(_SIGNATURE):
        return False
    expected = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected, header[len(_SIGNATURE) :].lower())


def webhook_routes(
    secret: SecretStr, accept: Accept, count: Callable[[str], None] = lambda _outcome: None
) -> APIRouter:
    """POST /webhook. count: told of each delivery's outcome."""
    routes = APIRouter()

    def refuse(status: int, why: str, outcome: str = "refused") -> JSONResponse:
        count(outcome)
        return JSONResponse({"error": why}, status)

    @routes.post("/webhook")
    async def receive(request: Request) -> Response:
        body = await _read(request)
        if body is None:
            return refuse(413, "the body is larger than 25 MB")
        header = request.headers.get("X-Hub-Signature-256")
        if not signature_is_valid(secret.get_secret_value(), body, header):
            return refuse(401, "the signature is missing or wrong")
        event = request.headers.get("X-GitHub-Event", "")
        guid = request.headers.get("X-GitHub-Delivery", "")
        if not event or not 0 < len(guid) <= 100:
            return refuse(400, "X-GitHub-Event and X-GitHub-Delivery are needed")
        try:
            text = body.decode("utf-8")
            payload = await asyncio.to_thread(json.loads, text) if len(body) > 100_000 else json.loads(text)
        except (ValueError, RecursionError):
            return refuse(400, "the body is not JSON")
        if not isinstance(payload, dict):
            return refuse(400, "the body is not a JSON object")
        if event not in MODELS or "installation" not in payload:
            count("ignored")
            return JSONResponse({"status": "ignored"}, 202)
        try:
            fresh = await accept(NewDelivery(guid, event, text, subject_of(event, payload)))
        except SQLAlchemyError:
            return refuse(503, "can't be stored now; send it again", "not stored")
        outcome = "accepted" if fresh else "known"
        count(outcome)
        return JSONResponse({"status": outcome}, 202)

    return routes


async def _read(request: Request) -> bytes | None:
    """The raw body; None when it is too large, without having read it all."""
    length = request.headers.get("Content-Length", "")
    if length.isdigit() and int(length) > MAX_BODY_BYTES:
        return None
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            return None
        chunks.append(chunk)
    return b"".join(chunks)
