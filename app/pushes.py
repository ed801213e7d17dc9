"""A person pushes to a pull request of ours: what stands there now is verified, and stays theirs."""

from __future__ import annotations

import asyncio

from app.check_runs import cancel_checks
from app.checkout import CheckoutTree
from app.ports import Engine, Ports
from app.stages.act import candidate_of
from app.stages.target import checkout
from app.states import Stage, State
from app.tables import Request

_VERIFIABLE = frozenset({State.in_review, State.verifying, State.repairing})


async def follow_push(ports: Ports, engine: Engine, request: Request, sha: str, login: str) -> str:
    """Verify a commit that `login` pushed to the request's branch; returns a note. Raises GitHubError."""
    if sha == request.head_sha:
        return "the commit is known"
    state = State(request.state)
    if state not in _VERIFIABLE:
        return f"request {request.id} is {state}: the push is left alone"
    stored = ports.store.candidate(request.id, pushed=True)
    if stored is None:
        return f"request {request.id} has no candidate yet"
    token = await ports.repository(request).token(contents="read", metadata="read")
    await asyncio.to_thread(ports.target(request.repository).fetch_branch, token, request.branch)
    tree = CheckoutTree(await checkout(ports, request, sha))
    candidate = candidate_of(request, stored)
    texts = {path: tree.read(path) for path in candidate.files}
    candidate.files = {path: text for path, text in texts.items() if text is not None}

    await engine.cancel(request)
    await cancel_checks(ports, request.id, "A newer commit was pushed.")
    attempt = request.attempt + 1
    ports.store.save_pushed(request.id, attempt, candidate, sha, login)
    fresh = {"attempt": attempt, "round": 0, "head_sha": sha, "failure": None, "failed_stage": None}
    why = f"{login} pushed {sha[:12]}"
    if state is State.in_review:
        ports.store.retry(request.id, State.verifying, **fresh)
    else:
        ports.store.move(request.id, State.verifying, why, **fresh)
    ports.store.note(request.id, "commit", why)
    await engine.start_stage(Stage.verify, request.id, attempt)
    return f"request {request.id}: {why}, it is verified"
