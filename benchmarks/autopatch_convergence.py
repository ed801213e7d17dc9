"""The target repository's own convergence tests, whole, for models patched by us, on a GPU machine.

    python -m benchmarks.autopatch_convergence --repo CHECKOUT --profiles FILE.jsonl --models arcee,glm --prepare FOLDER
    python3 FOLDER/run_convergence.py FOLDER OUT_FOLDER SECONDS          (on the machine with the GPU)
    python -m benchmarks.autopatch_convergence --records OUT_FOLDER --json benchmarks/results/autopatch/convergence_h200.json

The first writes a tree of the patched files of each model beside the checkout; the second lays each over a copy of it and runs
the four mini-model files and the instance test with `-k MODEL`; the third makes one file of the results. The tokenized text of
the tests (an .arrow file) must be in the checkout: the source distribution on PyPI holds it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tarfile
from pathlib import Path

from agents.autopatch.act import write
from agents.autopatch.model_profile import ModelProfile
from app.checkout import CheckoutTree

RUNNER = Path(__file__).with_name("run_convergence.py")
NEEDED = ("src", "test", "pyproject.toml", "setup.py", "README.md")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repo", type=Path, help="checkout with the tests' resources")
    parser.add_argument(
        "--profiles",
        type=Path,
        help="JSON lines of benchmarks.autopatch_profile; more than one: the last counts",
    )
    parser.add_argument("--models", default="", help="separated by commas")
    parser.add_argument("--prepare", type=Path, help="folder to write")
    parser.add_argument("--commit", default="", help="of the checkout, to store beside the results")
    parser.add_argument("--records", type=Path, help="what run_convergence.py left")
    parser.add_argument("--json", type=Path, help="results to write")
    options = parser.parse_args()
    if options.prepare:
        prepare(options)
    if options.records:
        collect(options)
    return 0


def prepare(options: argparse.Namespace) -> None:
    """FOLDER/base.tar.gz, FOLDER/models/MODEL/… and the script that runs them."""
    options.prepare.mkdir(parents=True, exist_ok=True)
    with tarfile.open(options.prepare / "base.tar.gz", "w:gz", compresslevel=6) as tar:
        for name in NEEDED:
            if (options.repo / name).exists():
                tar.add(options.repo / name, arcname=name)
    shutil.copy(RUNNER, options.prepare)
    profiles = {}
    for text in options.profiles.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        profiles[line["model"]] = line.get("profile")
    for model in options.models.split(","):
        if not profiles.get(model):
            print(f"{model}: no profile in {options.profiles}", file=sys.stderr)
            continue
        candidate = write(ModelProfile.model_validate(profiles[model]), CheckoutTree(options.repo))
        for path, content in candidate.files.items():
            if content is None:
                continue
            file = options.prepare / "models" / model / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")
        print(f"{model}: {len(candidate.files)} files")


def collect(options: argparse.Namespace) -> None:
    """One JSON file: the environment, and each model's tests with outcome, seconds and message."""
    environment = json.loads((options.records / "environment.json").read_text(encoding="utf-8"))
    models = {
        file.stem: json.loads(file.read_text(encoding="utf-8"))
        for file in sorted((options.records / "models").glob("*.json"))
    }
    found = {"environment": environment, "commit": options.commit, "models": models}
    options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for model, tests in models.items():
        passed = sum(test["outcome"] == "passed" for test in tests)
        print(f"{model}: {passed} of {len(tests)} passed")


if __name__ == "__main__":
    sys.exit(main())
