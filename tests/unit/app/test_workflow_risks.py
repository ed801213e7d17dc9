"""Which workflows would run the bot's branches on a repository's own runners."""

from __future__ import annotations

import pytest

from app.doctor.workflow_risks import risks


def found(on: str, runs_on: str = "[self-hosted, gpu]", more: str = "") -> list[str]:
    text = f"{on}\njobs:\n  test:\n    runs-on: {runs_on}\n{more}    steps: [{{run: pytest}}]\n"
    return [risk.event for risk in risks(".github/workflows/x.yml", text, "liger-bot/", "main")]


@pytest.mark.parametrize(
    ("on", "events"),
    [
        ("on: push", ["push"]),
        ("'on': [push, pull_request]", ["push", "pull_request"]),
        ("on: {push: {branches: [main]}}", []),
        ("on: {push: {branches: ['**']}}", ["push"]),
        ("on: {push: {branches: ['liger-bot/*']}}", ["push"]),
        ("on: {push: {branches: ['*']}}", []),
        ("on: {push: {branches: ['**', '!liger-bot/**']}}", []),
        ("on: {push: {branches-ignore: ['liger-bot/**']}}", []),
        ("on: {push: {branches-ignore: [docs]}}", ["push"]),
        ("on: {push: {tags: ['v*']}}", []),
        ("on: {pull_request: }", ["pull_request"]),
        ("on: {pull_request_target: {branches: [main]}}", ["pull_request_target"]),
        ("on: {pull_request: {branches: [release]}}", []),
        ("on: {pull_request: {branches-ignore: [main]}}", []),
        ("on: {pull_request: {types: [closed]}}", []),
        ("on: {workflow_dispatch: , schedule: [{cron: '0 0 * * *'}], merge_group: }", []),
    ],
)
def test_what_starts_it(on: str, events: list[str]):
    assert found(on) == events


@pytest.mark.parametrize(
    ("runs_on", "at_risk"),
    [
        ("ubuntu-latest", False),
        ("[ubuntu-24.04-arm]", False),
        ("linux-mi300-gpu-1", True),
        ("{group: gpus}", True),
        ("{labels: [ubuntu-latest]}", False),
        ("${{ inputs.runner }}", True),
    ],
)
def test_where_it_runs(runs_on: str, at_risk: bool):
    assert bool(found("on: push", runs_on)) is at_risk


def test_a_matrix_is_looked_into():
    matrix = "    strategy: {matrix: {os: [ubuntu-latest], include: [{os: windows-2022}]}}\n"
    assert found("on: push", "${{ matrix.os }}", matrix) == []
    own = "    strategy: {matrix: {os: [ubuntu-latest, h100]}}\n"
    assert found("on: push", "${{ matrix.os }}", own) == ["push"]


def test_a_job_with_a_condition_about_our_branches_is_none():
    guard = "    if: ${{ !startsWith(github.head_ref, 'liger-bot/') }}\n"
    assert found("on: pull_request", more=guard) == []
    other = "    if: github.event.pull_request.draft == false\n"
    assert found("on: pull_request", more=other) == ["pull_request"]


@pytest.mark.parametrize(
    "text", ["", "[", "jobs: 3\non: push", "on: push\njobs: {a: 3}", "on: 7\njobs: {a: {}}"]
)
def test_what_is_no_workflow_is_no_risk(text: str):
    assert risks("x.yml", text, "liger-bot/", "main") == []
