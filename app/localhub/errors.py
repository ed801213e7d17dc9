"""GitHub's error replies: one exception that is the reply."""

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

DOCUMENTATION = "https://docs.github.com/rest"


class ApiError(Exception):
    """A reply of `status` with GitHub's `message`; `errors` lists the fields at fault."""

    def __init__(
        self,
        status: int,
        message: str,
        errors: Sequence[Mapping[str, Any] | str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.errors = errors
        self.headers = dict(headers or {})

    def reply(self) -> JSONResponse:
        """The HTTP reply. GitHub repeats the status in the body, as a string."""
        body: dict[str, Any] = {"message": self.message}
        if self.errors is not None:
            body["errors"] = [error if isinstance(error, str) else dict(error) for error in self.errors]
        body["documentation_url"] = DOCUMENTATION
        body["status"] = str(self.status)
        return JSONResponse(body, status_code=self.status, headers=self.headers)


def not_found() -> ApiError:
    """404: not there, or not visible to the caller; GitHub doesn't say which."""
    return ApiError(404, "Not Found")


def not_accessible(accepted: str = "") -> ApiError:
    """403 for an App's token that lacks a permission; `accepted` names what would do, as `issues=write`."""
    headers = {"X-Accepted-GitHub-Permissions": accepted} if accepted else {}
    return ApiError(403, "Resource not accessible by integration", headers=headers)


def invalid(resource: str, field: str, code: str, message: str | None = None) -> ApiError:
    """422 with one field error; `code` is GitHub's: missing, missing_field, invalid, already_exists, custom."""
    error: dict[str, Any] = {"resource": resource, "field": field, "code": code}
    if message is not None:
        error["message"] = message
    return ApiError(422, "Validation Failed", [error])


def _request_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - the handler is registered for this type
    problems = []
    for item in error.errors():
        if item["type"] == "json_invalid":
            return ApiError(400, "Problems parsing JSON").reply()
        where = [str(part) for part in item["loc"] if part not in ("body", "query", "path", "header")]
        if item["loc"][0] == "path":
            return not_found().reply()
        if item["type"] == "missing":
            problems.append(
                f'"{".".join(where)}" wasn\'t supplied.' if where else "A JSON object is required."
            )
        else:
            problems.append(f"For '{'/'.join(where)}', {item['msg'][0].lower()}{item['msg'][1:]}.")
    return ApiError(422, "Invalid request.\n\n" + "\n".join(problems)).reply()


def _http_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101 - the handler is registered for this type
    message = "Not Found" if error.status_code in (404, 405) else str(error.detail)
    return ApiError(404 if error.status_code == 405 else error.status_code, message).reply()


def install_error_replies(api: FastAPI) -> None:
    """Make every error of `api` speak as GitHub does."""
    api.add_exception_handler(ApiError, lambda _request, error: error.reply())  # type: ignore[attr-defined]
    api.add_exception_handler(RequestValidationError, _request_error)
    api.add_exception_handler(HTTPException, _http_error)
