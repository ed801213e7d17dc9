"""Stands in for names that this transformers no longer has, so that an old checkout imports.

An old release imports from every model at once; one removed helper of another model would end the run. Only the library's
and the tests' own imports are helped, never those of the model under test, and what was stood in for is listed. For replays
of history; a pull request is judged without it.
"""

from __future__ import annotations

import builtins
import importlib
from typing import Any

LISTED: list[str] = []


class StandIn:
    """Whatever an import-time use may want: a base class, a decorator, a call."""

    def __init__(self, *_arguments: Any, **_keywords: Any):
        pass

    def __call__(self, function: Any = None, *_arguments: Any, **_keywords: Any) -> Any:
        return function


def install(own_prefixes: tuple[str, ...], except_modules: tuple[str, ...]) -> None:
    """Help imports made by modules whose name begins with one of `own_prefixes`, but not by `except_modules`."""
    original = builtins.__import__

    def helped(name: str, *context: Any, **named: Any) -> Any:
        module = original(name, *context, **named)
        given = dict(zip(("globals", "locals", "fromlist", "level"), context, strict=False)) | named
        fromlist = given.get("fromlist") or ()
        importer = (given.get("globals") or {}).get("__name__", "")
        if (
            fromlist
            and module.__name__.split(".")[0] == "transformers"
            and importer.startswith(own_prefixes)
            and importer not in except_modules
        ):
            for wanted in fromlist:
                if wanted != "*" and not _has(module, wanted):
                    value = "" if wanted.isupper() else type(wanted, (StandIn,), {})
                    setattr(module, wanted, value)
                    LISTED.append(f"{module.__name__}.{wanted}")
        return module

    builtins.__import__ = helped


def _has(module: Any, name: str) -> bool:
    try:
        if hasattr(module, name):
            return True
        importlib.import_module(f"{module.__name__}.{name}")
    except ImportError:
        return False
    return True
