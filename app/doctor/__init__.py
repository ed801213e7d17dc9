"""`liger-bot doctor`: looks at this machine, the App and its repositories, and says what to do for each finding."""

from __future__ import annotations

from pydantic import ValidationError
from rich.console import Console

from app.doctor.app_checks import look_at_app
from app.doctor.findings import Finding, Outcome, failed, findings_json, fine, show
from app.doctor.machine import ABOUT, look_at_machine
from app.doctor.repository_checks import look_at_repository
from app.github import GitHubError
from app.github.inspection import Inspection
from app.repository_config_source import RepositoryConfigs
from app.settings import Settings
from app.usage import EXIT_FAILED

REPOSITORIES_LOOKED_AT = 20


async def report(
    console: Console, *, repository: str = "", as_json: bool = False, github_only: bool = False
) -> int:
    """Print the findings; the exit code is 1 when one of them failed.

    repository: look at this one alone. github_only: leave this machine out, as where the service runs without a runner.
    """
    machine = [] if github_only else await look_at_machine()
    findings = machine + await _look_at_service(repository)
    if as_json:
        console.file.write(findings_json(findings) + "\n")
    else:
        show(findings, console)
    return EXIT_FAILED if any(one.outcome is Outcome.failed for one in findings) else 0


async def _look_at_service(repository: str) -> list[Finding]:
    try:
        settings = Settings()
    except ValidationError as error:
        why = "; ".join(item["msg"].removeprefix("Value error, ") for item in error.errors())
        return [fine(ABOUT, "service", f"not configured, which only `liger-bot serve` needs: {why}")]
    app = Inspection(
        settings.app_id,
        settings.private_key.get_secret_value(),
        settings.github_url,
        settings.github_api_version,
    )
    try:
        return [
            fine(ABOUT, "service", f"configured for {settings.github_url}"),
            *await _look_at_github(settings, app, repository),
        ]
    finally:
        await app.close()


async def _look_at_github(settings: Settings, app: Inspection, repository: str) -> list[Finding]:
    findings, installations = await look_at_app(settings, app)
    configs = RepositoryConfigs.of_settings(settings, app)
    looked_at: list[str] = []
    for installation in installations:
        try:
            names = await app.repositories(installation.id)
        except GitHubError as error:
            findings.append(
                failed("the App", f"repositories of {installation.account}", str(error), "try again")
            )
            continue
        for full_name in names:
            wanted = not repository or full_name.lower() == repository.lower()
            if wanted and len(looked_at) < REPOSITORIES_LOOKED_AT:
                findings += await look_at_repository(app, configs, installation, full_name)
                looked_at.append(full_name)
    if repository and not looked_at:
        findings.append(
            failed(
                repository, "installation", "the App isn't installed there", "install it from the App's page"
            )
        )
    return findings
