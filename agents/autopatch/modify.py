"""Modify mode: a supported model gets what it lacks, by edits that touch nothing else. Pure.

`/liger autopatch nemotron --add relu_squared`: the flag in both paths, README, the instance test and the revert helper.
`--add cross_entropy`: an assignment that patches nothing is replaced. `--refresh`: lce_forward anew from the installed transformers.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Sequence

from agents.autopatch.forward_cut import Unpatchable
from agents.autopatch.layout import README, TEST_MONKEY_PATCH, TEST_UTILS, Layout, read_layout
from agents.autopatch.model_candidate import ModelCandidate, Repair
from agents.autopatch.model_file import model_file
from agents.autopatch.model_profile import ModelProfile
from agents.autopatch.modify_function import add_flag
from agents.autopatch.narrow import narrowed, without_fields
from agents.autopatch.patch_plan import DISPLAY, Plan, patch_plan
from agents.autopatch.pull_text import modify_body, modify_message, pull_title
from agents.autopatch.readme import ROW
from agents.autopatch.splice import end_of, functions, insert_after, parse, replace_lines
from agents.autopatch.tests_files import INSTANCE, layer_checks
from agents.conventions import detect
from agents.formatting import ActFailed
from agents.ports import Tree

REFRESH = "refresh"


def requests(profile: ModelProfile) -> list[str]:
    """The flags asked for: "--add relu_squared" and "relu_squared" are the same."""
    return [text.removeprefix("--").removeprefix("add").strip(" =") for text in profile.requested]


def modify(profile: ModelProfile, tree: Tree, repairs: Sequence[Repair] = ()) -> ModelCandidate:
    """The candidate. repairs: changes of the plan after failed checks. Raises ActFailed when the model isn't supported yet, a request isn't possible, or nothing is to do."""
    approved = profile.sha256()
    profile = narrowed(profile, repairs)
    conventions = detect(tree)
    layout = without_fields(read_layout(tree, conventions), repairs)
    if profile.model_type not in layout.registered:
        raise ActFailed(
            f"This checkout doesn't support {profile.model_type} yet: `/liger autopatch {profile.model_type}`."
        )
    plan = patch_plan(profile, layout)
    wanted = requests(profile)
    for name in wanted:
        if name not in {REFRESH, "cross_entropy"} and not plan.on(name):
            flag = plan.flag(name)
            why = flag.why_not if flag and flag.why_not else f"{profile.model_type} has no part for it"
            raise ActFailed(f"`{name}` can't be added: {why}.")
    files: dict[str, str] = {}
    changes: list[str] = []
    text = tree.read(layout.monkey_patch) or ""
    for name in wanted:
        if name == REFRESH:
            _refresh(profile, layout, tree, files, changes)
            continue
        edited, done = add_flag(text, name, profile, plan, layout, layout.monkey_patch)
        changes += [f"{layout.monkey_patch}: {sentence}" for sentence in done]
        text = edited
        if done:
            _around(name, profile, plan, layout, tree, files, changes)
    if text != tree.read(layout.monkey_patch):
        files[layout.monkey_patch] = text
    if not files:
        raise ActFailed(
            f"Nothing to change: {layout.registered[profile.model_type]} has {', '.join(wanted) or 'it all'} already."
        )
    return ModelCandidate(
        files=files,
        beyond=changes,
        originals={path: tree.read(path) or "" for path in files},
        repairs=list(repairs),
        function=layout.registered[profile.model_type],
        flags=_flags(
            files.get(layout.monkey_patch, text),
            layout.registered[profile.model_type],
            layout.monkey_patch,
            plan,
        ),
        tests=[f"{TEST_MONKEY_PATCH}::{INSTANCE}{profile.identifier}"],
        convergence=list(layout.convergence),
        imports=[f"{layout.package}.transformers:{layout.registered[profile.model_type]}"],
        ruff=conventions.ruff_requirement,
        commit_message=modify_message(profile, changes, repairs),
        pull_title=pull_title(profile),
        pull_body=modify_body(profile, conventions, changes, repairs, approved),
    )


def _flags(text: str, function: str, path: str, plan: Plan) -> dict[str, bool]:
    node = functions(parse(text, path), lambda name: name == function)[0]
    names = [a.arg for a in node.args.args]
    defaults = dict(zip(names[len(names) - len(node.args.defaults) :], node.args.defaults, strict=True))
    known = {
        n: d.value for n, d in defaults.items() if isinstance(d, ast.Constant) and isinstance(d.value, bool)
    }
    return {name: value for name, value in known.items() if plan.on(name)}


def _refresh(
    profile: ModelProfile, layout: Layout, tree: Tree, files: dict[str, str], changes: list[str]
) -> None:
    path = layout.path("transformers", "model", f"{profile.identifier}.py")
    if tree.read(path) is None:
        raise ActFailed(f"{path} isn't in the checkout, so I don't know which file holds its lce_forward.")
    others = functions(parse(tree.read(path) or "", path), lambda name: name != "lce_forward")
    if others:
        raise ActFailed(f"{path} also defines {others[0].name}, which others may import: refresh it by hand.")
    try:
        files[path] = model_file(profile, layout)
    except Unpatchable as error:
        raise ActFailed(f"lce_forward can't be made anew: {error}.") from error
    changes.append(f"{path}: lce_forward from transformers {profile.transformers_version}")


def _around(
    flag: str,
    profile: ModelProfile,
    plan: Plan,
    layout: Layout,
    tree: Tree,
    files: dict[str, str],
    changes: list[str],
) -> None:
    """README, instance test and revert helper for a flag that was added."""
    for path, edit in ((README, _readme), (TEST_MONKEY_PATCH, _test), (TEST_UTILS, _revert)):
        before = files.get(path) or tree.read(path)
        after = edit(before, flag, profile, plan, layout) if before is not None else None
        if after is not None and after != before:
            files[path] = after
            changes.append(f"{path}: {flag}")


def _readme(text: str, flag: str, profile: ModelProfile, _plan: Plan, layout: Layout) -> str | None:
    display = DISPLAY.get(flag)
    for number, line in enumerate(text.splitlines(), start=1):
        match = ROW.match(line)
        if (
            display
            and match
            and match[2] == layout.registered[profile.model_type].removeprefix("apply_liger_kernel_to_")
        ):
            cells = line.split("|")
            operations = [o.strip() for o in cells[3].split(",")]
            if display in operations:
                return text
            index = next(
                (i for i, o in enumerate(operations) if o.endswith("CrossEntropyLoss")), len(operations)
            )
            operations.insert(index, display)
            width = len(cells[3]) - 2
            cells[3] = f" {', '.join(operations):<{width}} "
            ending = "\r\n" if text.splitlines(keepends=True)[number - 1].endswith("\r\n") else "\n"
            return replace_lines(text, number, number, "|".join(cells) + ending)
    return None


def _test(text: str, flag: str, profile: ModelProfile, plan: Plan, layout: Layout) -> str | None:
    """Checks before and after the instance is patched, in the model's test."""
    found = functions(parse(text, TEST_MONKEY_PATCH), lambda n: n == f"{INSTANCE}{profile.identifier}")
    if not found:
        return None
    block = found[0].body[-1] if isinstance(found[0].body[-1], ast.With) else found[0]
    calls = [n for n in block.body if "_apply_liger_kernel_to_instance" in ast.unparse(n)]
    last = block.body[-1]
    if not calls or not isinstance(last, ast.Try):
        return None
    here = "\n".join(text.splitlines()[found[0].lineno - 1 : end_of(found[0])])
    before, imports = layer_checks(profile, plan, layout, "!=", flag)
    after, _ = layer_checks(profile, plan, layout, "==", flag)
    before, after = _new_lines(before, here), _new_lines(after, here)
    imports = "".join(line for line in imports.splitlines(keepends=True) if line.split()[-1] not in text)
    imports += "\n" if imports else ""
    if not after:
        return None
    text = insert_after(text, end_of(block.body[-2]), "\n" + after.rstrip("\n") + "\n")
    call = calls[0].lineno - 1
    lines = text.splitlines()
    while call and lines[call - 1].strip().startswith("#"):
        call -= 1
    return insert_after(text, call, imports + before + "\n")


def _new_lines(checks: str, test: str) -> str:
    """The assertions that the test lacks, under their loop."""
    lines = checks.splitlines(keepends=True)
    kept = [
        line
        for line in lines
        if not line.strip().startswith("assert") or _asserted(line) not in _squeezed(test)
    ]
    return "".join(kept) if any(line.strip().startswith("assert") for line in kept) else ""


def _asserted(line: str) -> str:
    """Without its name for the model or the layer, which tests choose differently."""
    return re.sub(r"dummy_model_instance\.base_model", "dummy_model_instance.model", _squeezed(line))


def _squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


def _revert(text: str, flag: str, profile: ModelProfile, plan: Plan, layout: Layout) -> str | None:
    """Reloading the module doesn't undo an entry of ACT2FN."""
    keys = (
        sorted({mlp.through_act2fn for mlp in plan.mlps if mlp.through_act2fn})
        if flag == "relu_squared"
        else []
    )
    name = layout.registered[profile.model_type].replace("apply_", "revert_")
    found = functions(parse(text, TEST_UTILS), lambda n: n == name)
    if not keys or not found:
        return None
    anchor = next((n for n in found[0].body if "importlib.reload" in ast.unparse(n)), None)
    modeling = re.search(r"importlib\.reload\((\w+)\)", ast.unparse(anchor)) if anchor is not None else None
    if anchor is None or modeling is None:
        return None
    lines = "from transformers.activations import ACT2CLS\n\n"
    lines += "".join(f'{modeling[1]}.ACT2FN["{key}"] = ACT2CLS["{key}"]\n' for key in keys)
    return insert_after(text, anchor.lineno - 1, textwrap.indent(lines, "    "))
