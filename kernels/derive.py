"""Derive the kernels of a traced op: what is saved, computed, and how it is laid out. Pure: no torch, nothing executed."""

from __future__ import annotations

import keyword

from kernels.derivation import Derivation, Unsupported
from kernels.deriver import Deriver
from kernels.module_style import ModuleStyle
from kernels.op_spec import OpSpec
from kernels.passes.split_rows import split_rows as with_split_rows
from kernels.printer import print_module
from kernels.templates.chunked_linear import chunked_derivation
from kernels.templates.linear_cut import cut_linear
from kernels.templates.registry import derived_from_template
from kernels.traced import TracedOp


def derive(traced: TracedOp, *, wide_rows: bool = False, split_rows: bool = False) -> Derivation:
    """Derive forward and backward. Raises Unsupported for what the rules can't express.

    wide_rows: rows may be wider than one block (65536 columns): every row is read in blocks. split_rows: there are fewer
    rows than multiprocessors, of very many columns: each is split over programs.
    """
    _check_names(traced.op)
    if not traced.outputs:
        raise Unsupported("the reference returns nothing", needed="a result")
    derivation = derived_from_template(traced) or _derived(traced, wide_rows=wide_rows, split_rows=split_rows)
    if split_rows:
        derivation = with_split_rows(derivation)
    # What can't be printed (a size that no given tensor shows) is found now, not after a person has approved it.
    print_module(derivation, ModuleStyle.standalone(traced.op.name))
    return derivation


def _derived(traced: TracedOp, *, wide_rows: bool, split_rows: bool) -> Derivation:
    cut = cut_linear(traced)
    if cut is not None:
        return chunked_derivation(traced, cut)
    return Deriver(traced, wide_rows=wide_rows, split_rows=split_rows).run()


def _check_names(op: OpSpec) -> None:
    """Names become part of the printed source: they must be plain identifiers."""
    for name in [op.name, *(t.name for t in op.tensors), *(s.name for s in op.scalars)]:
        if not name.isidentifier() or keyword.iskeyword(name):
            raise Unsupported(f"{name!r} is not a usable name", needed="a plain Python identifier")
    for tensor in op.tensors:
        for axis in tensor.shape:
            if axis != "*" and not axis.isidentifier():
                raise Unsupported(f"{axis!r} is not a usable axis name", needed="a plain Python identifier")
