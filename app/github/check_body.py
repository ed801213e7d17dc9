"""A check run as GitHub's API takes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.github.records import Annotation, Check

ANNOTATIONS_A_REQUEST = 50
MAX_TITLE_CHARS = 255
MAX_MESSAGE_CHARS = 60_000


def check_body(check: Check, annotations: Sequence[Annotation]) -> dict[str, Any]:
    """The body of a request; `annotations` are those that go with this one."""
    output: dict[str, Any] = {
        "title": check.title[:MAX_TITLE_CHARS] or check.name,
        "summary": check.summary,
        "text": check.text or None,
    }
    if annotations:
        output["annotations"] = [
            {
                "path": one.path,
                "start_line": max(1, one.line),
                "end_line": max(1, one.line),
                "annotation_level": one.level,
                "message": one.message[:MAX_MESSAGE_CHARS],
                **({"title": one.title[:MAX_TITLE_CHARS]} if one.title else {}),
            }
            for one in annotations
        ]
    body: dict[str, Any] = {
        "name": check.name,
        "output": {key: value for key, value in output.items() if value is not None},
    }
    if check.details_url:
        body["details_url"] = check.details_url
    if check.conclusion:
        body |= {"status": "completed", "conclusion": check.conclusion}
    else:
        body["status"] = "in_progress"
    return body
