"""Any subset of the inputs requiring gradients.

Frozen weights (LoRA) and inputs without gradients are ordinary; backward kernels that always write every gradient, or
return them in the wrong order, break there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from runners.checks.family import Family
from runners.gauntlet.builder import Builder
from runners.gauntlet.case import Case


def cases(builder: Builder) -> Iterator[Callable[[], Case]]:
    names = builder.differentiable()
    if len(names) < 2:
        return
    for name in names:
        yield partial(builder.case, "needs_grad", f"only {name}", rows=(4,), cols=33, needs_grad={name})
        if len(names) > 2:
            yield partial(
                builder.case,
                "needs_grad",
                f"all but {name}",
                rows=(4,),
                cols=33,
                needs_grad=set(names) - {name},
            )


FAMILY = Family(
    "needs_grad",
    "any subset of inputs requiring gradients",
    cases,
    nothing_to_test="only one input has a gradient",
)
