"""The answer to a request that can't become a profile: why, and what to type next. Pure; app turns it into a comment."""

from __future__ import annotations

from pydantic import Field

from kernels.op_spec import Frozen


class Refused(Frozen):
    """A person's mistake or a limit of ours, as data."""

    reason: str = Field(description="one sentence a person understands")
    node: str | None = Field(
        default=None, description='the operation that is outside the rules, e.g. "aten.sort.default"'
    )
    where: str | None = Field(
        default=None, description='"reference line 4: y = x.sort()", or file:line in the target repository'
    )
    needed: str | None = Field(default=None, description="what would be needed")
    suggestions: tuple[str, ...] = Field(default=(), description="commands or names to try next, best first")
    model_could_help: bool = Field(
        default=False, description="True when a configured model could take it from here"
    )


class Mistake(Exception):  # noqa: N818 - the commands' word for what a person got wrong
    """Raised inside the parsers of this folder; their public functions turn it into Refused."""

    def __init__(
        self,
        reason: str,
        *,
        where: str | None = None,
        needed: str | None = None,
        suggestions: tuple[str, ...] = (),
    ):
        super().__init__(reason)
        self.refused = Refused(reason=reason, where=where, needed=needed, suggestions=suggestions)
