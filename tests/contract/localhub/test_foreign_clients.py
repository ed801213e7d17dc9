"""A client that nobody here wrote, untouched: octokit, from npm, once into a cache folder."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.contract.localhub.conftest import OWNER, REPO, World

CACHE = Path(__file__).parents[3] / ".liger-bot" / "octokit"
DRIVE = Path(__file__).with_name("octokit_drive.mjs")
OCTOKIT = "octokit@5.0.5"


@pytest.fixture(scope="module")
def octokit() -> Path:
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed")
    if not (CACHE / "node_modules" / "octokit").exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        (CACHE / "package.json").write_text('{"private": true}')
        command = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", OCTOKIT]
        done = subprocess.run(command, cwd=CACHE, capture_output=True, text=True, timeout=180, check=False)
        if done.returncode != 0:
            pytest.skip(f"npm can't fetch {OCTOKIT}: {done.stderr[-200:]}")
    return CACHE


def test_octokit_does_a_bots_work(world: World, octokit: Path) -> None:
    script = octokit / DRIVE.name  # node looks for packages from where the script lies
    shutil.copyfile(DRIVE, script)
    given = {
        "url": world.served.url,
        "appId": world.app.id,
        "installationId": world.installation_id,
        "privateKey": world.app.private_key,
        "userToken": world.maintainer,
        "owner": OWNER,
        "repo": REPO,
    }
    done = subprocess.run(
        ["node", str(script), json.dumps(given)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "slug": "liger-bot",
        "repositories": [f"{OWNER}/{REPO}"],
        "reactions": [{"content": "THUMBS_UP", "user": {"login": "maintainer"}}],
        "check": "success",
        "files": ["src/octokit.py"],
        "refused": 403,
    }
