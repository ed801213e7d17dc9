"""Under torch.no_grad, and with inputs that need no gradient.

Liger#930, #931: the path without gradients read locals that were set only on the other path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from runners.checks.family import Family
from runners.gauntlet.builder import Builder
from runners.gauntlet.case import Case, Options


def cases(builder: Builder) -> Iterator[Callable[[], Case]]:
    yield partial(builder.case, "no_grad", "under no_grad", rows=(4,), cols=33, options=Options(no_grad=True))
    yield partial(builder.case, "no_grad", "nothing requires grad", rows=(4,), cols=33, needs_grad=set())


FAMILY = Family("no_grad", "without gradients", cases)
