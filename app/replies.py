"""Answers one comment with one reply, however often it is asked to."""

from __future__ import annotations

import logging

from app.comments import replies
from app.github import GitHubError, GitHubRepository, ReactionContent

log = logging.getLogger(__name__)


async def answer(repository: GitHubRepository, issue: int, to: int | str, text: str) -> None:
    """Reply to a comment, or to what `to` names, unless it has its reply."""
    if await repository.find_comment(issue, replies.reply_marker(to)) is None:
        await repository.create_comment(issue, replies.reply(to, text))


async def react(repository: GitHubRepository, comment_id: int, content: ReactionContent) -> None:
    """React to a comment. A courtesy: when GitHub doesn't take it, the work goes on."""
    try:
        await repository.react(comment_id, content)
    except GitHubError as error:
        log.warning("%s: no %s on comment %s: %s", repository.full_name, content, comment_id, error)
