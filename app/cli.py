"""The command line: `liger-bot run | derive | watch | demo | setup | serve | worker | hub | config | workflow | doctor`. Parsing and exit codes only."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from app.config_commands import config_app
from app.usage import EXIT_STOPPED, EXIT_USAGE, UsageMistake

if TYPE_CHECKING:
    from app.settings import Settings

app = typer.Typer(
    help="Derives, verifies and proposes Triton kernels on a kernel repository.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(config_app, name="config")
console = Console()
errors = Console(stderr=True)


@app.command()
def run(
    command: Annotated[
        str,
        typer.Argument(help='what a comment would say after "/liger", e.g. "dev relu2" or "autopatch qwen3"'),
    ],
    repo: Annotated[
        Path, typer.Option("--repo", help="a checkout of the kernel repository (a git repository)")
    ] = Path(),
    yes: Annotated[bool, typer.Option("--yes", "-y", help="approve the profile without asking")] = False,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", help="write the whole request here: profile, files, reports"),
    ] = None,
    block: Annotated[
        Path | None,
        typer.Option(
            "--reference",
            "--config",
            help="the block below the command, as a file: Python for dev, a config.json for autopatch",
        ),
    ] = None,
) -> None:
    """Run one command in a local checkout: profile, approval on the terminal, a commit on a branch, checks."""
    from app.local_run import run_command

    raise typer.Exit(
        asyncio.run(run_command(command, repo, yes=yes, json_file=json_file, block=block, console=console))
    )


@app.command()
def derive(
    op: Annotated[
        str, typer.Argument(help="a known name, an expression, package.module:Name, or FILE.py:FUNC")
    ],
    kernels_only: Annotated[
        bool, typer.Option("--kernels-only", help="print the module without the profile")
    ] = False,
    wide_rows: Annotated[
        bool,
        typer.Option("--wide-rows", help="for rows wider than a block of 65536 columns: loops over blocks"),
    ] = False,
    split_rows: Annotated[
        bool,
        typer.Option("--split-rows", help="for fewer rows than multiprocessors: each is split over programs"),
    ] = False,
    compiled: Annotated[
        bool,
        typer.Option("--compile", help="also compile for every architecture: registers, spills, occupancy"),
    ] = False,
) -> None:
    """Print the profile and the kernels of an op; needs no target repository."""
    from app.local_run import derive_op

    raise typer.Exit(
        asyncio.run(
            derive_op(
                op,
                kernels_only=kernels_only,
                wide_rows=wide_rows,
                split_rows=split_rows,
                compiled=compiled,
                console=console,
            )
        )
    )


@app.command()
def watch(
    repo: Annotated[Path, typer.Option("--repo", help="a checkout of the kernel repository")] = Path(),
    against: Annotated[
        Path | None,
        typer.Option("--against", help="source of another transformers, in place of the installed one"),
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the findings here")] = None,
) -> None:
    """Say which model patches break, do nothing or drift under a transformers, and what to ask for."""
    from app.watch import run_watch

    raise typer.Exit(run_watch(repo, against, json_file, console))


@app.command()
def demo(
    yes: Annotated[
        bool, typer.Option("--yes", help="approve by itself instead of waiting for a reaction in the browser")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="leave the servers running until Ctrl-C")] = False,
    op: Annotated[str, typer.Option("--op", help="what to ask for after /liger dev")] = "relu2",
    data: Annotated[Path, typer.Option("--data", help="where the demo keeps its state")] = Path(
        ".liger-bot/demo"
    ),
) -> None:
    """The main job on this machine: a comment becomes a verified draft pull request on the local GitHub."""
    from app.demo import run_demo

    raise typer.Exit(asyncio.run(run_demo(yes=yes, keep=keep, op=op, data=data.resolve(), console=console)))


@app.command()
def serve() -> None:
    """The service, configured by LIGER_BOT_* (docs/settings.md)."""
    from app.main import serve as serve_app

    serve_app(_settings())


@app.command()
def worker(
    name: Annotated[
        str,
        typer.Option(
            "--name",
            help="unique among the processes that share the database, and the same after a restart; empty: LIGER_BOT_EXECUTOR_ID and -worker",
        ),
    ] = "",
) -> None:
    """Run the stages of requests that a service with LIGER_BOT_STAGES=workers takes in; they share a Postgres."""
    from app.worker import work

    raise typer.Exit(asyncio.run(work(_settings(), name)))


def _settings() -> Settings:
    from pydantic import ValidationError

    from app.settings import Settings

    try:
        return Settings()
    except ValidationError as error:
        raise UsageMistake(
            "; ".join(item["msg"].removeprefix("Value error, ") for item in error.errors())
        ) from None


@app.command()
def hub(
    data: Annotated[Path, typer.Option("--data", help="where it keeps its state")] = Path(".liger-bot/hub"),
    port: Annotated[int, typer.Option("--port", help="port to listen on")] = 3000,
    host: Annotated[str, typer.Option("--host", help="address to listen on")] = "127.0.0.1",
) -> None:
    """The local GitHub alone (docs/local-github.md)."""
    from app.localhub.__main__ import main as hub_main

    hub_main(["--data", str(data), "--port", str(port), "--host", host])


@app.command()
def setup(
    public_url: Annotated[
        str, typer.Option("--public-url", help="where GitHub and people reach the service")
    ] = "",
    github: Annotated[
        str, typer.Option("--github", help="web address of GitHub; Enterprise Server: https://HOST")
    ] = "https://github.com",
    org: Annotated[str, typer.Option("--org", help="the organisation that owns the App; empty: you do")] = "",
    name: Annotated[str, typer.Option("--name", help="name of the App, unique on all of GitHub")] = "",
    into: Annotated[
        Path, typer.Option("--into", help="folder that gets .env and the secrets; the service starts there")
    ] = Path(),
    teams: Annotated[
        bool, typer.Option("--teams", help="also ask for members: read, for teams in .github/liger-bot.yml")
    ] = False,
    runner_status: Annotated[
        bool,
        typer.Option(
            "--runner-status", help="also ask for administration: read, so that doctor sees runners"
        ),
    ] = False,
    api_version: Annotated[
        str, typer.Option("--api-version", help="value of X-GitHub-Api-Version; empty sends none")
    ] = "2026-03-10",
    port: Annotated[int, typer.Option("--port", help="port of the setup page; 0: any free one")] = 0,
    replace: Annotated[bool, typer.Option("--replace", help="forget the App that was set up here")] = False,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="only print the page's address")] = False,
) -> None:
    """Register the GitHub App: one button on a page, and its secrets are written to files (docs/install.md)."""
    from app.setup import Wanted, run_setup

    wanted = Wanted(
        name=name or (f"liger-bot-{org}"[:34] if org else "liger-bot"),
        web_url=github,
        public_url=public_url,
        org=org,
        into=into,
        api_version=api_version,
        port=port,
        replace=replace,
        teams=teams,
        runner_status=runner_status,
        open_browser=not no_browser,
    )
    raise typer.Exit(asyncio.run(run_setup(wanted, console)))


@app.command()
def workflow(
    harness: Annotated[
        str,
        typer.Option(
            help="install the harness on the runner from this commit: git+https://HOST/OWNER/liger-bot@COMMIT"
        ),
    ] = "",
) -> None:
    """Print the workflow that a target repository adds, so that its GPU runners can verify."""
    from app.actions.workflow import NotPinnedError, workflow_text

    try:
        typer.echo(workflow_text(harness), nl=False)
    except NotPinnedError as mistake:
        errors.print(str(mistake), markup=False)
        raise typer.Exit(EXIT_USAGE) from None


@app.command()
def doctor(
    repository: Annotated[
        str,
        typer.Option("--repo", help="look at this OWNER/NAME alone; empty: all where the App is installed"),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="print the findings as JSON")] = False,
    github_only: Annotated[
        bool, typer.Option("--github-only", help="leave this machine out: where jobs run elsewhere")
    ] = False,
) -> None:
    """Check this machine, the App and the repositories it is installed on, and say what to do for each."""
    from app.doctor import report

    raise typer.Exit(
        asyncio.run(report(console, repository=repository, as_json=as_json, github_only=github_only))
    )


def main() -> None:
    """Entry point: a person's mistake is one line on standard error, and each outcome has its exit code."""
    try:
        app()
    except UsageMistake as mistake:
        errors.print(f"liger-bot: {mistake}", style="red", highlight=False, soft_wrap=True)
        sys.exit(EXIT_USAGE)
    except (KeyboardInterrupt, asyncio.CancelledError):
        errors.print("stopped")
        sys.exit(EXIT_STOPPED)


if __name__ == "__main__":
    main()
