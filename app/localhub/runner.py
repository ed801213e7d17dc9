"""`python -m app.localhub.runner --hub URL --labels self-hosted,gpu`: takes the hub's jobs and runs them on this machine.

The `run` steps are executed with bash as GitHub's runner does; of actions it knows `actions/upload-artifact`. There is no
sandbox around a job, as there is none around a job on a self-hosted runner: use it for repositories that you trust.
"""

import argparse
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from app.localhub.expressions import ExpressionError, text_of

log = logging.getLogger(__name__)

IDLE_S = 0.2
BEAT_S = 0.5
DEFAULT_MINUTES = 360
BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail")


@dataclass
class Machine:
    """This runner: where its hub is, and where it works."""

    hub: httpx.Client
    name: str
    labels: list[str]
    work: Path

    def take(self) -> dict[str, Any] | None:
        """A job that waits for a runner like this, or None."""
        answer = self.hub.post("/_hub/runners/jobs", json={"name": self.name, "labels": self.labels})
        answer.raise_for_status()
        return answer.json()["job"]


@dataclass
class RunningJob:
    """One job on this machine."""

    machine: Machine
    job: dict[str, Any]
    folder: Path
    steps: list[dict[str, Any]] = field(default_factory=list)
    stopped: bool = False
    process: subprocess.Popen[bytes] | None = None

    def run(self) -> str:
        """Run the steps; returns the conclusion."""
        watching = threading.Thread(target=self._watch, daemon=True)
        watching.start()
        minutes = float(self.job["definition"].get("timeout-minutes") or DEFAULT_MINUTES)
        self._deadline = time.monotonic() + minutes * 60
        failed = False
        for step in self.job["definition"].get("steps") or []:
            always = "always()" in str(step.get("if", ""))
            if self.stopped or (failed and not always):
                continue
            shown = {"name": step.get("name") or step.get("uses") or "Run", "conclusion": None}
            self.steps.append(shown)
            try:
                ended_well = self._step(step)
            except ExpressionError as error:
                self._log(f"##[error]{error}")
                ended_well = False
            shown["conclusion"] = "success" if ended_well else "failure"
            failed = failed or not ended_well
        return "cancelled" if self.stopped else "failure" if failed else "success"

    def tell(self, conclusion: str | None = None) -> None:
        """Tell the hub how far it is; learn whether it goes on."""
        body = {"steps": self.steps, "conclusion": conclusion}
        answer = self.machine.hub.post(f"/_hub/runners/jobs/{self.job['id']}", json=body)
        answer.raise_for_status()
        if not answer.json()["goes_on"]:
            self.stopped = True

    def _watch(self) -> None:
        while not self.stopped:
            time.sleep(BEAT_S)
            try:
                self.tell()
            except httpx.HTTPError as error:
                log.warning("the hub can't be told: %s", error)
            if self.stopped or time.monotonic() > self._deadline:
                self.stopped = True
                end(self.process)

    def _step(self, step: dict[str, Any]) -> bool:
        contexts = self.job["contexts"] | {
            "runner": {"temp": str(self.folder / "temp"), "name": self.machine.name, "os": "Linux"}
        }
        if "uses" in step:
            return self._uses(step, contexts)
        definition = self.job["definition"]
        variables = {**(definition.get("env") or {}), **(step.get("env") or {})}
        environment = {
            **self._environment(contexts),
            **{key: text_of(value, contexts) for key, value in variables.items()},
        }
        script = self.folder / "temp" / "step.sh"
        script.write_text(text_of(step.get("run", ""), contexts))
        with (self.folder / "log").open("ab") as output:
            self.process = subprocess.Popen(
                [*BASH, str(script)],
                cwd=self.folder / "work",
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            code = self.process.wait()
        end(self.process)
        return code == 0

    def _environment(self, contexts: dict[str, Any]) -> dict[str, str]:
        github = {
            f"GITHUB_{name.upper()}": str(value)
            for name, value in contexts["github"].items()
            if name != "token"
        }
        ours = {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")}
        return (
            ours
            | github
            | {
                "CI": "true",
                "GITHUB_ACTIONS": "true",
                "GITHUB_WORKSPACE": str(self.folder / "work"),
                "RUNNER_NAME": self.machine.name,
                "RUNNER_OS": "Linux",
                "RUNNER_TEMP": str(self.folder / "temp"),
            }
        )

    def _uses(self, step: dict[str, Any], contexts: dict[str, Any]) -> bool:
        if not str(step["uses"]).startswith("actions/upload-artifact@"):
            self._log(f"##[error]{step['uses']} is not known here")
            return False
        asked = {key: text_of(value, contexts) for key, value in (step.get("with") or {}).items()}
        path = Path(asked["path"])
        if not path.is_file():
            self._log(f"##[error]No files were found with the provided path: {path}")
            return asked.get("if-no-files-found") != "error"
        packed = self.folder / "artifact.zip"
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.write(path, path.name)
        where = f"/_hub/workflow-runs/{self.job['run_id']}/artifacts/{asked['name']}"
        answer = self.machine.hub.post(where, content=packed.read_bytes())
        if answer.is_error:
            self._log(f"##[error]the artifact was not taken: {answer.status_code}")
        return answer.is_success

    def _log(self, line: str) -> None:
        with (self.folder / "log").open("a") as output:
            output.write(f"{line}\n")


def end(process: subprocess.Popen[bytes] | None) -> None:
    """End a step and whatever it has started."""
    if process is None:
        return
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def run_one(machine: Machine) -> bool:
    """Take one job and run it; False when none waits."""
    job = machine.take()
    if job is None:
        return False
    folder = Path(tempfile.mkdtemp(prefix=f"job-{job['id']}-", dir=machine.work))
    for name in ("work", "temp"):
        (folder / name).mkdir()
    running = RunningJob(machine, job, folder)
    try:
        conclusion = running.run()
        running.tell(conclusion)
    finally:
        end(running.process)
        running.stopped = True
    tail = (folder / "log").read_text(errors="replace")[-4000:] if (folder / "log").exists() else ""
    log.info("job %s: %s\n%s", job["id"], conclusion, tail)
    shutil.rmtree(folder, ignore_errors=True)
    return True


def main(arguments: list[str] | None = None) -> int:
    """Take jobs until ended."""
    parser = argparse.ArgumentParser(prog="python -m app.localhub.runner", description=__doc__)
    parser.add_argument("--hub", required=True, help="address of the local GitHub")
    parser.add_argument("--labels", default="self-hosted", help="labels of this runner, comma separated")
    parser.add_argument("--name", default="runner-1", help="name of this runner")
    parser.add_argument("--work", type=Path, help="folder to work in; a temporary one when left out")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    work = options.work or Path(tempfile.mkdtemp(prefix="liger-bot-runner-"))
    work.mkdir(parents=True, exist_ok=True)
    # so that the steps of a job that is running end with the runner
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with httpx.Client(base_url=options.hub, timeout=30, trust_env=False) as hub:
        machine = Machine(hub, options.name, options.labels.split(","), work)
        while True:
            try:
                busy = run_one(machine)
            except httpx.HTTPError as error:
                log.warning("the hub doesn't answer: %s", error)
                busy = False
            if not busy:
                time.sleep(IDLE_S)


if __name__ == "__main__":
    sys.exit(main())
