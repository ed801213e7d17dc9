"""The target repository as a stage needs it: its commits in the mirror, their files on disk."""

from __future__ import annotations

import asyncio
from pathlib import Path

from agents.command_agent import Place
from agents.ports import Model, OnProgress
from app.checkout import CheckoutTree
from app.model_budget import BudgetedModel
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


async def _model(ports: Ports, request: Request) -> Model | None:
    if ports.model is None:
        return None
    config = await ports.config(request)
    return BudgetedModel(ports.model, ports.store, request.id, config.model_usd_per_request)


async def place(
    ports: Ports, request: Request, sha: str = "", on_progress: OnProgress | None = None
) -> Place:
    """Where the request's agent works: the checkout of `sha`, or else of the commit that the profile is made for."""
    root = await checkout(ports, request, sha or request.base_sha)
    return Place(
        tree=CheckoutTree(root),
        checkout=str(root),
        bench=ports.bench,
        model=await _model(ports, request),
        base_sha=request.base_sha,
        host=ports.web_host,
        on_progress=on_progress,
    )
