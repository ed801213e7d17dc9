"""Writes the tables of docs/autopatch.md from what the autopatch benchmarks stored.

    python -m benchmarks.autopatch_table [--replays FOLDER]

--replays gathers the records of benchmarks.autopatch_replay, one a model, into replays.json first.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.autopatch_batch import SCENARIOS
from benchmarks.autopatch_expected import EXPECTED, MERGED_DIFFERS, UPSTREAM_TESTS, decisions_right
from benchmarks.autopatch_new_ground import passes

RESULTS = Path("benchmarks/results/autopatch")
PAGES = (Path("docs/autopatch.md"), Path("docs/autopatch_results.md"))  # the first that exists
RESULTS_MARK = "<!-- results -->"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--replays", type=Path, help="folder of one record a model, to gather into replays.json"
    )
    arguments = parser.parse_args()
    stored = RESULTS / "replays.json"
    if arguments.replays:
        records = {
            file.stem: _portable(json.loads(file.read_text()))
            for file in sorted(arguments.replays.glob("*.json"))
        }
        RESULTS.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"command": "python -m benchmarks.autopatch_replay", "models": records}, indent=1)
        stored.write_text(text + "\n", encoding="utf-8")
    page = next((page for page in PAGES if page.exists()), PAGES[-1])
    text = page.read_text(encoding="utf-8") if page.exists() else f"# Autopatch: results\n\n{RESULTS_MARK}\n"
    if stored.exists():
        text = between(text, "replays", replays(json.loads(stored.read_text())["models"]))
    if (RESULTS / "new_ground.json").exists():
        text = between(text, "new ground", new_ground(json.loads((RESULTS / "new_ground.json").read_text())))
    if (RESULTS / "convergence_h200.json").exists():
        stored_runs = json.loads((RESULTS / "convergence_h200.json").read_text())
        text = between(text, "convergence", convergence(stored_runs))
    page.write_text(text, encoding="utf-8")
    print(f"{page} written")
    return 0


def between(text: str, name: str, table: str) -> str:
    """`text` with `table` between `<!-- name -->` and `<!-- /name -->`, which go below the results mark when absent."""
    start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    if start not in text:
        before, mark, after = text.partition(RESULTS_MARK)
        return f"{before}{mark or RESULTS_MARK}{after.rstrip()}\n\n{start}\n{table}\n{end}\n"
    before, _, rest = text.partition(start)
    return f"{before}{start}\n{table}\n{end}{rest.partition(end)[2]}"


def convergence(stored: dict[str, Any]) -> str:
    """The target's own convergence tests on a GPU: a model's last line of pytest, or its tests when they were kept."""
    env = stored["environment"]
    lines = [
        "### Convergence on a GPU", "",
        (f"The target repository's own four mini-model files and the instance test, whole, on one {env['gpu']} (driver {env['driver']}, torch {env['torch']}, "
        f"triton {env['triton']}, transformers {env['transformers']}), for patches of models that it does not support: "
        f"`python -m benchmarks.autopatch_convergence`. {stored.get('note', '')}"), "",
        "| model | tests |", "|---|---|",
    ]  # fmt: skip
    for model, found in sorted(stored["models"].items()):
        if isinstance(found, str):
            lines.append(f"| {model} | {_cell(found)} |")
            continue
        passed = sum(test["outcome"] == "passed" for test in found)
        failed = "; ".join(f"{t['test']}: {t['message'][:120]}" for t in found if t["outcome"] == "failed")
        lines.append(f"| {model} | {passed} of {len(found)} passed{' ' + _cell(failed) if failed else ''} |")
    return "\n".join(lines)


def replays(records: dict[str, dict[str, Any]]) -> str:
    """The table of replays: one row a model, refusals last, and how many are wholly right."""
    lines = [
        "### Replays of merged additions", "",
        ("Each checkout is the parent of the commit that added the model; upstream's tests are the instance test and the convergence "
        "tests in reduced form (CPU interpreter, 3 steps, tiny model) that the record names. Own checks: all of verify_model's, or for a quick run "
            f"(own checks of 9) import, stand-ins, {', '.join(SCENARIOS)} and the instance test. "
        f"{_environment(records)}"), "",
        "| model | commit | decisions right | files | own checks | upstream's tests | note |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for model, record in sorted(records.items(), key=lambda item: ("refused" in item[1], item[0])):
        commit = (record.get("commit") or "")[:8]
        if "refused" in record:
            lines.append(f"| {model} | {commit} | | | | | refused: {_cell(record['refused'])} |")
            continue
        right, wrong = (
            decisions_right(model, record["decisions"]) if model in EXPECTED else (0, ["not judged"])
        )
        notes = [*wrong, *(known[model] for known in (MERGED_DIFFERS, UPSTREAM_TESTS) if model in known)]
        notes += [
            f"failed {v['check'].removeprefix('model/')}: {v['summary'][:120]}"
            for v in _failed(record["own"], record["upstream"])
        ]
        lines.append(
            f"| {model} | {commit} | {right}/12 | {len(record['files'])} | {_share(record['own'])} | {_share(record['upstream'])} "
            f"| {_cell('; '.join(notes))} |"
        )
    return "\n".join(lines)


def new_ground(stored: dict[str, Any]) -> str:
    """The table of models that the checkout doesn't support: patched and passing, patched and failing, refused with the reason."""
    models: dict[str, dict[str, Any]] = stored["models"]
    passing = {name: one for name, one in models.items() if passes(one)}
    failing = {name: one for name, one in models.items() if "checks" in one and name not in passing}
    refused = {name: one for name, one in models.items() if "refused" in one}
    env = stored["environment"]
    lines = [
        "### New ground", "",
        (f"{len(models)} causal models that Liger-Kernel at {stored.get('commit', '')[:8] or 'its newest commit'} does not support (transformers {env['transformers']}, "
        f"torch {env['torch']}, triton {env['triton']}, CPU interpreter): {len(passing)} with a patch whose tests pass, {len(failing)} with a patch of which "
        f"a test fails, {len(refused)} refused. Checks: import, {', '.join(stored['scenarios'])}, the instance test; convergence and flags were not run."), "",
        "| model | norm | feed-forward | RoPE | kind | questions | checks |", "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for name, one in [*sorted(passing.items()), *sorted(failing.items())]:
        said = one["decisions"]
        failed = "; ".join(
            f"{v['check'].removeprefix('model/')}: {v['summary'][:140]}" for v in _failed(one["checks"])
        )
        lines.append(
            f"| {name} | {_norm(said)} | {_cell(said['mlp'])} | {_cell(said['rope'])} | {one['architecture']} | {len(one['questions']) or ''} "
            f"| {_share(one['checks'])}{' ' + _cell(failed) if failed else ''} |"
        )
    lines += ["", "Refused:", "", "| model | why |", "|---|---|"]
    lines += [f"| {name} | {_cell(one['refused'][:260])} |" for name, one in sorted(refused.items())]
    counts = Counter(one.get("code", "") for one in refused.values())
    return "\n".join(
        [*lines, "", f"By kind: {', '.join(f'{code} {count}' for code, count in counts.most_common())}."]
    )


def _norm(said: dict[str, str]) -> str:
    if said["norm_type"] != "rms_norm":
        return said["norm_type"]
    return f"{said['casting_mode']}/{said['offset']}{' in place' if said['in_place'] == 'True' else ''}"


def _environment(records: dict[str, dict[str, Any]]) -> str:
    versions = {
        tuple(str(r["environment"].get(k)) for k in ("transformers", "torch", "triton"))
        for r in records.values()
    }
    return "; ".join(f"transformers {a}, torch {b}, triton {c}" for a, b, c in sorted(versions)) + "."


def _portable(record: dict[str, Any]) -> dict[str, Any]:
    """The record without tracebacks and without the paths of the machine that made it."""
    for verdict in [*record.get("own", []), *record.get("upstream", [])]:
        verdict.pop("details", None)
        verdict["summary"] = re.sub(r"/\S+?/checkouts/[^/]+/", "", verdict["summary"])
    return record


def _share(verdicts: list[dict[str, Any]]) -> str:
    return f"{sum(v['outcome'] == 'passed' for v in verdicts)}/{len(verdicts)}"


def _failed(*groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [v for group in groups for v in group if v["outcome"] != "passed"]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
