"""The files that setup leaves: secrets that only their owner reads, and a `.env` that names them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from app.github.manifest import RegisteredApp
from app.usage import UsageMistake

SECRETS = Path(".liger-bot") / "secrets"
PRIVATE_KEY = SECRETS / "private-key.pem"
WEBHOOK_SECRET = SECRETS / "webhook-secret"
CLIENT_SECRET = SECRETS / "client-secret"
ENV = Path(".env")


def require_room(folder: Path, *, replace: bool) -> None:
    """Raises UsageMistake when an App was set up here before, or nothing can be written."""
    taken = [path for path in (PRIVATE_KEY, WEBHOOK_SECRET) if (folder / path).exists()]
    if taken and not replace:
        raise UsageMistake(
            f"an App was set up in {folder} before ({taken[0]} is there): use another folder with --into, or --replace"
        )
    try:
        (folder / SECRETS).mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder / SECRETS):
            pass
    except OSError as error:
        raise UsageMistake(f"{folder / SECRETS} can't be written to: {error.strerror}") from None


def write_app(folder: Path, app: RegisteredApp, others: Mapping[str, str]) -> None:
    """Write down an App. GitHub shows its secrets once, so they go to disk before anything else can fail."""
    _write_private(folder / PRIVATE_KEY, app.private_key.get_secret_value())
    _write_private(folder / WEBHOOK_SECRET, app.webhook_secret.get_secret_value())
    _write_private(folder / CLIENT_SECRET, app.client_secret.get_secret_value())
    values = {
        "LIGER_BOT_APP_ID": str(app.id),
        "LIGER_BOT_PRIVATE_KEY_FILE": str(PRIVATE_KEY),
        "LIGER_BOT_WEBHOOK_SECRET_FILE": str(WEBHOOK_SECRET),
        "LIGER_BOT_CLIENT_ID": app.client_id,
        "LIGER_BOT_CLIENT_SECRET_FILE": str(CLIENT_SECRET),
        **others,
    }
    env = folder / ENV
    before = env.read_text(encoding="utf-8") if env.exists() else ""
    _write_private(env, with_values(before, values))


def with_values(text: str, values: Mapping[str, str]) -> str:
    """The text of a .env file with those variables set; other lines stay as they are."""
    kept = [line for line in text.splitlines() if line.partition("=")[0].strip() not in values]
    # a value with a blank, a quote or a # would be read as something else
    new = [
        f"{name}='{value}'" if set(value) & set(' #"$\\') else f"{name}={value}"
        for name, value in values.items()
    ]
    return "\n".join([*kept, *new]) + "\n"


def _write_private(path: Path, text: str) -> None:
    """Put a file in place whole, readable by its owner alone from the first byte on."""
    handle, scratch = tempfile.mkstemp(dir=path.parent)  # made with mode 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(scratch).replace(path)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise
