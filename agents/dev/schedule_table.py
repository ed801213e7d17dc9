"""The schedules that a derivation weighs, and what the offline compiler says about each. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from kernels.derivation import Derivation, Unsupported
from kernels.derive import derive
from kernels.module_style import ModuleStyle
from kernels.printer import kernel_names
from kernels.traced import TracedOp
from runners.protocol import Measurement, Verdict

NUM_WARPS = (4, 8, 16)


class Compiled(BaseModel):
    """One kernel under one schedule, compiled for one architecture."""

    model_config = ConfigDict(extra="forbid")

    kernel: str
    schedule: str
    num_warps: int
    at: str
    arch: str
    registers: int
    spill_bytes: int
    shared_bytes: int
    occupancy: float
    chosen: bool


class ScheduleTable(BaseModel):
    """Everything compiled, and in `note` what could not be, in one line."""

    model_config = ConfigDict(extra="forbid")

    rows: list[Compiled] = []
    note: str = ""

    @property
    def archs(self) -> list[str]:
        return list(dict.fromkeys(row.arch for row in self.rows))

    def lines(self) -> dict[tuple[str, str, int, str], dict[str, Compiled]]:
        """By kernel, schedule, warps and width, the chosen ones of a kernel and width first; within them by architecture."""
        widths = list(dict.fromkeys(row.at for row in self.rows))
        kernels = list(dict.fromkeys(row.kernel for row in self.rows))
        found: dict[tuple[str, str, int, str], dict[str, Compiled]] = {}
        for row in sorted(
            self.rows,
            key=lambda r: (
                kernels.index(r.kernel),
                widths.index(r.at),
                not r.chosen,
                r.schedule,
                r.num_warps,
            ),
        ):
            found.setdefault((row.kernel, row.schedule, row.num_warps, row.at), {})[row.arch] = row
        return found

    def spill_verdict(self) -> str:
        """Whether the chosen schedules spill, and which of the others wouldn't, in one line."""
        spilling = [row for row in self.rows if row.chosen and row.spill_bytes]
        if not self.rows or not spilling:
            return "Nothing spills under the chosen schedules." if self.rows else ""
        worst = max(spilling, key=lambda row: row.spill_bytes)
        text = f"{worst.kernel} spills {worst.spill_bytes} B at {worst.at} for {worst.arch}"
        others = [
            row
            for row in self.rows
            if not row.chosen
            and not row.spill_bytes
            and (direction(row.kernel), row.at, row.arch) == (direction(worst.kernel), worst.at, worst.arch)
        ]
        if not others:
            return f"{text}; so does every other schedule considered."
        best = min(others, key=lambda row: (row.kernel != worst.kernel, row.num_warps))
        return f"{text}; {best.schedule} with {best.num_warps} warps would not."


@dataclass(frozen=True)
class Considered:
    """One way to lay the op on a GPU. `chosen`: the one that the candidate will have."""

    derivation: Derivation
    style: ModuleStyle
    chosen: bool

    def schedule_of(self, kernel: str) -> str:
        """The schedule's name of one of its kernels; helpers have none of their own."""
        steps = [s for s in (*self.derivation.forward_steps, *self.derivation.backward_steps) if s.schedule]
        names = kernel_names(self.derivation, self.style)
        if len(names) == len(steps):
            found = dict(zip(names, (s.schedule.name for s in steps if s.schedule), strict=True))
            return found.get(kernel, "helper")
        return "template" if kernel in names else "helper"


def considered(traced: TracedOp, derivation: Derivation) -> list[Considered]:
    """The chosen derivation; and rows as they fit, and rows in blocks, where that makes other kernels."""
    name = derivation.op.name
    result = [Considered(derivation, ModuleStyle.standalone(name), chosen=True)]
    for blocks in (False, True):
        try:
            other = derive(traced, wide_rows=blocks)
        except Unsupported:
            continue
        if all(other != known.derivation for known in result):
            result.append(Considered(other, ModuleStyle.standalone(name), chosen=False))
    return result


def compiled_rows(one: Considered, verdicts: Sequence[Verdict], chosen: Sequence[Compiled]) -> list[Compiled]:
    """A compile job's measurements as rows. Of what isn't chosen, only kernels with a schedule that isn't in `chosen`."""
    points: dict[tuple[str, ...], dict[str, Measurement]] = {}
    for measurement in (m for verdict in verdicts for m in verdict.measurements):
        tags = measurement.tags
        key = (tags["kernel"], tags["num_warps"], tags["shape"], tags["arch"], tags.get("alternative", ""))
        points.setdefault(key, {})[measurement.name.split(f" {tags['kernel']} ")[0]] = measurement
    known = {(direction(row.kernel), row.schedule) for row in chosen}
    rows = []
    for (kernel, warps, shape, arch, alternative), found in points.items():
        schedule = one.schedule_of(kernel)
        if schedule == "helper" or (not one.chosen and (direction(kernel), schedule) in known):
            continue
        rows.append(
            Compiled(
                kernel=kernel,
                schedule=schedule,
                num_warps=int(warps),
                at=shape,
                arch=arch,
                registers=round(found["registers"].median),
                spill_bytes=round(found["spill"].median),
                shared_bytes=round(found["shared memory"].median),
                occupancy=found["theoretical occupancy"].median,
                chosen=one.chosen and not alternative,
            )
        )
    return rows


def direction(kernel: str) -> str:
    """Forward or backward, by a kernel's name."""
    return "backward" if "_backward_" in kernel else "forward"


def problems(verdicts: Sequence[Verdict]) -> str:
    """Why there is nothing to show, in one line; "" when there is."""
    if any(verdict.measurements for verdict in verdicts):
        return ""
    return next((verdict.summary for verdict in verdicts), "the runner left no result")
