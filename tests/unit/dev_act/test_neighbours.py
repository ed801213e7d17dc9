"""Existing tests that an export could break."""

from agents.conventions import detect
from agents.dev.neighbours import MAX_LINES, neighbours
from tests.dict_tree import DictTree
from tests.mini_library import mini_library

ROOT = "from mini_kernel.transformers import MiniGate\n"


def found(**tests: str) -> list[str]:
    files = mini_library()
    files.update({f"test/transformers/{name}.py": text for name, text in tests.items()})
    tree = DictTree(files)
    return neighbours(tree, detect(tree), exclude="test/transformers/test_new.py")


def test_short_tests_of_the_package_are_neighbours() -> None:
    nested = "def test():\n    from mini_kernel.transformers import MiniGate\n"
    assert found(test_root=ROOT, test_nested=nested) == [
        "test/transformers/test_nested.py",
        "test/transformers/test_root.py",
    ]


def test_tests_that_launch_kernels_or_take_minutes_are_not() -> None:
    assert (
        found(
            test_kernel=ROOT + "from mini_kernel.ops.gate import MiniGateFunction\n",
            test_functional=ROOT + "from mini_kernel.transformers.functional import liger_gate\n",
            test_long=ROOT + "\n" * (MAX_LINES + 1),
            test_unrelated="import torch\n",
            test_models=ROOT + "from transformers import AutoConfig\n",
            test_new=ROOT,
        )
        == []
    )
