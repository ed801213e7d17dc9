"""The target repository as a stage needs it: its commits in the mirror, their files on disk."""

from __future__ import annotations

import asyncio
from pathlib import Path

from app.checkout import CheckoutTree
from app.ports import Ports
from app.tables import Request


async def fetch_base(ports: Ports, request_id: str) -> str:
    """Bring the default branch here and remember the commit that this attempt starts from."""
    request = ports.store.request(request_id)
    repository = ports.repository(request)
    branch = await repository.default_branch()
    token = await repository.token(contents="read", metadata="read")
    sha = await asyncio.to_thread(ports.target(request.repository).fetch_branch, token, branch.name)
    ports.store.update_request(request_id, base_sha=sha, default_branch=branch.name)
    return sha


async def checkout(ports: Ports, request: Request, sha: str) -> Path:
    """The files of a commit on disk; fetched again when this machine doesn't have it."""
    target = ports.target(request.repository)
    if not await asyncio.to_thread(target.has, sha):
        repository = ports.repository(request)
        token = await repository.token(contents="read", metadata="read")
        for branch in filter(None, (request.branch, request.default_branch)):
            await asyncio.to_thread(target.fetch_branch, token, branch)
            if await asyncio.to_thread(target.has, sha):
                break
    return await asyncio.to_thread(target.checkout, sha)


async def base_tree(ports: Ports, request: Request) -> CheckoutTree:
    """The checkout that the profile was made for."""
    return CheckoutTree(await checkout(ports, request, request.base_sha))
