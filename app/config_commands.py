"""`liger-bot config`: the repository's file, checked before it is pushed, and its schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from app.repository_config import CONFIG_PATH, ConfigMistake, config_schema, parse_config
from app.usage import EXIT_FAILED, UsageMistake

config_app = typer.Typer(
    help=f"The configuration of a target repository: {CONFIG_PATH} (docs/config.md).", no_args_is_help=True
)


@config_app.command()
def check(
    file: Annotated[Path, typer.Argument(help="the file to check")] = Path(CONFIG_PATH),
) -> None:
    """Say whether the bot can use the file, and what it decides."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageMistake(
            f"{file} can't be read: {getattr(error, 'strerror', None) or 'not UTF-8 text'}"
        ) from None
    try:
        config = parse_config(text)
    except ConfigMistake as mistake:
        typer.echo(f"{file}, {mistake}", err=True)
        raise typer.Exit(EXIT_FAILED) from None
    said = json.dumps(config.model_dump(mode="json", exclude_defaults=True), indent=2)
    typer.echo(
        f"{file} is fine; other than by default:\n{said}"
        if said != "{}"
        else f"{file} is fine; all is as by default"
    )


@config_app.command()
def schema() -> None:
    """Print the JSON schema of the file, for editors."""
    typer.echo(json.dumps(config_schema(), indent=2))
