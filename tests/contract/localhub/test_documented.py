"""docs/local-github.md names every route, and no other."""

import re
from pathlib import Path

from fastapi.routing import APIRoute

from app.localhub import admin, oauth
from app.localhub.application import API_ROUTERS

PAGE = Path(__file__).parents[3] / "docs" / "local-github.md"


def test_every_route_is_documented_and_every_documented_route_exists() -> None:
    routes = {
        (method, route.path.replace(":path}", "}"))
        for router in (*API_ROUTERS, admin.router, oauth.api_router, oauth.router)
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods
    }
    tables = "\n".join(line for line in PAGE.read_text().splitlines() if line.startswith("| `"))
    named = set(re.findall(r"`(GET|POST|PUT|PATCH|DELETE) (/\S*?)`", tables))
    assert named == routes
