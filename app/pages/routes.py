"""Read-only pages: the list of requests, and one request live. Everything they show comes from our tables."""

from __future__ import annotations

import asyncio
from pathlib import Path

from fastapi import APIRouter, HTTPException
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from app.pages.request_page import RequestPage, request_page
from app.ports import Ports
from app.request_view import command_of

TEMPLATES = Path(__file__).parent / "templates"


def page_routes(ports: Ports) -> APIRouter:
    """GET / and GET /requests/{id}."""
    routes = APIRouter()
    templates = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)

    @routes.get("/", include_in_schema=False)
    async def index() -> RedirectResponse:
        return RedirectResponse("/requests")

    @routes.get("/requests")
    async def requests() -> HTMLResponse:
        rows = await asyncio.to_thread(ports.store.recent_requests)
        return HTMLResponse(
            templates.get_template("requests.html").render(requests=rows, command_of=command_of)
        )

    @routes.get("/requests/{request_id}")
    async def request(request_id: str) -> HTMLResponse:
        page: RequestPage | None = await asyncio.to_thread(request_page, ports, request_id)
        if page is None:
            raise HTTPException(404, "there is no such request")
        return HTMLResponse(templates.get_template("request.html").render(page=page))

    return routes
