"""`liger-bot demo`: the main job on one machine, told step by step. Everything goes through HTTP and git, as on GitHub."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.table import Table

from app.demo_world import World, WorldError
from app.usage import EXIT_FAILED

GATES = ("style", "correctness", "compile", "benchmark")
SIGNS = {"success": "[green]✓[/]", "neutral": "[dim]○[/]", "failure": "[red]✗[/]", "timed_out": "[red]⌛[/]"}
POLL_S = 0.3
STEP_TIMEOUT_S = 300.0
APPROVAL_TIMEOUT_S = 3600.0


class DemoError(Exception):
    """A step didn't happen; the message says which, and where to look."""


async def run_demo(*, yes: bool, keep: bool, op: str, data: Path, console: Console) -> int:
    """Run the demo; returns the exit code. With `keep` the servers stay up until Ctrl-C."""
    started = time.monotonic()
    _stop_on_sigterm()
    try:
        async with World(data, console) as world:
            code = await _Story(world, console, op, yes=yes).tell(started)
            if keep:
                console.print(
                    f"The servers keep running: {world.hub_url} (GitHub) and {world.app_url} (liger-bot). Ctrl-C stops them."
                )
                await asyncio.Event().wait()
            return code
    except (WorldError, DemoError) as error:
        console.print(f"the demo stopped: {error}", style="red", highlight=False, soft_wrap=True)
        return EXIT_FAILED


def _stop_on_sigterm() -> None:
    """A terminated demo stops its servers, as Ctrl-C does."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


class _Story:
    """The steps, with the time each took."""

    def __init__(self, world: World, console: Console, op: str, *, yes: bool):
        self._world, self._console, self._op, self._yes = world, console, op, yes
        self._times: list[tuple[str, float]] = []

    async def tell(self, started: float) -> int:
        world, say = self._world, self._console.print
        self._times.append(("set-up: local GitHub, app, target repository", time.monotonic() - started))
        issue = await world.post(
            "/issues",
            {"title": f"Kernel request: {self._op}", "body": "A fused Triton kernel for this op would help."},
        )
        say(f"2. Issue #{issue['number']} by @{world.maintainer}: {issue['html_url']}", highlight=False)
        comment = await world.post(f"/issues/{issue['number']}/comments", {"body": f"/liger dev {self._op}"})
        say(f"3. Comment [bold]/liger dev {escape(self._op)}[/]", highlight=False)

        await self._step("👀 on the comment", "waiting for 👀", lambda: self._eyes(comment["id"]))
        profile_comment = await self._step(
            "profile",
            "Understand: tracing the reference in the sandbox",
            lambda: self._bot_comment(issue["number"], "waiting for your decision"),
        )
        profile = _profile(profile_comment["body"])
        _show_profile(self._console, profile)

        address = f"{issue['html_url']}#issuecomment-{profile_comment['id']}"
        if self._yes:
            await world.post(f"/issues/comments/{profile_comment['id']}/reactions", {"content": "+1"})
            say("4. @maintainer reacts 👍 to the profile", highlight=False)
        else:
            say(
                f"4. Your turn: react 👍 to the profile at [bold]{address}[/] (choose @{world.maintainer} at the top right of the page), or comment /liger approve there",
                highlight=False,
            )
        await self._step(
            "approval", "waiting for 👍", lambda: self._approved(issue["number"]), APPROVAL_TIMEOUT_S
        )
        pull = await self._step("draft pull request", "Act: kernels, tests, benchmark, exports", self._pull)
        files = await world.get(f"/pulls/{pull['number']}/files")
        say(
            f"5. Draft pull request #{pull['number']} with {len(files)} files: {pull['html_url']}",
            highlight=False,
        )
        for one in files:
            say(
                f"     {one['status']:<9} {escape(one['filename'])}  [green]+{one['additions']}[/] [red]-{one['deletions']}[/]",
                highlight=False,
            )
        checks = await self._checks(pull["head"]["sha"])
        return self._summary(issue, pull, profile, checks, started)

    async def _step(
        self, name: str, doing: str, probe: Callable[[], Awaitable[Any]], timeout_s: float = STEP_TIMEOUT_S
    ) -> Any:
        """Ask again until the probe answers; show what is going on, remember how long it took."""
        begun = time.monotonic()
        with self._console.status(escape(doing)):
            while True:
                answer = await probe()
                if answer is not None:
                    break
                self._world.check_alive()
                if time.monotonic() - begun > timeout_s:
                    raise DemoError(
                        f"{name}: nothing after {timeout_s:.0f} s; the logs are in {self._world.logs}"
                    )
                await asyncio.sleep(POLL_S)
        took = time.monotonic() - begun
        self._times.append((name, took))
        self._console.print(f"     [green]✓[/] {escape(name)} after {took:.1f} s", highlight=False)
        return answer

    async def _eyes(self, comment_id: int) -> Any:
        reactions = await self._world.get(f"/issues/comments/{comment_id}/reactions")
        return next((one for one in reactions if one["content"] == "eyes"), None)

    async def _bot_comment(self, issue: int, words: str) -> Any:
        comments = await self._world.get(f"/issues/{issue}/comments")
        ours = [one for one in comments if one["user"]["type"] == "Bot"]
        for one in ours:
            if words in one["body"]:
                return one
            if (
                "can't be derived" in one["body"]
                or "our fault" in one["body"]
                or "I didn't follow" in one["body"]
            ):
                raise DemoError(
                    f"the bot answered: {one['body'].strip().splitlines()[-1]} ({one['html_url']})"
                )
        return None

    async def _approved(self, issue: int) -> Any:
        comments = await self._world.get(f"/issues/{issue}/comments")
        ours = [one for one in comments if one["user"]["type"] == "Bot"]
        if any(": rejected" in one["body"] or ": cancelled" in one["body"] for one in ours):
            raise DemoError("the profile was turned down, so there is nothing more to show")
        return True if ours and not any("waiting for your decision" in one["body"] for one in ours) else None

    async def _pull(self) -> Any:
        pulls = await self._world.get("/pulls")
        return pulls[0] if pulls else None

    async def _checks(self, sha: str) -> list[dict[str, Any]]:
        """The four check runs of a commit, told as they complete."""
        begun = time.monotonic()
        told: set[str] = set()
        with self._console.status("Verify") as status:
            while True:
                answer = await self._world.get(f"/commits/{sha}/check-runs")
                runs = {one["name"].removeprefix("liger-bot / "): one for one in answer["check_runs"]}
                self._tell_checks(runs, told, begun, status)
                if told >= set(GATES):
                    self._times.append(("four check runs", time.monotonic() - begun))
                    return [runs[gate] for gate in GATES]
                self._world.check_alive()
                if time.monotonic() - begun > STEP_TIMEOUT_S:
                    raise DemoError(
                        f"the checks didn't complete within {STEP_TIMEOUT_S:.0f} s; the logs are in {self._world.logs}"
                    )
                await asyncio.sleep(POLL_S)

    def _tell_checks(
        self, runs: dict[str, dict[str, Any]], told: set[str], begun: float, status: Status
    ) -> None:
        for gate in GATES:
            run = runs.get(gate)
            if run and run["status"] == "completed" and gate not in told:
                told.add(gate)
                sign = SIGNS.get(run["conclusion"], "[yellow]![/]")
                self._console.print(
                    f"     {sign} {gate} after {time.monotonic() - begun:.1f} s: {escape(run['output']['title'] or '')}",
                    highlight=False,
                )
        waiting = [
            f"{gate} ({(runs[gate]['output']['title'] or 'running')})" if gate in runs else gate
            for gate in GATES
            if gate not in told
        ]
        status.update(escape("Verify: " + ", ".join(waiting)))

    def _summary(
        self,
        issue: dict[str, Any],
        pull: dict[str, Any],
        profile: dict[str, Any],
        checks: list[dict[str, Any]],
        started: float,
    ) -> int:
        say = self._console.print
        say("\n[bold]Summary[/]")
        say(
            f"  issue         {issue['html_url']}\n  pull request  {pull['html_url']}\n  request       {self._world.app_url}",
            highlight=False,
        )
        say(
            f"  decided       {escape(profile.get('forward_computation', ''))}; kept for the backward: {escape(', '.join(profile.get('backward_saved_tensors', [])) or 'nothing')}",
            highlight=False,
        )
        for run in checks:
            say(
                f"  {SIGNS.get(run['conclusion'], '[yellow]![/]')} {run['name']:<25} {run['conclusion']:<9} {escape(run['output']['title'] or '')}",
                highlight=False,
            )
        table = Table(show_header=False, box=None, padding=(0, 2))
        for name, took in self._times:
            table.add_row(name, f"{took:.1f} s")
        table.add_row("[bold]all[/]", f"[bold]{time.monotonic() - started:.1f} s[/]")
        say(table)
        passed = all(run["conclusion"] in {"success", "neutral"} for run in checks)
        return 0 if passed else EXIT_FAILED


def _profile(body: str) -> dict[str, Any]:
    """The profile's YAML from the comment, as a person would copy it."""
    _, _, rest = body.partition("```yaml\n")
    text, _, _ = rest.partition("\n```")
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        return {}  # it was cut because it was long; the table above it says the same
    return found if isinstance(found, dict) else {}


def _show_profile(console: Console, profile: dict[str, Any]) -> None:
    rows = [
        ("computes", profile.get("forward_computation")),
        (
            "gradients",
            "; ".join(
                f"d{name} = {formula}" for name, formula in (profile.get("gradient_formulas") or {}).items()
            ),
        ),
        ("kept for the backward", ", ".join(profile.get("backward_saved_tensors") or []) or "nothing"),
        ("layout", profile.get("grid_description")),
        ("hash", str(profile.get("sha256", ""))[:12]),
    ]
    for name, value in rows:
        if value:
            console.print(f"     {name}: {escape(str(value))}", highlight=False, soft_wrap=True)


__all__ = ["DemoError", "run_demo"]
