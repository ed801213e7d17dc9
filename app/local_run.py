"""The three stages in a local checkout, without GitHub: what `liger-bot run` and `liger-bot derive` do."""

from __future__ import annotations

import asyncio
import json
import os
import re
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from agents.command_agent import AnyCandidate, AnyProfile, CommandAgent, Place
from agents.conventions import NotAKernelLibrary
from agents.conventions.edits import AnchorMissing
from agents.dev.analysis import AnalysisFault
from agents.dev.check_result import CheckResult
from agents.dev.refused import Refused
from agents.formatting import ActFailed
from agents.ports import Bench, Model, ModelError
from agents.profiles import KernelProfile
from agents.registry import AGENTS, agent_of
from app import terminal
from app.checkout import CheckoutTree
from app.commands import Command, Mistake, parse
from app.comments.wording import wording
from app.confinement import LIMITS_ALONE, MEND, confinement
from app.derive_compile import schedules_for_terminal
from app.dispatch import LocalBench
from app.local_verify import GATES_AT_ONCE, commit, repaired, verify
from app.repository import RepositoryError, TargetRepository
from app.usage import EXIT_FAILED, UsageMistake
from kernels.derivation import Unsupported
from runners.protocol import Report


@dataclass
class Record:
    """The whole request, as `--json` writes it."""

    command: str
    repository: str
    base_sha: str = ""
    profile: AnyProfile | None = None
    refused: Refused | None = None
    candidate: AnyCandidate | None = None
    branch: str = ""
    commit: str = ""
    reports: dict[str, Report] = field(default_factory=dict)
    checks: dict[str, CheckResult] = field(default_factory=dict)
    attempts: list[dict[str, Any]] = field(
        default_factory=list
    )  # each candidate's commit and checks, oldest first
    elapsed_s: dict[str, float] = field(default_factory=dict)

    @property
    def passes(self) -> bool:
        """Whether no check stands in the way of a merge."""
        return all(check.conclusion in {"success", "neutral"} for check in self.checks.values())

    def as_json(self) -> str:
        """JSON with the profile, its hash, the files, every report and every check."""
        data: dict[str, Any] = {
            "command": self.command,
            "repository": self.repository,
            "base_sha": self.base_sha,
            "profile": self.profile and self.profile.model_dump(mode="json"),
            "profile_sha256": self.profile and self.profile.sha256(),
            "refused": self.refused and self.refused.model_dump(mode="json"),
            "files": self.candidate.files if self.candidate else {},
            "branch": self.branch,
            "commit": self.commit,
            "reports": {gate: report.model_dump(mode="json") for gate, report in self.reports.items()},
            "checks": {gate: check.model_dump(mode="json") for gate, check in self.checks.items()},
            "attempts": self.attempts,
            "elapsed_s": {stage: round(value, 2) for stage, value in self.elapsed_s.items()},
        }
        return json.dumps(data, indent=2, ensure_ascii=False)


async def run_command(
    text: str, repo: Path, *, yes: bool, json_file: Path | None, block: Path | None, console: Console
) -> int:
    """Run one command in a checkout; returns the exit code. Raises UsageMistake for a wrong call."""
    command = _command(text, block)
    root = _repository_root(repo)
    bench = LocalBench(
        slots=GATES_AT_ONCE, transformers_sites=os.environ.get("LIGER_BOT_TRANSFORMERS_SITES", "")
    )
    if await confinement() == "limits":
        console.print(f"careful: {LIMITS_ALONE}. {MEND}", style="yellow", highlight=False, soft_wrap=True)
    record = Record(command=text, repository=str(root))
    with tempfile.TemporaryDirectory(prefix="liger-bot-run-") as scratch:
        target = TargetRepository(Path(scratch), root.name, str(root))
        try:
            record.base_sha = await asyncio.to_thread(_head, target, repo)
            code = await _stages(record, command, target, bench, yes=yes, console=console)
        except (
            RepositoryError,
            ModelError,
            NotAKernelLibrary,
            AnchorMissing,
            ActFailed,
            Unsupported,
        ) as error:
            console.print(f"stopped: {error}", style="red", highlight=False, soft_wrap=True)
            code = EXIT_FAILED
        except AnalysisFault as error:
            console.print(f"our fault, not yours: {error}", style="red", highlight=False, soft_wrap=True)
            code = EXIT_FAILED
        finally:
            if json_file is not None:
                await asyncio.to_thread(json_file.write_text, record.as_json() + "\n", encoding="utf-8")
    return code


async def derive_op(
    op: str,
    *,
    kernels_only: bool,
    console: Console,
    wide_rows: bool = False,
    split_rows: bool = False,
    compiled: bool = False,
) -> int:
    """Print an op's decisions and its kernels, as a module that needs torch and triton only."""
    from app.derive_view import print_derivation

    return await print_derivation(
        op,
        LocalBench(),
        kernels_only=kernels_only,
        wide_rows=wide_rows,
        split_rows=split_rows,
        compiled=compiled,
        console=console,
    )


def _command(text: str, block: Path | None) -> Command:
    words = text.strip().removeprefix("/liger").strip()
    if block is not None:
        try:
            source = block.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageMistake(f"can't read --reference {block}: {error}") from None
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", source)), default=0))
        language = "json" if block.suffix == ".json" else "python"
        words = f"{words}\n\n{fence}{language}\n{source}\n{fence}"
    match parse(f"/liger {words}"):
        case Mistake(what=what, next_command=next_command):
            raise UsageMistake(
                f'{what}; try: liger-bot run "{next_command.removeprefix("/liger ")}"'.replace("`", "")
            )
        case Command(verb=verb) as command if verb in AGENTS:
            return command
        case Command(verb=verb):
            raise UsageMistake(f'{verb} can\'t be run in a local checkout; try: liger-bot run "dev relu2"')
        case _:
            raise UsageMistake('no command found; try: liger-bot run "dev relu2"')


def _repository_root(repo: Path) -> Path:
    root = repo.resolve()
    if not root.is_dir():
        raise UsageMistake(f"--repo {repo} is not a folder")
    if not (root / ".git").exists():
        raise UsageMistake(
            f"{repo} is not the root of a git repository; in an unpacked release run: git init && git add -A && git commit -m import"
        )
    return root


def _head(target: TargetRepository, repo: Path) -> str:
    try:
        return target.fetch_head()
    except RepositoryError as error:
        if "remote ref HEAD" in str(error):
            raise UsageMistake(
                f"{repo} has no commit yet: run git add -A && git commit -m import there"
            ) from None
        raise


def _model() -> Model | None:
    from app.llm import model_from_environment

    return model_from_environment()


async def _stages(
    record: Record, command: Command, target: TargetRepository, bench: Bench, *, yes: bool, console: Console
) -> int:
    started = time.monotonic()
    agent = agent_of(command.verb)
    checkout = await asyncio.to_thread(target.checkout, record.base_sha)
    place = Place(CheckoutTree(checkout), str(checkout), bench, _model(), record.base_sha)
    with terminal.working(console, f"Understand: {wording(command.verb).reading}") as live:
        outcome = await agent.understand(
            command.text, command.block, replace(place, on_progress=live.progress)
        )
    record.elapsed_s["understand"] = time.monotonic() - started
    if isinstance(outcome, Refused):
        record.refused = outcome
        terminal.show_refused(console, outcome)
        return EXIT_FAILED
    profile = await _approved(agent, outcome, place, yes=yes, console=console)
    record.profile = profile or outcome
    if profile is None:
        console.print("rejected: nothing was written")
        return EXIT_FAILED

    started = time.monotonic()
    with terminal.working(console, f"Act: {agent.doing}"):
        candidate = await agent.act(profile, place)
        record.candidate = candidate
        await asyncio.to_thread(commit, record, target, profile, agent.subject(profile))
    record.elapsed_s["act"] = time.monotonic() - started
    console.print(
        f"Act: {len(candidate.files)} files on branch [bold]{record.branch}[/] ({record.commit[:12]}), {record.elapsed_s['act']:.1f} s"
    )

    started = time.monotonic()
    while True:
        await verify(record, target, agent, profile, bench, console)
        if not await repaired(record, target, agent, profile, place, console):
            break
    record.elapsed_s["verify"] = time.monotonic() - started
    terminal.show_summary(console, record)
    return 0 if record.passes else EXIT_FAILED


async def _approved(
    agent: CommandAgent[Any, Any], profile: AnyProfile, place: Place, *, yes: bool, console: Console
) -> AnyProfile | None:
    """The profile once a person approved it, revised as often as they like; None when they turned it down."""
    while True:
        terminal.show_profile(console, profile)
        if yes:
            return profile
        answer = await _answer(profile, place.bench, console)
        if answer.lower() in {"y", "yes"}:
            return profile
        if answer.lower() in {"n", "no"}:
            return None
        match parse(f"/liger revise {answer}"):
            case Command(changes=changes):
                revised = await agent.revise(profile, changes, place)
                if isinstance(revised, Refused):
                    terminal.show_refused(console, revised)
                else:
                    profile = revised
            case Mistake(what=what):
                console.print(what, style="red")


async def _answer(profile: AnyProfile, bench: Bench, console: Console) -> str:
    """What the person says to a profile, after the schedules that they wanted to see compiled."""
    if not isinstance(profile, KernelProfile):
        return typer.prompt("Approve? [y]es, [n]o, or key=value… to revise", default="n").strip()
    question = "Approve? [y]es, [n]o, [c]ompile every schedule considered, or key=value… to revise"
    while (answer := typer.prompt(question, default="n").strip()).lower() in {"c", "compile"}:
        with terminal.working(console, "compiling every schedule considered") as live:
            shown = await schedules_for_terminal(profile, bench, live.progress)
        console.print(shown, highlight=False)
    return answer
