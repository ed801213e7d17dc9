"""The understand stage with a real runner process and a model behind real HTTP."""

from __future__ import annotations

from pydantic import SecretStr

from agents.dev.refused import Refused
from agents.dev.understand import understand
from agents.profiles import KernelProfile
from app.dispatch import LocalBench
from app.llm import LiteLLMModel
from tests.dict_tree import DictTree
from tests.mini_library import mini_library
from tests.openai_server import OpenAIServer, Reply

TREE = DictTree(mini_library())


async def test_a_dotted_path_is_read_from_the_installed_package():
    found = await understand("transformers.activations:ReLUSquaredActivation", None, TREE, LocalBench())

    assert isinstance(found, KernelProfile), found
    assert (found.operation_name, found.module_class_name) == ("relu_squared", "MiniReLUSquared")
    assert "class ReLUSquaredActivation" in found.op.source
    assert found.source == "transformers.activations.ReLUSquaredActivation, an installed package"


async def test_a_module_in_a_block_keeps_its_parameters():
    block = (
        "class LearnedSwish(nn.Module):\n    def __init__(self, hidden_size, beta: float = 1.5):\n        super().__init__()\n"
        "        self.weight = nn.Parameter(torch.ones(hidden_size))\n        self.beta = beta\n\n"
        "    def forward(self, x):\n        return x * torch.sigmoid(self.beta * self.weight * x)\n"
    )

    found = await understand("learned swish", block, TREE, LocalBench())

    assert isinstance(found, KernelProfile), found
    assert [(p.name, p.default) for p in found.module_init_params] == [("hidden_size", None), ("beta", 1.5)]
    assert [p.name for p in found.learnable_params] == ["weight"]
    traced = next(decision for decision in found.decisions if decision.name == "op").evidence[0]
    assert "confined by" in traced.text


async def test_what_the_rules_can_not_do_is_said_with_the_line_of_the_block():
    found = await understand(
        "", "def f(x):\n    y = torch.sort(x)[0]\n    return y * x\n", TREE, LocalBench()
    )

    assert isinstance(found, Refused)
    assert (found.node, found.model_could_help) == ("aten.sort.default", True)
    assert (found.where or "").endswith("y = torch.sort(x)[0]")


async def test_free_text_goes_through_the_model_and_then_the_same_gates():
    answer = {
        "understood": True,
        "missing": "",
        "name": "tanh_square",
        "entry": "tanh_square",
        "source": "import torch\n\n\ndef tanh_square(x: torch.Tensor) -> torch.Tensor:\n    return torch.square(torch.tanh(x))\n",
        "summary": "y = tanh(x)²",
        "tensors": [{"name": "x", "role": "full", "dtype": "float", "learnable": False}],
        "scalars": [],
    }
    evil = {**answer, "source": "import subprocess\n\n\ndef tanh_square(x):\n    return x\n"}
    with OpenAIServer([Reply(evil), Reply(answer)]).running() as server:
        model = LiteLLMModel(
            "local/model", base_url=server.base_url, api_key=SecretStr("sk-local-test"), timeout_s=30
        )

        found = await understand("the square of the hyperbolic tangent", None, TREE, LocalBench(), model)

    assert isinstance(found, KernelProfile), found
    assert found.source == "written by the model local/model from the request's words"
    assert "`import subprocess` is not allowed" in server.requests[1][1]["messages"][1]["content"]
