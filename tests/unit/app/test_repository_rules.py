"""What the keys of `.github/liger-bot.yml` mean where the code decides."""

from __future__ import annotations

import pytest

from app.policy import (
    Door,
    ForbiddenWriteError,
    PathNotAllowedError,
    among,
    branch_name,
    check_allowed,
    check_branch,
    door,
    rule_for,
)
from app.repository_config import RepositoryConfig, Who, parse_config
from app.verbs import Verb


@pytest.mark.parametrize(
    ("who", "permission", "login", "expected"),
    [
        (Who(permission="write"), "write", "a", True),
        (Who(permission="write"), "triage", "a", False),
        (Who(permission="maintain"), "write", "a", False),
        (Who(permission="maintain"), "admin", "a", True),
        (Who(permission="read"), "none", "a", False),
        (Who(), "admin", "a", False),
        (Who(logins=["Alice"]), "none", "aLICE", True),
        (Who(logins=["Alice"]), "admin", "bob", False),
        (Who(permission="write"), "no such level", "a", False),
    ],
)
def test_who_is_among(who: Who, permission: str, login: str, expected: bool):
    assert among(who, permission, login) is expected


def test_the_configuration_has_no_say_over_help_status_and_answers():
    config = parse_config("commands: {dev: nobody}")
    assert rule_for(Verb.dev, config) == Who()
    free = (Verb.help, Verb.status, Verb.approve, Verb.reject)
    assert [rule_for(verb, config) for verb in free] == [None] * 4


@pytest.mark.parametrize(
    ("verb", "permission", "named", "requester", "expected"),
    [
        (Verb.dev, "write", True, False, Door.follow),
        (Verb.dev, "write", False, False, Door.refuse),
        (Verb.dev, "read", True, False, Door.follow),
        (Verb.dev, "read", False, False, Door.refuse),
        (Verb.cancel, "read", False, True, Door.follow),
        (Verb.cancel, "write", False, False, Door.refuse),
        (Verb.approve, "write", None, False, Door.follow),
        (Verb.approve, "read", None, True, Door.refuse),
    ],
)
def test_the_door_follows_the_configuration(
    verb: Verb, permission: str, named: bool | None, requester: bool, expected: Door
):
    assert door(verb, permission, is_requester=requester, answers_today=0, named=named) is expected


def test_a_stranger_is_answered_once_and_a_writer_each_time():
    later = {"is_requester": False, "answers_today": 9, "named": False}
    assert door(Verb.dev, "read", **later) is Door.ignore
    assert door(Verb.dev, "write", **later) is Door.refuse


def test_branches_are_under_the_prefix():
    prefix = "bots/liger/"
    name = branch_name("relu2", "abc2345", 1, prefix)
    assert name == "bots/liger/relu2-abc2345"
    check_branch(name, prefix)
    for other in ("liger-bot/relu2-abc2345", "bots/liger", "bots/liger/", "bots/liger/../main", "main"):
        with pytest.raises(ForbiddenWriteError):
            check_branch(other, prefix)


def test_the_default_prefix_is_the_configuration_s():
    check_branch(branch_name("relu2", "abc2345", 1, RepositoryConfig().branch_prefix))


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("src/**", "src/a/b.py", True),
        ("src/**", "test/a.py", False),
        ("src/**", "src2/a.py", False),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/a/b.py", False),
        ("**/ops/*.py", "ops/a.py", True),
        ("**/ops/*.py", "src/x/ops/a.py", True),
        ("test/test_?.py", "test/test_a.py", True),
        ("test/test_?.py", "test/test_/.py", False),
        ("a.b/*", "axb/c", False),
    ],
)
def test_allowed_paths_are_patterns(pattern: str, path: str, fits: bool):
    if fits:
        check_allowed([path], [pattern])
        return
    with pytest.raises(PathNotAllowedError, match="allowed_paths"):
        check_allowed([path], [pattern])


def test_no_pattern_allows_what_the_profile_lists():
    check_allowed(["src/a.py"], [])
    check_allowed([], ["docs/**"])
