"""Looks at one target repository: its configuration, the verification workflow, its runners, and workflows at risk."""

from __future__ import annotations

from app.actions.workflow import WORKFLOW_PATH
from app.doctor.findings import Finding, failed, fine, remark
from app.doctor.workflow_risks import risks
from app.github import ForbiddenError, GitHubError
from app.github.inspection import Inspection, SeenInstallation, SeenRunner
from app.repository_config import CONFIG_PATH, ConfigMistake, RepositoryConfig
from app.repository_config_source import RepositoryConfigs


async def look_at_repository(
    app: Inspection, configs: RepositoryConfigs, installation: SeenInstallation, full_name: str
) -> list[Finding]:
    """What would keep the bot from working there, or make it unsafe."""
    try:
        try:
            config = await configs.of(installation.id, full_name)
            found = [_described(full_name, config, configs.defaults)]
        except ConfigMistake as mistake:
            return [
                failed(
                    full_name,
                    "configuration",
                    str(mistake),
                    "mend it: until then every command is answered with this line",
                )
            ]
        found += _teams(full_name, config, installation)
        workflows = await app.workflow_files(installation.id, full_name)
        default = (await app.repository(installation.id, full_name).default_branch()).name
        found += _workflow(full_name, config, workflows)
        found += await _runners(app, full_name, config, installation)
        return found + _risky(full_name, config, workflows, default)
    except GitHubError as error:
        return [
            failed(
                full_name, "GitHub", str(error), "see that the App is installed there with all permissions"
            )
        ]


def _described(about: str, config: RepositoryConfig, defaults: RepositoryConfig) -> Finding:
    said = [name for name, value in config if value != getattr(defaults, name)]
    return fine(
        about, "configuration", f"{CONFIG_PATH} decides {', '.join(said)}" if said else "all as by default"
    )


def _teams(about: str, config: RepositoryConfig, installation: SeenInstallation) -> list[Finding]:
    rules = [config.approvers, *(rule for _, rule in config.commands)]
    teams = sorted({team for rule in rules for team in rule.teams})
    if not teams or installation.rights.permissions.get("members") in {"read", "write"}:
        return []
    text = (
        f"teams are named ({', '.join(teams)}), and the App may not ask who is in them: they count as empty"
    )
    return [
        failed(
            about, "teams", text, "grant the organisation permission `members: read`, or name people by login"
        )
    ]


def _workflow(about: str, config: RepositoryConfig, workflows: dict[str, str]) -> list[Finding]:
    if WORKFLOW_PATH in workflows:
        return [fine(about, "verification workflow", WORKFLOW_PATH)]
    fix = f"put what `liger-bot workflow` prints at {WORKFLOW_PATH} on the default branch"
    if config.runners:
        return [
            failed(
                about, "verification workflow", "`runners` are configured, and the workflow isn't there", fix
            )
        ]
    text = "not there, and no `runners` are configured: everything runs on the service's machine"
    return [
        remark(about, "verification workflow", text, f"for GPUs: {fix}, and name runners in {CONFIG_PATH}")
    ]


async def _runners(
    app: Inspection, about: str, config: RepositoryConfig, installation: SeenInstallation
) -> list[Finding]:
    if not config.runners:
        return []
    try:
        seen = await app.runners(installation.id, about)
    except ForbiddenError:
        text = "whether they are online can't be seen without the permission `administration: read`, which is optional"
        return [remark(about, "runners", text, "grant it, or look under Settings, Actions, Runners")]
    return [_labels(about, architecture, labels, seen) for architecture, labels in config.runners.items()]


def _labels(about: str, architecture: str, labels: list[str], seen: list[SeenRunner]) -> Finding:
    name = f"runner for {architecture}"
    wanted = {label.lower() for label in labels}
    fitting = [one for one in seen if wanted <= {label.lower() for label in one.labels}]
    online = [one.name for one in fitting if one.online]
    if online:
        return fine(about, name, f"{', '.join(online)} online")
    listed = ", ".join(labels)
    if fitting:
        names = ", ".join(one.name for one in fitting)
        return failed(about, name, f"{names} offline", "start the runner's service on that machine")
    # runners of an organisation, and those of Kubernetes between two jobs, aren't in the repository's list
    text = f"no runner of the repository carries the labels {listed}; one of its organisation may"
    return remark(
        about,
        name,
        text,
        f"register one with these labels, or mend `runners.{architecture}` in {CONFIG_PATH}",
    )


def _risky(
    about: str, config: RepositoryConfig, workflows: dict[str, str], default_branch: str
) -> list[Finding]:
    found = [
        failed(
            about,
            "workflow at risk",
            f"{risk.path}: job {risk.job} runs on {risk.where} at every {risk.event} of {config.branch_prefix}…, outside the sandbox",
            risk.fix,
        )
        for path, text in sorted(workflows.items())
        for risk in risks(path, text, config.branch_prefix, default_branch)
    ]
    return found or [fine(about, "workflows", "none would run the bot's branches on self-hosted runners")]
