"""Pages for people: read, comment, react, merge; no script is needed for any of it."""

from pathlib import Path

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response
from fastapi.staticfiles import StaticFiles

from app.localhub.errors import ApiError
from app.localhub.pages import checks, issues, new_app, pulls, repositories
from app.localhub.pages.viewer import page_transaction, render, viewer_of

router = APIRouter(include_in_schema=False)
for part in (new_app.router, issues.router, checks.router, pulls.router, repositories.router):
    router.include_router(part)


def _error_page(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)  # noqa: S101 - the handler is registered for this type
    if "text/html" not in request.headers.get("accept", ""):
        return error.reply()
    viewer = viewer_of(request)
    detail = "; ".join(
        item
        if isinstance(item, str)
        else str(item.get("message") or f"{item.get('field')}: {item.get('code')}")
        for item in error.errors or []
    )
    with page_transaction(request, viewer) as tx:
        return render(
            request, tx, viewer, "error.html", status=error.status, message=error.message, detail=detail
        )


def install_pages(web: FastAPI) -> None:
    """Add the pages, their style sheet, and errors that a person can read."""
    web.mount("/_static", StaticFiles(directory=Path(__file__).with_name("static")), name="static")
    web.add_exception_handler(ApiError, _error_page)
    web.include_router(router)
