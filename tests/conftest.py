"""The order of the tests' files: those of minutes first, so that no process is left with one of them at the end."""

from __future__ import annotations

import pytest

LONGEST_FIRST = (
    "redteam/test_redteam.py",
    "e2e/test_kill.py",
    "e2e/test_service.py",
    "contract/kernels/test_derived_ops.py",
    "contract/autopatch/test_verify_model.py",
    "e2e/test_autopatch.py",
    "contract/runners/test_jobs.py",
    "e2e/test_faults_postgres.py",
    "e2e/test_actions.py",
    "contract/app/test_cli.py",
    "browser/test_person.py",
    "contract/kernels/test_reductions.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first; the rest as they were."""

    def place(item: pytest.Item) -> int:
        name = item.nodeid.split("::")[0].removeprefix("tests/")
        return LONGEST_FIRST.index(name) if name in LONGEST_FIRST else len(LONGEST_FIRST)

    items.sort(key=place)
