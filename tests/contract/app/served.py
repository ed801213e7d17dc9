"""The whole service in this process, on a port, with a local GitHub beside it and everything that it logs kept."""

from __future__ import annotations

import hashlib
import hmac
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from app.localhub import LocalHub
from app.main import create_app
from app.settings import Settings
from tests.service_process import free_port, wait_for

SECRET, REPOSITORY = "a secret for tests", "acme/kernels"


def signed(body: bytes) -> dict[str, str]:
    """The header of a delivery that GitHub signed."""
    return {"X-Hub-Signature-256": f"sha256={hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()}"}


@dataclass
class Served:
    """The service, and what it logged from warnings on."""

    url: str
    app: FastAPI
    installation_id: int
    logged: list[logging.LogRecord]

    def faults_after(self, already: int) -> list[str]:
        """Errors and exceptions logged after the first `already` records, once every delivery is processed."""
        wait_for(lambda: not self.app.state.store.waiting_deliveries(), 60, "every delivery was processed")
        wrong = [one for one in self.logged[already:] if one.levelno >= logging.ERROR or one.exc_info]
        return [logging.Formatter().format(one) for one in wrong]


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@contextmanager
def served_service(folder: Path) -> Iterator[Served]:
    """The service with its data in `folder`, the App installed for REPOSITORY."""
    (folder / "files").mkdir()
    (folder / "files" / "README.md").write_text("# Kernels\n")
    hub, port, kept = LocalHub(folder / "hub"), free_port(), _Kept()
    with hub.serve() as served:
        hub.create_repository("acme", "kernels", folder / "files")
        registered = hub.register_app("liger-bot", "acme", f"http://127.0.0.1:{port}/webhook", SECRET)
        installation = hub.install_app("liger-bot", "acme")
        known = Settings(
            _env_file=None, webhook_secret=SECRET, app_id=registered.id, private_key=registered.private_key,
            client_id="Iv1.test", client_secret="another secret", github_url=served.api_url, github_web_url=served.url,
            data_dir=folder / "data", port=port, executor_id=folder.name, compile_schedules=False,
        )  # fmt: skip
        app = create_app(known)
        server = uvicorn.Server(uvicorn.Config(app, port=port, log_config=None, timeout_graceful_shutdown=2))
        thread = threading.Thread(target=server.run, name="service", daemon=True)
        logging.getLogger().addHandler(kept)
        thread.start()
        try:
            wait_for(lambda: server.started or not thread.is_alive(), 60, "the service came up")
            yield Served(f"http://127.0.0.1:{port}", app, installation, kept.records)
        finally:
            server.should_exit = True
            app.state.end_streams()
            thread.join(30)
            logging.getLogger().removeHandler(kept)
