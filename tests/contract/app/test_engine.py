"""The workflow engine: one process a name, and a dead process's work taken up by a live one."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dbos import DBOS
from pydantic import SecretStr

from app.dispatch import LocalBench
from app.github import GitHubApp
from app.ports import Ports
from app.settings import Settings
from app.states import Stage, State
from app.status_comment import StatusComments
from app.store import NewRequest, Store
from app.workflows import engine as engine_module
from app.workflows.engine import Engine, ExecutorTakenError
from app.workflows.stages import workflow_id

# Nothing listens there: the first step of a stage tries again and again.
NOWHERE = "http://127.0.0.1:9/api/v3"
NEW = NewRequest("acme/kernels", 1, 1, 10, "maintainer", 7, "dev", "relu2", "relu_squared")
START_AND_HANG = """
import asyncio, sys
from pathlib import Path
from tests.contract.app.test_engine import ports
from app.states import Stage
from app.workflows.engine import Engine

async def main():
    engine = Engine(ports(Path(sys.argv[1]), "one"))
    await engine.start()
    print("started", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def ports(folder: Path, executor_id: str) -> Ports:
    settings = Settings(
        webhook_secret=SecretStr("s"),
        app_id=1,
        private_key=SecretStr(PRIVATE_KEY),
        github_url=NOWHERE,
        data_dir=folder,
        executor_id=executor_id,
    )
    store = Store.open(settings.store_url)
    github = GitHubApp(1, PRIVATE_KEY, NOWHERE)
    return Ports(settings, store, github, StatusComments(settings, store, github), LocalBench())


def _key() -> str:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(encoding, form, serialization.NoEncryption()).decode()


PRIVATE_KEY = _key()


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Ports]:
    ours = ports(tmp_path, "two")
    yield ours
    ours.store.close()


async def test_a_name_that_a_live_process_uses_is_refused(here: Ports):
    here.store.heartbeat("two", "another-host:1")
    with pytest.raises(ExecutorTakenError, match="another-host:1"):
        await Engine(here).start()


async def test_a_name_whose_process_is_dead_is_taken_over(here: Ports):
    dead = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await dead.wait()
    here.store.heartbeat("two", f"{socket.gethostname()}:{dead.pid}")
    engine = Engine(here)
    await engine.start()
    holder = here.store.executor("two")
    assert holder is not None
    assert holder.process == f"{socket.gethostname()}:{os.getpid()}"
    await engine.stop()
    assert here.store.executor("two") is None


async def test_the_engine_refuses_to_send_workflow_data_elsewhere(
    here: Ports, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DBOS_CONDUCTOR_KEY", "key")
    with pytest.raises(RuntimeError, match="DBOS_CONDUCTOR_KEY"):
        await Engine(here).start()


async def test_what_a_dead_process_left_is_taken_up(
    here: Ports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    request = here.store.create_request(NEW)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", START_AND_HANG, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), 60) == b"started\n"
    process.send_signal(signal.SIGKILL)
    await process.wait()
    here.store.move(request.id, State.cancelled)  # so that the workflow ends at its next step
    assert here.store.claim_write("what it was making", "one")
    assert here.store.claim_write("what its namesake was making", "two")
    assert not here.store.claim_write("what it was making", "three")
    here.store.heartbeat("silent", "another-host:1")
    assert here.store.claim_write("what may still be made", "silent")

    monkeypatch.setattr(engine_module, "SILENT_S", 0.1)
    engine = Engine(here)
    await asyncio.sleep(0.2)
    await engine.start()
    # nobody has to wait for claims of the dead to run out
    assert here.store.claim_write("what it was making", "three")
    assert here.store.claim_write("what its namesake was making", "three")
    assert not here.store.claim_write("what may still be made", "three")
    identifier = workflow_id(request.id, Stage.understand, 1)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        status = await DBOS.get_workflow_status_async(identifier)
        if status is not None and status.status == "SUCCESS":
            break
        await asyncio.sleep(0.2)
    assert status is not None
    assert (status.status, status.executor_id) == ("SUCCESS", "two")
    await engine.rescue()
    assert here.store.executor("one") is None
    await engine.stop()
