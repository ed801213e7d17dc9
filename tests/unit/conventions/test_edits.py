"""Edits of existing files touch nothing else, and nothing twice."""

import difflib
import keyword

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.conventions.edits import AnchorMissing, add_function, add_import, add_to_collection
from tests.mini_library import FUNCTIONAL, OPS_INIT, TRANSFORMERS_INIT

PATH = "src/mini_kernel/ops/__init__.py"


def added(before: str, after: str) -> list[str]:
    """The lines that were added; fails when a line was removed or changed."""
    lines = list(difflib.ndiff(before.splitlines(), after.splitlines()))
    assert not [line for line in lines if line.startswith("- ")]
    return [line[2:] for line in lines if line.startswith("+ ")]


def test_import_goes_to_its_sorted_place() -> None:
    source = "from m.ops.a import A\nfrom m.ops.c import C\n\nX = 1\n"
    after = add_import(source, "m.ops.b", "B", path=PATH)
    assert after == "from m.ops.a import A\nfrom m.ops.b import B\nfrom m.ops.c import C\n\nX = 1\n"


def test_import_before_the_first_stays_below_the_comment_above_the_block() -> None:
    source = "import os\n\n# exports\nfrom m.ops.b import B  # noqa: F401\n"
    after = add_import(source, "m.ops.a", "A", path=PATH, noqa=True)
    assert (
        after
        == "import os\n\n# exports\nfrom m.ops.a import A  # noqa: F401\nfrom m.ops.b import B  # noqa: F401\n"
    )


def test_import_after_the_last_is_added_at_the_end_of_the_block() -> None:
    assert add_import(OPS_INIT, "mini_kernel.ops.zero", "MiniZeroFunction", path=PATH, noqa=True) == (
        OPS_INIT + "from mini_kernel.ops.zero import MiniZeroFunction  # noqa: F401\n"
    )


def test_classes_come_before_functions_of_the_same_module() -> None:
    source = "from m.ops.a import a_backward\nfrom m.ops.a import a_forward\n"
    assert add_import(source, "m.ops.a", "ZClass", path=PATH).startswith("from m.ops.a import ZClass\n")


def test_numbers_in_names_sort_as_numbers() -> None:
    source = "from m.a2 import X\nfrom m.a10 import X\n"
    assert (
        add_import(source, "m.a3", "X", path=PATH)
        == "from m.a2 import X\nfrom m.a3 import X\nfrom m.a10 import X\n"
    )


def test_long_import_is_wrapped_as_isort_wraps_it() -> None:
    after = add_import("from m.ops.a import A\n", "m.ops.b", "B" * 40, path=PATH, noqa=True, line_length=60)
    assert after == f"from m.ops.a import A\nfrom m.ops.b import (\n    {'B' * 40},  # noqa: F401\n)\n"


def test_import_can_go_inside_the_type_checking_block() -> None:
    after = add_import(
        TRANSFORMERS_INIT,
        "mini_kernel.transformers.patch",
        "apply_to_arcee",
        path=PATH,
        noqa=True,
        block="TYPE_CHECKING",
    )
    assert added(TRANSFORMERS_INIT, after) == [
        "    from mini_kernel.transformers.patch import apply_to_arcee  # noqa: F401"
    ]
    assert after.index("apply_to_arcee") < after.index("apply_to_llama")


def test_imported_name_in_a_lazy_set_is_added_too() -> None:
    after = add_to_collection(TRANSFORMERS_INIT, "lazy", "apply_to_arcee", path=PATH)
    assert added(TRANSFORMERS_INIT, after) == ['        "apply_to_arcee",']


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('__all__ = ["A", "C"]\n', '__all__ = ["A", "B", "C"]\n'),
        ('__all__ = ["A"]\n', '__all__ = ["A", "B"]\n'),
        ("__all__ = []\n", '__all__ = ["B"]\n'),
        ('__all__ = [\n    "Z",\n    "A",\n]\n', '__all__ = [\n    "Z",\n    "A",\n    "B",\n]\n'),
        ('__all__ = [\n    "A",\n    "Z"\n]\n', '__all__ = [\n    "A",\n    "B",\n    "Z"\n]\n'),
        ('__all__ = [\n    "A",  # keep\n]\n', '__all__ = [\n    "A",  # keep\n    "B",\n]\n'),
        (
            '__all__ = [\n    "A",  # keep\n    "C",\n]\n',
            '__all__ = [\n    "A",  # keep\n    "B",\n    "C",\n]\n',
        ),
        ('__all__ = [\n    "C",\n]\n', '__all__ = [\n    "B",\n    "C",\n]\n'),
    ],
)
def test_name_goes_where_it_leaves_the_list_most_in_order(before: str, after: str) -> None:
    assert add_to_collection(before, "__all__", "B", path=PATH) == after


def test_function_goes_below_its_relative_or_to_the_end() -> None:
    code = "def liger_new(x):\n    return x\n"
    near = add_function(FUNCTIONAL, code, path=PATH, after=["liger_absent", "liger_gate"])
    assert added(FUNCTIONAL, near) == ["def liger_new(x):", "    return x", "", ""]
    assert near.index("liger_gate(a") < near.index("liger_new") < near.index("liger_last")
    assert add_function(FUNCTIONAL, code, path=PATH).endswith(
        "    return x\n\n\ndef liger_new(x):\n    return x\n"
    )


def test_windows_line_ends_stay() -> None:
    source = "from m.ops.a import A\r\nX = 1\r\n"
    assert (
        add_import(source, "m.ops.b", "B", path=PATH)
        == "from m.ops.a import A\r\nfrom m.ops.b import B\r\nX = 1\r\n"
    )


def test_missing_last_line_end_stays_missing() -> None:
    assert add_import("from m.ops.a import A\nX = 1", "m.ops.b", "B", path=PATH).endswith("\nX = 1")


@pytest.mark.parametrize(
    "edit",
    [
        lambda source: add_import(source, "mini_kernel.ops.new", "New", path="some/file.py"),
        lambda source: add_import(source, "m", "New", path="some/file.py", block="TYPE_CHECKING"),
        lambda source: add_to_collection(source, "__all__", "New", path="some/file.py"),
        lambda source: add_function(source, "def new():\n    pass\n", path="some/file.py"),
    ],
)
@pytest.mark.parametrize("source", ["", "X = 1\n", "def broken(:\n"])
def test_missing_anchor_names_the_file(edit, source: str) -> None:
    with pytest.raises(AnchorMissing, match=r"^some/file\.py has no .+, so I can't tell where"):
        edit(source)


NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True).filter(lambda name: not keyword.iskeyword(name))


@given(st.lists(NAMES, min_size=1, max_size=12, unique=True), NAMES)
def test_import_is_found_again_and_nothing_else_moves(modules: list[str], new: str) -> None:
    source = "".join(f"from m.{name} import Class\n" for name in modules)
    once = add_import(source, f"m.{new}", "Class", path=PATH)
    assert add_import(once, f"m.{new}", "Class", path=PATH) == once
    expected = [] if new in modules else [f"from m.{new} import Class"]
    assert added(source, once) == expected


@given(st.lists(NAMES, max_size=12, unique=True), NAMES)
def test_entry_is_added_once_and_order_is_kept(names: list[str], new: str) -> None:
    source = "__all__ = [" + ", ".join(f'"{name}"' for name in names) + "]\n"
    once = add_to_collection(source, "__all__", new, path=PATH)
    assert add_to_collection(once, "__all__", new, path=PATH) == once
    listed = eval(once.removeprefix("__all__ = "))  # noqa: S307 - a literal of ours
    assert [name for name in listed if name != new] == [name for name in names if name != new]
    assert listed.count(new) == 1
    if names == sorted(names):
        assert listed == sorted(listed)
