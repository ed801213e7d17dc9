"""GitHub, as much of it as the bot uses: the only importer of githubkit.

    GitHubError                what GitHub said, with its message, redacted
    ├── NotFoundError          404
    ├── ForbiddenError         401, 403
    ├── RejectedError          422 and other 4xx: our request was wrong
    ├── LimitedError           a rate limit; `retry_after_s` says for how long
    └── UnreachableError       no answer, or 5xx

Reading is tried three times. A POST is sent once: whoever calls makes sure, by marker, head or external id, that a
second call finds what the first one made.
"""

from app.github.actions import Actions, Artifact, Run, TooLargeError
from app.github.app import GitHubApp
from app.github.errors import (
    ForbiddenError,
    GitHubError,
    LimitedError,
    NotFoundError,
    RejectedError,
    UnreachableError,
    redact,
)
from app.github.records import Annotation, AppIdentity, Branch, Check, Comment, FailedDelivery, Pull, Reaction
from app.github.repository import GitHubRepository, ReactionContent

__all__ = [
    "Actions",
    "Annotation",
    "AppIdentity",
    "Artifact",
    "Branch",
    "Check",
    "Comment",
    "FailedDelivery",
    "ForbiddenError",
    "GitHubApp",
    "GitHubError",
    "GitHubRepository",
    "LimitedError",
    "NotFoundError",
    "Pull",
    "Reaction",
    "ReactionContent",
    "RejectedError",
    "Run",
    "TooLargeError",
    "UnreachableError",
    "redact",
]
