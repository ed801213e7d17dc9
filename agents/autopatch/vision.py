"""The norms of a vision or audio part: which go with the patch, and the lines that reach them. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from agents.autopatch.model_profile import ModelProfile, NormClass

if TYPE_CHECKING:
    from agents.autopatch.patch_plan import NormPatch

NAMES = ("block", "inner_block", "innermost_block")


def with_vision_norms(
    norms: tuple[NormPatch, ...], profile: ModelProfile, patch: Callable[[NormClass], NormPatch]
) -> tuple[NormPatch, ...]:
    """The text decoder's norms with the places of the same class elsewhere, and classes that only the vision part has.

    The class path replaces a name of the module, so it reaches every place; the instance path has to follow. A class that would
    have to be written only for the vision part is left.
    """
    places = profile.vision_norm_uses
    made = [replace(one, places=tuple(places.get(one.norm.name, ()))) for one in norms]
    known = {norm.name for norm in profile.norms}
    others = [patch(norm) for norm in profile.vision_norms if norm.patched and norm.name not in known]
    made += [
        replace(one, places=tuple(places.get(one.norm.name, ()))) for one in others if not one.new_variant
    ]
    return tuple(made)


def only_vision(norms: tuple[NormPatch, ...]) -> set[str]:
    """Flags that change nothing of a text model's run, so that no count of kernel calls can show them."""
    return {one.flag for one in norms if one.places} - {one.flag for one in norms if one.uses}


def at_places(places: list[tuple[str, str]], root: str, indent: int) -> str:
    """One line a place, under a loop for each list: [("model.visual.blocks.*.norm1", "patch({})"), …]."""
    grouped: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for place, line in places:
        *lists, last = f"{root}.{place}".split(".*.")
        grouped.setdefault(tuple(lists), []).append((last, line))
    return "".join(
        textwrap.indent(_loops(lists, lines, ""), " " * indent) for lists, lines in grouped.items()
    )


def _loops(lists: tuple[str, ...], lines: list[tuple[str, str]], owner: str) -> str:
    if not lists:
        return "".join(line.format(f"{owner}.{last}" if owner else last) + "\n" for last, line in lines)
    depth = 0 if not owner else NAMES.index(owner) + 1
    name = NAMES[min(depth, len(NAMES) - 1)]
    head = f"for {name} in {owner}.{lists[0]}:\n" if owner else f"for {name} in {lists[0]}:\n"
    return head + textwrap.indent(_loops(lists[1:], lines, name), "    ")
