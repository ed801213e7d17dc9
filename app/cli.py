"""The command line: `liger-bot run | derive | watch | demo | serve | hub | doctor`. Parsing and exit codes only."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from app.usage import EXIT_STOPPED, EXIT_USAGE, UsageMistake

app = typer.Typer(
    help="Derives, verifies and proposes Triton kernels on a kernel repository.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
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
    compiled: Annotated[
        bool,
        typer.Option("--compile", help="also compile for every architecture: registers, spills, occupancy"),
    ] = False,
) -> None:
    """Print the profile and the kernels of an op; needs no target repository."""
    from app.local_run import derive_op

    raise typer.Exit(
        asyncio.run(
            derive_op(op, kernels_only=kernels_only, wide_rows=wide_rows, compiled=compiled, console=console)
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
    from pydantic import ValidationError

    from app.main import serve as serve_app
    from app.settings import Settings

    try:
        settings = Settings()
    except ValidationError as error:
        raise UsageMistake(
            "; ".join(item["msg"].removeprefix("Value error, ") for item in error.errors())
        ) from None
    serve_app(settings)


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
def doctor() -> None:
    """Say what this machine can do: runner, isolation, GPU, model, settings."""
    from app.doctor import report

    raise typer.Exit(asyncio.run(report(console)))


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
