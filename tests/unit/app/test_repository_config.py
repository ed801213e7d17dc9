"""`.github/liger-bot.yml`: every complaint names its line, and what is accepted is what the schema says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from app.repository_config import ConfigMistake, RepositoryConfig, Who, config_schema, parse_config
from app.yaml_lines import YamlMistake, read_yaml

SCHEMA = Path(__file__).parents[3] / "docs" / "liger-bot.schema.json"

WHOLE = """\
commands:
  dev: {permission: maintain, logins: [Alice]}
  autopatch: write
  perf: nobody
  cancel:
    teams: [kernel-team]
approvers: maintain
requester_may_approve: false
approval_days: 3
runners:
  sm_90: [self-hosted, h100]
  gfx942: [self-hosted, mi300]
gpu_minutes_per_request: 30
gpu_minutes_per_day: 240
model_usd_per_request: 0.5
branch_prefix: bots/liger/
allowed_paths: [src/**, "test/*.py"]
"""


def test_a_whole_file_is_read():
    config = parse_config(WHOLE)
    assert config.commands.dev == Who(permission="maintain", logins=["Alice"])
    assert config.commands.autopatch == Who(permission="write")
    assert config.commands.perf == Who()
    assert config.commands.cancel == Who(teams=["kernel-team"])
    assert config.commands.retry == Who(permission="write")
    assert (config.requester_may_approve, config.approval_days) == (False, 3.0)
    assert config.runners == {"sm_90": ["self-hosted", "h100"], "gfx942": ["self-hosted", "mi300"]}
    assert (config.gpu_minutes_per_request, config.gpu_minutes_per_day) == (30.0, 240.0)
    assert (config.branch_prefix, config.allowed_paths) == ("bots/liger/", ["src/**", "test/*.py"])


def test_what_a_file_does_not_say_is_as_the_service_has_it():
    defaults = RepositoryConfig(approval_days=5, requester_may_approve=False)
    assert parse_config("", defaults) == defaults
    assert parse_config("# nothing yet\n", defaults) == defaults
    mixed = parse_config("approval_days: 2", defaults)
    assert (mixed.approval_days, mixed.requester_may_approve) == (2.0, False)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("approval_days: 3\n\naprovers: write\n", "line 3: unknown key `aprovers`, did you mean `approvers`?"),
        ("commands:\n  dev: write\n  autopach: write", "line 3: unknown key `autopach`, did you mean `autopatch`?"),
        ("approvers:\n  login: [a]", "line 2: unknown key `login`, did you mean `logins`?"),
        ("approval_days: 3\nb: [", "line 2: not YAML"),
        ("a: b: c", "line 1: not YAML: mapping values are not allowed here"),
        ("commands:\n  dev: writers", "line 2: `commands.dev.permission` must be 'read'"),
        ("approval_days: yes", "line 1: `approval_days` must be a number, not true"),
        ("approval_days: 0", "line 1: `approval_days` must be greater than 0"),
        ("gpu_minutes_per_day: .inf", "line 1: `gpu_minutes_per_day` must be a finite number"),
        ("requester_may_approve: 1", "line 1: `requester_may_approve` must be true or false"),
        ("runners:\n  h100: [x]", "line 2: `h100` is not an architecture such as sm_90 or gfx942"),
        ("runners:\n  sm_90: []", "line 2: `runners.sm_90` must be a list that isn't empty"),
        ("runners:\n  sm_90:\n  - ok\n  - 'a,b'", "line 4: `runners.sm_90.1` can't be `a,b`"),
        ("branch_prefix: main", "line 1: `branch_prefix` can't be `main`"),
        ("branch_prefix: a/../", "line 1: `branch_prefix` can't be `a/../`"),
        ("allowed_paths:\n- src/**\n- ../x", "line 3: `allowed_paths.1` can't be `../x`"),
        ("approvers: {logins: ['a b']}", "line 1: `approvers.logins.0` can't be `a b`"),
        ("approval_days: 1\napproval_days: 2", "line 2: `approval_days` stands here a second time"),
        ("approvers: &a write\ncommands: {dev: *a}", "line 1: references and tags"),
        ("approvers: !!python/object/apply:os.system [id]", "line 1: references and tags"),
        ("- a", "line 1: the file must hold keys"),
        ("commands:", "line 1: `commands` must be keys and values, not null"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_that_says_where(text: str, complaint: str):
    with pytest.raises(ConfigMistake) as caught:
        parse_config(text)
    assert str(caught.value).startswith(complaint)
    assert "\n" not in str(caught.value)


def test_a_text_that_would_be_gigantic_or_deep_is_refused():
    with pytest.raises(ConfigMistake, match="longer than"):
        parse_config("# " + "x" * 70_000)
    with pytest.raises(ConfigMistake, match="nested too deeply"):
        parse_config("a: " + "[" * 1200 + "]" * 1200)


@given(st.text(alphabet=st.sampled_from("abcdr:{}[]-&*!|>'\"# \n\t%@,?0.~"), max_size=60))
def test_any_text_is_read_or_refused(text: str):
    try:
        read_yaml(text)
        said = "line "
    except YamlMistake as mistake:
        said = str(mistake)
    assert said.startswith("line ")


def test_the_published_schema_is_current():
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == config_schema(), (
        "run: liger-bot config schema > docs/liger-bot.schema.json"
    )


def test_the_schema_judges_as_the_bot_does():
    validator = Draft202012Validator(config_schema())
    data, _ = read_yaml(WHOLE)
    assert validator.is_valid(data)
    for wrong in (
        {"aprovers": "write"},
        {"approvers": "owners"},
        {"runners": {"h100": ["x"]}},
        {"approval_days": 0},
    ):
        assert not validator.is_valid(wrong)


def test_the_page_about_the_file_shows_every_key_and_its_example_is_right():
    page = (SCHEMA.parent / "config.md").read_text(encoding="utf-8")
    example = page.split("```yaml\n", 1)[1].split("```", 1)[0]
    data, _ = read_yaml(example)
    assert set(data) == set(RepositoryConfig.model_fields)
    config = parse_config(example)
    assert config.approvers == Who(permission="maintain")
    table = [line for line in page.splitlines() if line.startswith("| `")]
    assert [
        name for name in RepositoryConfig.model_fields if not any(f"`{name}`" in line for line in table)
    ] == []
