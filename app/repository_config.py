"""`.github/liger-bot.yml`: what a target repository decides about the bot. Pure: text in, a configuration or one line of complaint out."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator
from rapidfuzz import fuzz, process

from app.yaml_lines import Lines, YamlMistake, read_yaml

CONFIG_PATH = ".github/liger-bot.yml"
SCHEMA_ID = "liger-bot.schema.json"
NEAR_ENOUGH = 70  # rapidfuzz's ratio, of 100, from which a key is offered as what was meant

Level = Literal["read", "triage", "write", "maintain", "admin", "nobody"]
Login = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9](?:[A-Za-z0-9_-]{0,99})$")]
Team = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$")]
Architecture = Annotated[str, StringConstraints(pattern=r"^(sm_[0-9]{2,3}[af]?|gfx[0-9a-f]{3,5})$")]
Label = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._ -]{0,255}$")]
BranchPrefix = Annotated[str, StringConstraints(pattern=r"^([a-z0-9][a-z0-9_-]{0,40}/){1,3}$", max_length=60)]
PathPattern = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_*?][A-Za-z0-9_.*?/-]{0,199}$")]


class ConfigMistake(Exception):  # noqa: N818 - an answer to a person
    """The file can't be used: one line that names the place and says what to do."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Who(_Strict):
    """People: everyone with at least that permission, and those who are named. Written as a word, it is the permission."""

    permission: Level = Field(
        default="nobody", description="least permission on the repository; nobody: only those who are named"
    )
    logins: list[Login] = Field(default=[], description="people by their GitHub names")
    teams: list[Team] = Field(
        default=[],
        description="teams of the organisation by their short names (needs the permission `members: read`)",
    )

    @model_validator(mode="before")
    @classmethod
    def _word(cls, value: Any) -> Any:
        return {"permission": value} if isinstance(value, str) else value


WRITERS = Who(permission="write")


class Commands(_Strict):
    """Who may give which command. `status` and `help` are anyone's; `approve` follows `approvers`; `reject` is every writer's."""

    dev: Who = WRITERS
    autopatch: Who = WRITERS
    perf: Who = WRITERS
    revise: Who = WRITERS
    retry: Who = WRITERS
    cancel: Who = Field(default=WRITERS, description="besides the person who asked, who always may")


class RepositoryConfig(_Strict):
    """What `.github/liger-bot.yml` may say, on the default branch of the repository or of its organisation's `.github`."""

    commands: Commands = Field(default=Commands(), description="who may give which command")
    approvers: Who = Field(
        default=WRITERS,
        description="who may approve a profile, among those with write access, who may all turn it down",
    )
    requester_may_approve: bool = Field(
        default=True, description="false: the person who asked may not approve; it takes a second person"
    )
    approval_days: Annotated[float, Field(gt=0, le=90)] = Field(
        default=14.0, description="days after which a profile that nobody answered expires"
    )
    runners: dict[Architecture, Annotated[list[Label], Field(min_length=1, max_length=20)]] = Field(
        default={}, description="labels of the self-hosted runners that verify on a GPU architecture"
    )
    gpu_minutes_per_request: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=60.0, description="most minutes of GPU runners that one request may use"
    )
    gpu_minutes_per_day: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=600.0,
        description="most minutes of GPU runners that all requests of this repository may use in a day",
    )
    model_usd_per_request: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=1.0,
        description="most that one request may spend on the language model, US dollars; 0: no model",
    )
    branch_prefix: BranchPrefix = Field(
        default="liger-bot/", description="what the names of the bot's branches start with; ends with a slash"
    )
    allowed_paths: list[PathPattern] = Field(
        default=[],
        description="patterns of the paths that the bot may write (`*` within a folder, `**` across folders); empty: whatever the approved profile lists",
    )


def parse_config(text: str, defaults: RepositoryConfig | None = None) -> RepositoryConfig:
    """The configuration in a file's text; what it doesn't say is as in `defaults`. Raises ConfigMistake."""
    try:
        data, lines = read_yaml(text)
    except YamlMistake as mistake:
        raise ConfigMistake(str(mistake)) from None
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise ConfigMistake("line 1: the file must hold keys, such as `approval_days: 14`")
    try:
        said = RepositoryConfig.model_validate(data)
    except ValidationError as error:
        raise ConfigMistake(_first(error, lines)) from None
    given = {name: getattr(said, name) for name in said.model_fields_set}
    return (defaults or RepositoryConfig()).model_copy(update=given)


def _first(error: ValidationError, lines: Lines) -> str:
    """The complaint that stands first in the file."""
    found = [(lines.of(one["loc"]), one) for one in error.errors()]
    line, one = min(found, key=lambda pair: pair[0])
    return f"line {line}: {_complaint(one)}"


def _complaint(one: Any) -> str:
    where = [part for part in one["loc"] if part != "[key]"]
    name = ".".join(str(part) for part in where)
    if one["type"] == "extra_forbidden":
        known = _known_keys(where[:-1])
        near = process.extractOne(str(where[-1]), known, scorer=fuzz.ratio, score_cutoff=NEAR_ENOUGH)
        meant = f", did you mean `{near[0]}`?" if near else f"; known here: {', '.join(known)}"
        return f"unknown key `{_short(where[-1])}`{meant}"
    if one["loc"][-1:] == ("[key]",):
        return f"`{_short(where[-1])}` is not an architecture such as sm_90 or gfx942"
    if one["type"] == "string_pattern_mismatch":
        return (
            f"`{name}` can't be `{_short(one['input'])}`: {_PATTERN_WORDS.get(str(where[0]), 'not a name')}"
        )
    wanted = _TYPE_WORDS.get(one["type"]) or one["msg"].removeprefix("Input should be ")
    return f"`{name}` must be {wanted}, not {_short(json.dumps(one['input'], default=str))}"


_TYPE_WORDS = {
    "model_type": "keys and values",
    "dict_type": "keys and values",
    "list_type": "a list, such as [one, two]",
    "too_short": "a list that isn't empty",
    "bool_type": "true or false",
    "float_type": "a number",
    "string_type": "text",
}


_PATTERN_WORDS = {
    "branch_prefix": "lower-case names, each followed by a slash, such as liger-bot/",
    "allowed_paths": "a pattern of a path inside the repository, such as src/**",
    "runners": "not a runner label",
    "approvers": "not the name of a person or a team",
    "commands": "not the name of a person or a team",
}


def _known_keys(where: list[Any]) -> list[str]:
    """The keys that a mapping of the file may hold, by the way to it."""
    if not where:
        return list(RepositoryConfig.model_fields)
    if where == ["commands"]:
        return list(Commands.model_fields)
    return list(Who.model_fields)


def _short(value: Any) -> str:
    text = str(value).replace("`", "'").replace("\n", " ")
    return text if len(text) <= 60 else text[:59] + "…"


def config_schema() -> dict[str, Any]:
    """The JSON schema of the file, for editors and for docs/liger-bot.schema.json."""
    schema = RepositoryConfig.model_json_schema()
    who = schema["$defs"]["Who"]
    levels = who["properties"]["permission"]["enum"]
    schema["properties"]["runners"]["additionalProperties"] = False  # besides its pattern
    schema["$defs"]["Who"] = {
        "description": who.pop("description"),
        "anyOf": [{"type": "string", "enum": levels}, who],
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID, **schema}
