"""Runs in the overlay: puts an adapter behind the target's Function, and counts what really ran.

Copied as liger_kernel/derived/__init__.py beside the printed modules; imports none of ours. A launch is counted where a
printed kernel is indexed with its grid, so that a count above 0 proves that the derived kernel itself ran.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from collections import Counter
from typing import Any

CALLS: Counter[str] = Counter()  # variant -> calls of its derived Function
LAUNCHES: Counter[str] = Counter()  # kernel name -> launches
NOT_OURS: Counter[str] = Counter()  # reason -> calls that the target's own Function answered


class CountedKernel:
    """A kernel that counts its launches."""

    def __init__(self, kernel: Any, name: str) -> None:
        self._kernel, self._name = kernel, name

    def __getitem__(self, grid: Any) -> Any:
        LAUNCHES[self._name] += 1
        return self._kernel[grid]


class NotPrintedError(LookupError):
    """The variant's reference could not be derived, so the overlay has no module for it."""


@functools.cache
def _function(variant: str) -> Any:
    """The printed module's autograd Function; its kernels count from now on. Raises NotPrintedError."""
    if importlib.util.find_spec(f"{__name__}.{variant}") is None:
        raise NotPrintedError(f"no derived module {variant}")
    module = importlib.import_module(f"{__name__}.{variant}")
    for name, value in list(vars(module).items()):
        if name.startswith(f"_{variant}_") and name.endswith("_kernel"):
            setattr(module, name, CountedKernel(value, name))
    pascal = "".join(part[:1].upper() + part[1:] for part in variant.split("_"))
    return getattr(module, f"{pascal}Function")


def derived(variant: str, *arguments: Any) -> Any:
    """Run a derived variant. Raises NotPrintedError."""
    function = _function(variant)
    CALLS[variant] += 1
    return function.apply(*arguments)


def put_behind(original: Any, adapter: str) -> Any:
    """A Function whose `apply` is the adapter's, and the original's where the adapter hands back.

    With UPSTREAM_BASELINE=1 the original answers everything: what a test says about the target itself.
    """
    if os.environ.get("UPSTREAM_BASELINE") == "1":
        return original
    from liger_kernel.derived import adapters  # pyright: ignore[reportMissingImports] - there only in the overlay

    adapt = adapters.ADAPTERS[adapter].adapt

    class Replaced(original):
        @staticmethod
        def apply(*arguments: Any) -> Any:
            try:
                result = adapt(derived, *arguments)
            except NotPrintedError as missing:
                result = adapters.NotOurs(str(missing))
            if isinstance(result, adapters.NotOurs):
                NOT_OURS[result.reason] += 1
                return original.apply(*arguments)
            return result

    Replaced.__name__, Replaced.__qualname__ = original.__name__, original.__qualname__
    return Replaced
