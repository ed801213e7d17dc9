"""The pages alone, served over real tables beside a local GitHub: what their tests and their benchmark look at."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from agents.command_agent import read_profile
from agents.registry import agent_of
from app.github import GitHubApp
from app.localhub import LocalHub, RegisteredApp, ServedHub
from app.localhub.oauth import set_up_sign_in
from app.pages.routes import PagesService
from app.ports import Ports
from app.settings import Settings
from app.states import Stage, State
from app.status_comment import StatusComments
from app.store import NewRequest, Store, now
from app.tables import Approval, StoredJob
from tests.service_process import free_port, wait_for

PUBLIC, PRIVATE = "acme/kernels", "acme/secret-kernels"
STORED = json.loads((Path(__file__).parent / "data" / "pages" / "relu_squared.json").read_text())
BEFORE = "# SPDX\n\n\ndef old(x):\n    return x\n"


@dataclass
class PagesPlace:
    """Pages that answer, their tables, and the local GitHub that says who may see what."""

    hub: LocalHub
    served: ServedHub
    store: Store
    settings: Settings
    installation_id: int
    url: str
    service: PagesService
    tokens: dict[str, str]
    base_sha: str
    comments: int = 100

    def request(self, op: str = "relu2", **changes: Any) -> str:
        """A request as a comment makes it; returns its id."""
        self.comments += 1
        known = NewRequest(
            repository=PUBLIC,
            installation_id=self.installation_id,
            issue_number=self.comments,
            comment_id=self.comments,
            requester="maintainer",
            requester_id=7,
            verb="dev",
            op_text=op,
            op_key=f"{op}-{self.comments}",
        )
        return self.store.create_request(replace(known, **changes)).id

    def understood(self, identifier: str) -> None:
        """The profile waits for an answer."""
        self.store.move(identifier, State.understanding)
        body = STORED["profile"] | {"base_sha": self.base_sha}
        self.store.save_profile(identifier, 1, read_profile(body))
        self.store.move(identifier, State.awaiting_approval, base_sha=self.base_sha)

    def approved(self, identifier: str) -> None:
        """Approved, written, pushed."""
        profile = self.store.profile(identifier)
        assert profile is not None
        self.store.approve(
            Approval(
                request_id=identifier,
                profile_sha256=profile.sha256,
                login="maintainer",
                by="reaction",
                source_id=1,
                at=now(),
            )
        )
        self.store.move(identifier, State.acting, "approved by maintainer")
        candidate = agent_of("dev").candidate_type.model_validate(STORED["candidate"])
        candidate.files["src/ops.py"] = BEFORE.replace("return x", 'return x  # """ <b>new</b>')
        self.store.save_candidate(identifier, 1, 0, candidate)
        self.store.candidate_pushed(identifier, 1, 0, "b" * 40)
        web = self.settings.github_web_url
        self.store.move(
            identifier,
            State.verifying,
            "pull request #9",
            head_sha="b" * 40,
            pull_number=9,
            pull_url=f"{web}/{PUBLIC}/pull/9",
        )

    def job(self, identifier: str, gate: str, **changes: Any) -> StoredJob:
        """A gate's job, started."""
        values: dict[str, Any] = {
            "conclusion": None,
            "title": "",
            "report": None,
            "finished_at": None,
            "state": "running",
        }
        return self.store.start_job(
            StoredJob(
                id=f"{identifier}-1-0-{gate}",
                request_id=identifier,
                attempt=1,
                round=0,
                gate=gate,
                nonce="",
                head_sha="b" * 40,
                check_run_id=None,
                created_at=now() - timedelta(seconds=12),
                **(values | changes),
            )
        )

    def judged(self, identifier: str, extra: list[dict[str, Any]] | None = None) -> None:
        """Every gate has reported. extra: measurements put into the benchmark's report."""
        for one in STORED["jobs"]:
            report = json.loads(json.dumps(one["report"]))
            if one["gate"] == "benchmark" and extra:
                report["verdicts"][0]["measurements"] += extra
            self.job(
                identifier,
                one["gate"],
                state="done",
                conclusion=one["conclusion"],
                title=one["title"],
                report=report,
                finished_at=now(),
            )
            self.store.note(identifier, "gate", f"{one['gate']}: {one['conclusion']}: {one['title']}")
        self.store.move(identifier, State.in_review)

    def failed(self, identifier: str, reason: str) -> None:
        self.store.fail(identifier, Stage.understand, {"kind": "fault", "reason": reason})


def timings() -> list[dict[str, Any]]:
    """Measurements as a GPU runner reports them, with made-up numbers."""
    found = []
    for which, scale in (("forward", 1.0), ("backward", 1.6)):
        for n_cols, unit in ((4096, 0.034), (16384, 0.132)):
            for provider, factor in (("candidate", 1.0), ("eager", 2.1), ("torch.compile", 1.2)):
                median = unit * scale * factor
                tags = {
                    "op": "relu_squared",
                    "shape": f"8192x{n_cols}",
                    "dtype": "bfloat16",
                    "pass": which,
                    "provider": provider,
                    "timed": "events",
                }
                found.append(
                    {
                        "name": f"{which} {provider} {n_cols}",
                        "unit": "ms",
                        "median": median,
                        "low": median * 0.97,
                        "high": median * 1.03,
                        "n": 100,
                        "tags": tags,
                    }
                )
    return found


@contextmanager
def pages_place(
    folder: Path, *, sign_in: bool = False, database_url: str = "", **settings: Any
) -> Iterator[PagesPlace]:
    """Everything started. settings: more of the service's own."""
    files = folder / "files"
    (files / "src").mkdir(parents=True)
    (files / "src" / "ops.py").write_text(BEFORE)
    hub, port = LocalHub(folder / "hub"), free_port()
    url = f"http://127.0.0.1:{port}"
    with hub.serve() as served:
        tokens = {login: hub.create_user(login) for login in ("maintainer", "reader", "stranger")}
        base_sha = hub.create_repository("acme", "kernels", files)
        hub.create_repository("acme", "secret-kernels", files, private=True)
        hub.set_collaborator(PRIVATE, "reader", "read")
        app = hub.register_app("liger-bot", "acme", webhook_secret="s3cret")
        installation_id = hub.install_app("liger-bot", "acme")
        given: dict[str, Any] = {"client_id": "", "client_secret": ""}
        if sign_in:
            client_id, secret = set_up_sign_in(hub.context, "liger-bot", f"{url}/login/callback")
            given = {"client_id": client_id, "client_secret": secret}
        known = _settings(folder, app, served, port, given | {"database_url": database_url} | settings)
        store = Store.open(known.store_url)
        started: list[PagesService] = []
        with _serving(known, store, port, started):
            place = PagesPlace(hub, served, store, known, installation_id, url, started[0], tokens, base_sha)
            _mirror(known, base_sha, tokens["maintainer"])
            try:
                yield place
            finally:
                started[0].live.close()
        store.close()


def _settings(
    folder: Path, app: RegisteredApp, served: ServedHub, port: int, more: dict[str, Any]
) -> Settings:
    return Settings(
        _env_file=None,
        webhook_secret="s3cret",
        app_id=app.id,
        private_key=app.private_key,
        github_url=served.api_url,
        github_web_url=served.url,
        data_dir=folder / "data",
        port=port,
        **more,
    )


def _mirror(settings: Settings, base_sha: str, token: str) -> None:
    """What the understand stage leaves: the commit that was read."""
    github = GitHubApp(settings.app_id, settings.private_key.get_secret_value(), settings.github_url)
    ports = Ports(settings, None, github, None, None)  # type: ignore[arg-type] - only the mirror's place is asked for
    assert ports.target(PUBLIC).fetch_head(token) == base_sha


@contextmanager
def _serving(settings: Settings, store: Store, port: int, started: list[PagesService]) -> Iterator[None]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        github = GitHubApp(settings.app_id, settings.private_key.get_secret_value(), settings.github_url)
        ports = Ports(settings, store, github, StatusComments(settings, store, github), None)  # type: ignore[arg-type] - pages run no jobs
        service = PagesService(ports)
        service.mount(app)
        started.append(service)
        warm = asyncio.create_task(service.keep_warm())
        yield
        warm.cancel()
        await service.close()
        await github.close()

    config = uvicorn.Config(
        FastAPI(lifespan=lifespan), port=port, log_level="warning", timeout_graceful_shutdown=2
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="pages", daemon=True)
    thread.start()
    try:
        wait_for(lambda: server.started or not thread.is_alive(), 20, "the pages came up")
        yield
    finally:
        server.should_exit = True
        thread.join()
