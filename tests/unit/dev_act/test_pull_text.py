"""What a pull request says."""

from inline_snapshot import snapshot

from agents.conventions import detect
from agents.dev.pull_text import commit_message, display_name, pull_body
from agents.profiles import Roofline
from kernels.derivation import Derivation, KernelSchedule
from kernels.op_spec import OpSpec
from tests.dev_profiles import RELU_SQUARED, kernel_profile
from tests.dict_tree import DictTree
from tests.mini_library import mini_library

SCHEDULE = KernelSchedule(
    name="flat",
    why="every operand is full",
    live_vectors=2,
    block_size="1024",
    num_warps="4",
    grid="one program per 1024 elements",
)
ROOFLINE = Roofline(
    shape="8192 x 4096, bfloat16", bandwidth_tbps=4.28, bandwidth_source="measured", forward_bytes=2, backward_bytes=3,
    eager_forward_bytes=4, eager_backward_bytes=10, forward_floor_ms=0.031, backward_floor_ms=0.047, predicted_forward_speedup=2.0,
    predicted_backward_speedup=3.33, peak_bytes=5, eager_peak_bytes=8, predicted_memory_saving_pct=37.5,
)  # fmt: skip


def derivation(op: OpSpec = RELU_SQUARED) -> Derivation:
    return Derivation.model_construct(
        op=op,
        forward_formula="y = max(x, 0)²",
        gradient_formulas={"x": "dx = 2 dy max(x, 0)"},
        forward_schedule=SCHEDULE,
        backward_schedule=SCHEDULE,
        warnings=("NaN stays NaN",),
    )


def body(**changes: str | None) -> str:
    conventions = detect(DictTree(mini_library(**changes)))
    profile = kernel_profile(RELU_SQUARED, roofline=[ROOFLINE], risks=["@someone says <b>no</b> to #12"])
    return pull_body(profile, derivation(), conventions).replace(profile.sha256(), "SHA256")


def test_body_fills_the_targets_template() -> None:
    assert body() == snapshot("""\
## Summary
Adds ReLU Squared: `y = max(x, 0)²`, forward and backward.

- `LigerReLUSquaredFunction` (autograd), `LigerReLUSquared` (module), `liger_relu_squared` (functional)
- reference: the catalog
- predicted at 8192 x 4096, bfloat16, an upper bound when memory-bound: 2.00x forward, 3.33x backward over eager, 37.5% less peak memory

## Details
| decision | value |
| --- | --- |
| forward | `y = max(x, 0)²` |
| dx | `dx = 2 dy max(x, 0)` |
| saved for backward | `x` |
| recomputed in backward | nothing |
| in fp32 | nothing in particular |
| forward schedule | flat, one program per 1024 elements: every operand is full |
| backward schedule | flat, one program per 1024 elements: every operand is full |

To look at in review:
- @\u200bsomeone says &lt;b\\>no&lt;/b\\> to \\#\u200b12
- NaN stays NaN

The reference that the kernel was derived from and is tested against:

```python
import torch
import torch.nn.functional as F


def relu_squared(x):
    return torch.square(F.relu(x))
```

Approved profile: `sha256:SHA256`

## Testing Done
The checks of this pull request run the new unit test and its neighbours, compare forward and every gradient with an fp64 reference, and compile the kernels for sm_80, sm_90, sm_100 and gfx942. The boxes are for the person who merges.

- Hardware Type: see the checks
- [ ] run `make test` to ensure correctness
""")


def test_repository_without_a_template_gets_the_same_sections() -> None:
    assert [line for line in body(template=None).splitlines() if line.startswith("## ")] == [
        "## Summary",
        "## Details",
        "## Testing Done",
    ]


def test_section_that_we_can_not_fill_says_so() -> None:
    assert "## Screenshots\nNot applicable to a new kernel." in body(
        template="## Summary\n\n## Screenshots\n"
    )


def test_subject_is_in_the_targets_style_and_names_the_op_as_people_do() -> None:
    profile = kernel_profile(RELU_SQUARED)
    assert display_name(profile) == "ReLU Squared"
    assert commit_message(profile) == "[Feature] Add Triton kernel for ReLU Squared\n\ny = max(x, 0)²\n"
