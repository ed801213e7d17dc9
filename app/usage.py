"""How a call of the command line can end other than well."""

from __future__ import annotations

EXIT_FAILED = 1  # the candidate failed a hard check, or the op was refused
EXIT_USAGE = 2  # the call itself was wrong
EXIT_STOPPED = 130  # Ctrl-C


class UsageMistake(Exception):  # noqa: N818 - an answer to a person
    """A wrong call: one line that says what to do."""
