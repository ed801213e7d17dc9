"""One run through everything that happens on a repository, so that every webhook is sent once."""

from pathlib import Path
from typing import Any

from githubkit import GitHub

from tests.contract.localhub.conftest import OWNER, REPO, World, branch_on, commit_file, git

DRAFT = "mutation($i: ID!) {convertPullRequestToDraft(input: {pullRequestId: $i}) {clientMutationId}}"
READY = "mutation($i: ID!) {markPullRequestReadyForReview(input: {pullRequestId: $i}) {clientMutationId}}"


def live_a_whole_life(world: World, folder: Path, maintainer: GitHub[Any], bot: GitHub[Any]) -> str:
    """Do it all; returns the first head of the pull request. Every webhook has been sent when it returns."""
    issue = maintainer.rest.issues.create(OWNER, REPO, title="One", body="B", labels=["bug"]).parsed_data
    note = maintainer.rest.issues.create_comment(OWNER, REPO, issue.number, body="first").parsed_data
    maintainer.rest.issues.update_comment(OWNER, REPO, note.id, body="second")
    maintainer.rest.issues.delete_comment(OWNER, REPO, note.id)
    maintainer.rest.issues.update(OWNER, REPO, issue.number, title="Two")
    maintainer.rest.issues.add_labels(OWNER, REPO, issue.number, labels=["new-label"])
    maintainer.rest.issues.remove_label(OWNER, REPO, issue.number, "bug")
    maintainer.rest.issues.update(OWNER, REPO, issue.number, state="closed", state_reason="not_planned")
    maintainer.rest.issues.update(OWNER, REPO, issue.number, state="open")

    sha = branch_on(world, "liger-bot/a", "src/a.py", "a = 1\n")
    pull = bot.rest.pulls.create(
        OWNER, REPO, title="P", head="liger-bot/a", base="main", body="b", draft=True
    ).parsed_data
    button = {"label": "Fix", "description": "d", "identifier": "fix"}
    run = bot.rest.checks.create(OWNER, REPO, name="c", head_sha=sha, actions=[button]).parsed_data
    bot.rest.checks.update(OWNER, REPO, run.id, conclusion="success")
    maintainer.rest.checks.rerequest_run(OWNER, REPO, run.id)
    suite = bot.rest.checks.list_suites_for_ref(OWNER, REPO, sha).parsed_data.check_suites[0]
    maintainer.rest.checks.rerequest_suite(OWNER, REPO, suite.id)
    maintainer.rest.pulls.create_review(OWNER, REPO, pull.number, event="APPROVE")
    for mutation in (READY, DRAFT):
        maintainer.graphql(mutation, {"i": pull.node_id})

    clone = folder / "clone"
    git("clone", "-q", "-b", "liger-bot/a", world.clone_url(world.maintainer), str(clone))
    commit_file(clone, "src/b.py", "b = 1\n")
    git("push", "-q", "origin", "HEAD", cwd=clone)
    maintainer.rest.pulls.update(OWNER, REPO, pull.number, title="Q", state="closed")
    maintainer.rest.pulls.update(OWNER, REPO, pull.number, state="open")
    git("push", "-q", "origin", ":liger-bot/a", cwd=clone)
    git("tag", "v1", cwd=clone)
    git("push", "-q", "origin", "v1", cwd=clone)

    maintainer.rest.actions.create_workflow_dispatch(
        OWNER, REPO, "verify.yml", ref="main", inputs={"nonce": "n"}
    )
    started = bot.rest.actions.list_workflow_runs(OWNER, REPO, "verify.yml").parsed_data.workflow_runs[0]
    taken = world.hub.take_job("box", ["self-hosted", "h100"])
    assert taken is not None
    assert taken.run_id == started.id
    world.hub.end_job(taken.id, "success")
    world.hub.suspend(world.installation_id)
    world.hub.suspend(world.installation_id, suspended=False)
    world.hub.create_repository(OWNER, "second")
    world.hub.install_app("liger-bot", OWNER, [REPO, "second"])
    assert world.hub.deliveries_done()
    return sha
