"""Many requests while processes are killed at random moments: what is sent, what is killed, and what must hold after."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import psutil

from app.actions.workflow import WORKFLOW_PATH, workflow_text
from tests.artifacts import zipped
from tests.e2e.test_actions import artifact_name, report_for
from tests.liger_checkout import liger_checkout
from tests.postgres_server import PostgresServer, postgres_server
from tests.service_process import Scene, scene

CONFIG = "runners:\n  sm_90: [self-hosted, h100]\n"
GATES = ("style", "correctness", "compile", "benchmark")
WAITING = "waiting for your decision"
READY = "ready for review"
LOOK_EVERY_S = 0.5
# Each once: a second live request for the same op is another thing.
OPS = ("relu2", "mish", "squareplus", "quick_gelu", "hardswish", "softsign", "logsigmoid", "tanhshrink")
REPLIES = {
    "help": ("/liger help", "one command a comment"),
    "status": ("/liger status", "no request was made here yet"),
    "mistake": ("/liger deev relu2", "Did you mean `dev`?"),
    "not available": ("/liger perf rms_norm", "is not available yet"),
    "refused": ("/liger dev https://example.com/a/b/blob/main/c.py#L1-L3", "Only links to"),
}
UNDERIVABLE = (
    "/liger dev\n```python\nimport torch\n\ndef sorted_{number}(x):\n    return torch.sort(x)[0]\n```"
)


@dataclass
class Sent:
    """One comment, and what must come of it."""

    kind: str
    issue: int
    comment: int
    answer: str
    sent_at: float = field(default_factory=time.monotonic)
    approved: bool = False
    settled_at: float | None = None

    @property
    def took_s(self) -> float | None:
        """Seconds to its answer; a request that goes all the way is approved at once."""
        return None if self.settled_at is None else self.settled_at - self.sent_at


@dataclass
class Result:
    """What was done, and what was found wrong after."""

    sent: list[Sent]
    kills: Counter[str]
    wall_s: float = 0.0
    wrong: list[str] = field(default_factory=list)


def plan(requests: int, whole: int, analysed: int) -> list[str]:
    """Kinds of `requests` requests: `whole` go all the way, `analysed` are refused by a runner, the rest are answered at once."""
    short = list(REPLIES)
    rest = [short[number % len(short)] for number in range(requests - whole - analysed)]
    return ["whole"] * whole + ["analysed"] * analysed + rest


@contextmanager
def chaos_scene(folder: Path, store: str) -> Iterator[tuple[Scene, PostgresServer | None]]:
    """store: sqlite (one process does everything) or postgres (the service and two workers)."""
    files = liger_checkout(folder / "files")
    (files / WORKFLOW_PATH).parent.mkdir(parents=True, exist_ok=True)
    (files / WORKFLOW_PATH).write_text(workflow_text())
    (files / ".github" / "liger-bot.yml").write_text(CONFIG)
    settings = {"ACTIONS_GATES": ",".join(GATES), "RECONCILE_MINUTES": "0.05", "WORKER_SLOTS": "2"}
    if store == "sqlite":
        with scene(folder, files, **settings) as here:
            yield here, None
        return
    with postgres_server() as server:
        url = server.new_database("chaos")
        with scene(folder, files, workers=2, DATABASE_URL=url, **settings) as here:
            yield here, server


class Chaos:
    """Sends, kills, plays the GPU runners, and looks."""

    def __init__(self, here: Scene, postgres: PostgresServer | None, seed: int, pause_s: tuple[float, float]):
        self._here, self._postgres = here, postgres
        self._random = random.Random(seed)  # noqa: S311 - the same faults again
        self._pause_s = pause_s
        self._sent: list[Sent] = []
        self._answered: set[int] = set()
        self._kills: Counter[str] = Counter()
        self._down: dict[str, float] = {}  # victim -> when it starts again

    def run(self, kinds: list[str], every_s: float, kills: int, patience_s: float) -> Result:
        """Send one request every `every_s`, kill at least `kills` times meanwhile, then wait until all is settled."""
        kinds = [*kinds]
        self._random.shuffle(kinds)
        started = time.monotonic()
        next_send, next_look, end = started, started, 0.0
        waits, next_kill = True, started + self._random.uniform(*self._pause_s)
        while True:
            clock = time.monotonic()
            if kinds and clock >= next_send:
                self._send(kinds.pop(), len(kinds))
                next_send = clock + self._random.uniform(0, 2 * every_s)
            if clock >= next_look:
                waits = self._look()
                next_look = time.monotonic() + LOOK_EVERY_S
            more = bool(kinds) or self._kills.total() < kills
            if more and clock >= next_kill:
                self._kill()
                next_kill = self._never_or_soon(clock)
            elif next_kill == inf and self._here.service.answers():
                next_kill = clock + self._random.uniform(*self._pause_s)
            self._restart(clock, everything=not more)
            if more:
                end = clock + patience_s
            elif not waits or clock > end:
                break
            time.sleep(0.05)
        result = Result(self._sent, self._kills, round(time.monotonic() - started, 1))
        time.sleep(3.0)  # for what would come twice
        result.wrong = [*self._wrong()]
        return result

    def _send(self, kind: str, number: int) -> None:
        issue = self._here.open_issue(f"{kind} {number}")
        if kind == "whole":
            body, answer = f"/liger dev {OPS[sum(one.kind == 'whole' for one in self._sent)]}", READY
        elif kind == "analysed":
            body, answer = UNDERIVABLE.format(number=number), "can't be derived"
        else:
            body, answer = REPLIES[kind]
        self._sent.append(Sent(kind, issue, self._here.comment(issue, body), answer))

    def _look(self) -> bool:
        """Approve what is shown, answer what was dispatched; whether something is still to come."""
        for one in self._sent:
            if one.settled_at is not None:
                continue
            bodies = [comment["body"] for comment in self._here.bot_comments(one.issue)]
            if any(one.answer in body for body in bodies):
                one.settled_at = time.monotonic()
            elif one.kind == "whole" and not one.approved and any(WAITING in body for body in bodies):
                self._here.react(self._here.bot_comments(one.issue)[0]["id"])
                one.approved = True
        if any(one.approved and one.settled_at is None for one in self._sent):
            self._answer_runs()
        return any(one.settled_at is None for one in self._sent)

    def _runs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for page in range(1, 20):
            runs = self._here.call("GET", "/actions/runs", params={"per_page": 100, "page": page})[
                "workflow_runs"
            ]
            found += runs
            if len(runs) < 100:
                break
        return found

    def _answer_runs(self) -> None:
        """Be the GPU runners: all is well."""
        for run in self._runs():
            if run["id"] in self._answered or run["status"] == "completed":
                continue
            request = run["display_title"].split()[1].split("-")[0]
            pulls = [one for one in self._here.call("GET", "/pulls") if one["head"]["ref"].endswith(request)]
            if pulls:
                packed = zipped(report_for(run, pulls[0]["head"]["sha"]))
                self._here.hub.add_artifact(run["id"], artifact_name(run), packed)
                self._here.hub.advance_run(run["id"], "completed", "success")
                self._answered.add(run["id"])

    # killing

    def _never_or_soon(self, clock: float) -> float:
        """One time in four the next kill comes while something still starts; else it waits until the service is up."""
        return clock + self._random.uniform(*self._pause_s) if self._random.random() < 0.25 else inf

    def _victims(self) -> list[str]:
        names = ["service", *(one.name for one in self._here.workers)]
        if self._postgres is not None:
            names.append("database")
        # runners live for seconds: they are hit when there are some
        runners = ["runner"] * len(names) if _runner_processes(self._owners()) else []
        return [name for name in names if name not in self._down] + runners

    def _kill(self) -> None:
        victims = self._victims()
        if not victims:
            return
        victim = self._random.choice(victims)
        if victim == "runner":
            runners = _runner_processes(self._owners())
            if not runners:
                return
            self._random.choice(runners).kill()
        elif victim == "database":
            assert self._postgres is not None
            self._postgres.kill()
        else:
            self._process(victim).kill()
        self._kills[victim] += 1
        if victim != "runner":
            self._down[victim] = time.monotonic() + self._random.uniform(0.0, 1.5)

    def _owners(self) -> list[int]:
        processes = [self._here.service.process, *(one.process for one in self._here.workers)]
        return [one.pid for one in processes if one is not None and one.poll() is None]

    def _process(self, name: str) -> Any:
        return next((one for one in self._here.workers if one.name == name), self._here.service)

    def _restart(self, clock: float, *, everything: bool) -> None:
        for victim, at in [*self._down.items()]:
            if clock < at and not everything:
                continue
            del self._down[victim]
            if victim == "database":
                assert self._postgres is not None
                self._postgres.start()
            elif victim == "service":
                self._here.service.launch()
            else:
                self._process(victim).start()
        # what couldn't come up without its database is started again, as a supervisor would
        for name in ["service", *(one.name for one in self._here.workers)]:
            process = self._process(name).process
            if name not in self._down and "database" not in self._down and process.poll() is not None:
                self._down[name] = clock + 0.5

    # what must hold

    def _wrong(self) -> Iterator[str]:
        for one in self._sent:
            yield from self._wrong_with(one)
        runs = Counter(tuple(run["display_title"].split()[1:4]) for run in self._runs())
        yield from (f"run {what} was dispatched {count} times" for what, count in runs.items() if count > 1)
        whole = [one for one in self._sent if one.kind == "whole"]
        branches = [
            one["name"]
            for one in self._here.call("GET", "/branches", params={"per_page": 100})
            if one["name"].startswith("liger-bot/")
        ]
        pulls = self._here.call("GET", "/pulls", params={"state": "all", "per_page": 100})
        if sorted(branches) != sorted(one["head"]["ref"] for one in pulls) or len(branches) != len(whole):
            yield f"{len(whole)} requests went all the way; branches {branches}, {len(pulls)} pull requests"
        for pull in pulls:
            commits = self._here.call("GET", f"/pulls/{pull['number']}/commits")
            if len(commits) != 1:
                yield f"#{pull['number']} has {len(commits)} commits"
            checks = self._here.call(
                "GET", f"/commits/{pull['head']['sha']}/check-runs", params={"filter": "all", "per_page": 100}
            )["check_runs"]
            names = Counter(check["name"] for check in checks)
            if names != Counter(f"liger-bot / {gate}" for gate in GATES):
                yield f"#{pull['number']} has the checks {dict(names)}"
            yield from (
                f"#{pull['number']}: {check['name']} is {check['status']}, {check['conclusion']}"
                for check in checks
                if check["conclusion"] != "success"
            )

    def _wrong_with(self, one: Sent) -> Iterator[str]:
        comments = self._here.bot_comments(one.issue)
        if one.settled_at is None:
            said = [comment["body"][:600] for comment in comments]
            yield f"{one.kind} on #{one.issue} was lost: {said}"
        if len(comments) > 1:
            yield f"{one.kind} on #{one.issue} has {len(comments)} comments of the bot"
        reactions = self._here.call("GET", f"/issues/comments/{one.comment}/reactions")
        eyes = [each for each in reactions if each["content"] == "eyes"]
        if len(eyes) != 1:
            yield f"{one.kind} on #{one.issue} has {len(eyes)} 👀"


def _runner_processes(owners: list[int]) -> list[psutil.Process]:
    """Runner processes that these started."""
    found = []
    for owner in owners:
        try:
            children = psutil.Process(owner).children()
            found += [child for child in children if "runners" in child.cmdline()]
        except psutil.NoSuchProcess:
            continue
    return found
