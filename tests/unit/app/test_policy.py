"""Who may do what, which reactions are approvals, what is ignored, what is written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.policy import (
    Answer,
    CommentEvent,
    Door,
    ForbiddenWriteError,
    SeenReaction,
    Shown,
    branch_name,
    check_branch,
    check_paths,
    door,
    expired,
    ignored_because,
    judge_reactions,
    poll_interval_s,
)
from app.verbs import Verb

SHOWN_AT = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
SHOWN = Shown(
    profile_sha256="p", body_sha256="b", shown_at=SHOWN_AT, stale_reactions=frozenset({7}), requester="asker"
)


def reaction(**changes: object) -> SeenReaction:
    values = {
        "id": 1,
        "content": "+1",
        "login": "maintainer",
        "user_type": "User",
        "permission": "write",
        "created_at": SHOWN_AT + timedelta(seconds=5),
    }
    return SeenReaction(**(values | changes))  # type: ignore[arg-type]


def judged(*reactions: SeenReaction, body: str = "b", requester_may_approve: bool = True) -> Answer:
    return judge_reactions(reactions, SHOWN, body, requester_may_approve=requester_may_approve).answer


def test_a_writers_thumb_after_the_profile_was_shown_approves():
    assert judged(reaction()) is Answer.approved


@pytest.mark.parametrize(
    "changes",
    [
        {"permission": "read"},
        {"permission": "none"},
        {"user_type": "Bot"},
        {"content": "heart"},
        {"content": "heart", "id": 7},
        {"approver": False, "id": 7},
    ],
)
def test_any_other_thumb_does_not_count(changes: dict[str, object]):
    assert judged(reaction(**changes)) is Answer.none


@pytest.mark.parametrize("changes", [{"created_at": SHOWN_AT - timedelta(seconds=1)}, {"id": 7}])
def test_a_thumb_that_was_there_before_the_profile_is_early(changes: dict[str, object]):
    assert judged(reaction(**changes)) is Answer.early
    assert judged(reaction(**changes), reaction(id=8)) is Answer.approved
    assert judged(reaction(**changes, login="asker"), requester_may_approve=False) is Answer.none


def test_a_thumb_within_the_second_of_the_edit_counts():
    assert judged(reaction(created_at=SHOWN_AT)) is Answer.approved


def test_a_writers_thumb_down_vetoes_whatever_else_is_there():
    assert judged(reaction(), reaction(id=2, content="-1", login="other")) is Answer.vetoed


def test_a_strangers_thumb_down_is_nothing():
    assert judged(reaction(), reaction(id=2, content="-1", permission="read")) is Answer.approved


def test_an_approval_of_an_edited_comment_does_not_count():
    assert judged(reaction(), body="edited by someone") is Answer.altered


def test_an_edited_comment_without_an_approval_is_left_alone():
    assert judged(body="edited by someone") is Answer.none


def test_the_requester_may_be_barred_from_approving_alone():
    assert judged(reaction(login="asker"), requester_may_approve=False) is Answer.none
    assert judged(reaction(login="asker"), reaction(id=2), requester_may_approve=False) is Answer.approved


@pytest.mark.parametrize("permission", ["admin", "maintain", "write"])
def test_writers_are_followed(permission: str):
    assert door(Verb.dev, permission, is_requester=False, answers_today=99) is Door.follow


@pytest.mark.parametrize("verb", [Verb.dev, Verb.approve, Verb.revise, Verb.reject, Verb.retry, Verb.cancel])
def test_strangers_are_answered_once_and_then_met_with_silence(verb: Verb):
    assert door(verb, "read", is_requester=False, answers_today=0) is Door.refuse
    assert door(verb, "read", is_requester=False, answers_today=1) is Door.ignore


def test_readers_may_ask_for_help_and_status_a_few_times():
    assert door(Verb.help, "read", is_requester=False, answers_today=4) is Door.follow
    assert door(Verb.status, "read", is_requester=False, answers_today=5) is Door.ignore


def test_a_requester_who_lost_write_access_may_still_cancel():
    assert door(Verb.cancel, "read", is_requester=True, answers_today=9) is Door.follow
    assert door(Verb.approve, "read", is_requester=True, answers_today=9) is Door.ignore


def event(**changes: object) -> CommentEvent:
    values = {
        "action": "created",
        "sender_type": "User",
        "author_type": "User",
        "body": "/liger dev relu2",
        "via_app_id": None,
    }
    return CommentEvent(**(values | changes))  # type: ignore[arg-type]


def test_a_new_comment_by_a_person_is_read():
    assert ignored_because(event(), app_id=1) is None
    assert ignored_because(event(via_app_id=2), app_id=1) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"action": "edited"},
        {"action": "deleted"},
        {"sender_type": "Bot"},
        {"author_type": "Bot"},
        {"via_app_id": 1},
        {"body": "<!-- liger-bot:reply=1 -->\n/liger dev relu2"},
    ],
)
def test_what_could_make_the_bot_talk_to_itself_is_ignored(changes: dict[str, object]):
    assert ignored_because(event(**changes), app_id=1) is not None


def test_branches_are_ours_and_the_same_every_time():
    assert branch_name("relu_squared", "abc2345", 1) == "liger-bot/relu-squared-abc2345"
    assert branch_name("relu_squared", "abc2345", 2) == "liger-bot/relu-squared-abc2345-2"
    assert branch_name("../../main", "abc2345", 1) == "liger-bot/main-abc2345"
    assert branch_name("σ", "abc2345", 1) == "liger-bot/op-abc2345"
    check_branch(branch_name("relu_squared", "abc2345", 3))


@pytest.mark.parametrize(
    "name",
    [
        "main",
        "liger-bot/",
        "liger-bot/../main",
        "liger-bot/a..b",
        "liger-bot/x.lock",
        "liger-bot/-f",
        "refs/heads/liger-bot/x",
        "liger-bot/a b",
    ],
)
def test_no_other_branch_is_written(name: str):
    with pytest.raises(ForbiddenWriteError):
        check_branch(name)


def test_listed_source_files_are_written():
    paths = ["src/liger_kernel/ops/relu_squared.py", "test/transformers/test_relu_squared.py"]
    check_paths(paths, paths, links=["docs/link"])


@pytest.mark.parametrize(
    "path",
    [
        ".github/workflows/ci.yml",
        "conftest.py",
        "test/conftest.py",
        "setup.py",
        "pyproject.toml",
        "src/pkg/pyproject.toml",
        "Makefile",
        "../outside.py",
        "/etc/passwd",
        "src/../setup.py",
        "src/.hidden/x.py",
        "a.pth",
        "run.sh",
        "src/a b.py",
        "src//a.py",
        "",
    ],
)
def test_what_decides_how_a_repository_is_built_is_never_written(path: str):
    with pytest.raises(ForbiddenWriteError):
        check_paths([path], [path])


def test_a_file_that_the_profile_does_not_name_is_not_written():
    with pytest.raises(ForbiddenWriteError, match="not among the files"):
        check_paths(["src/other.py"], ["src/ops.py"])


@pytest.mark.parametrize("link", ["src", "src/ops.py"])
def test_nothing_is_written_through_a_link(link: str):
    with pytest.raises(ForbiddenWriteError, match="symbolic link"):
        check_paths(["src/ops.py"], ["src/ops.py"], links=[link])


def test_a_profile_expires_after_its_days():
    assert not expired(SHOWN_AT, SHOWN_AT + timedelta(days=14), 14)
    assert expired(SHOWN_AT, SHOWN_AT + timedelta(days=14, seconds=1), 14)


def test_reactions_are_read_often_at_first_and_seldom_later():
    ages = [timedelta(seconds=1), timedelta(minutes=11), timedelta(days=2)]
    assert [poll_interval_s(age, 2.0) for age in ages] == [2.0, 60.0, 300.0]
