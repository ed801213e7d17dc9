"""One known op: the file format of references/<category>/<name>.md, and how it is read. Pure.

The file has YAML front matter (names, roles, mathematics, source) and one ```python block, the reference:

    ---
    aliases: [relu2, relu squared, relu^2, squared relu]
    mathematics: y = max(x, 0)²
    source: "Primer, arXiv:2109.08668"
    tensors: {x: full}
    ---
    ```python
    import torch

    def relu_squared(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x).square()
    ```

A tensor's role is `full` (every element its own value), `column` (a learnable vector, one value per column), `row`
(one value per row), `scalar` (0-d), or a mapping with the fields of TensorSpec, where `shape` is "*, n_cols".
A scalar is its default, or a mapping with the fields of ScalarSpec.
"""

from __future__ import annotations

import re
from typing import Any

import yaml
from pydantic import Field, ValidationError

from kernels.op_spec import Frozen, OpSpec, ScalarSpec, TensorSpec

ROLE_SHAPES: dict[str, tuple[str, ...]] = {
    "full": ("*", "n_cols"),
    "column": ("n_cols",),
    "row": ("*",),
    "scalar": (),
}
_FILE = re.compile(r"\A---\n(?P<front>.*?\n)---\n\s*```python\n(?P<source>.*?\n)```\s*\Z", re.DOTALL)


class CatalogError(ValueError):
    """A reference file of ours is wrong: names the file and what to change."""


class FrontMatter(Frozen):
    """What the YAML of a reference file may say."""

    aliases: tuple[str, ...] = Field(default=(), description="other names that people use, in any spelling")
    class_name: str | None = Field(default=None, description='how class names spell it, e.g. "ReLUSquared"')
    mathematics: str = Field(description="one line, e.g. y = max(x, 0)²")
    source: str = Field(description="paper, library or URL where it is defined")
    tensors: dict[str, str | dict[str, Any]] = Field(
        description="role of every tensor argument, in call order"
    )
    scalars: dict[str, Any] = Field(
        default_factory=dict, description="default of every Python scalar argument"
    )
    expression: str | None = Field(
        default=None, description="the same mathematics as a person types it; recognises expressions"
    )


class KnownOp(Frozen):
    """A catalog entry."""

    op: OpSpec
    aliases: tuple[str, ...] = ()
    category: str = Field(description="the folder, e.g. activation, gated, norm, loss")
    source: str
    class_name: str | None = None
    expression: str | None = None


def parse_known_op(name: str, category: str, text: str) -> KnownOp:
    """Read one reference file. Raises CatalogError."""
    match = _FILE.match(text)
    if match is None:
        raise CatalogError(
            f"{category}/{name}.md: expected YAML between `---` lines, then one ```python block"
        )
    try:
        front = FrontMatter.model_validate(yaml.safe_load(match["front"]))
        op = OpSpec(
            name=name,
            entry=name,
            source=match["source"],
            tensors=tuple(_tensor(key, role) for key, role in front.tensors.items()),
            scalars=tuple(_scalar(key, value) for key, value in front.scalars.items()),
            summary=front.mathematics,
        )
    except (yaml.YAMLError, ValidationError, KeyError) as error:
        raise CatalogError(f"{category}/{name}.md: {error}") from error
    return KnownOp(
        op=op,
        aliases=front.aliases,
        category=category,
        source=front.source,
        class_name=front.class_name,
        expression=front.expression,
    )


def _tensor(name: str, role: str | dict[str, Any]) -> TensorSpec:
    if isinstance(role, dict):
        shape = str(role["shape"]).strip()
        named = tuple(axis.strip() for axis in shape.split(",") if axis.strip())
        axes = ROLE_SHAPES.get(shape, named)
        return TensorSpec(name=name, **{**role, "shape": axes})
    if role == "column":
        init = "zeros" if name in {"bias", "beta", "shift"} else "ones"
        return TensorSpec(name=name, shape=ROLE_SHAPES[role], learnable=True, init=init)
    return TensorSpec(name=name, shape=ROLE_SHAPES[role])


def _scalar(name: str, value: Any) -> ScalarSpec:
    return ScalarSpec(name=name, **value) if isinstance(value, dict) else ScalarSpec(name=name, default=value)
