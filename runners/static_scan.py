"""What a reference may contain: an allow-list over its syntax tree. Pure; nothing is executed.

It keeps mistakes and the obvious attacks out early and with a line number; the sandbox is what holds against the rest.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass

from kernels.syntax import syntax_tree

MAX_SOURCE_CHARS = 100_000

ALLOWED_MODULES = frozenset({"torch", "torch.nn", "torch.nn.functional", "math", "typing", "__future__"})
ALLOWED_BUILTINS = frozenset(
    "abs all any bool dict enumerate filter float int isinstance len list map max min pow range reversed round set slice "  # noqa: SIM905 - a word list is easier to read
    "sorted str sum super tuple zip property staticmethod classmethod AssertionError NotImplementedError RuntimeError "
    "TypeError ValueError".split()
)
UNLISTED_BUILTINS = (
    frozenset(dir(builtins)) - ALLOWED_BUILTINS - {"True", "False", "None", "NotImplemented", "Ellipsis"}
)
# Functions that read or write outside their arguments, or hand back objects that do. Every other public name of torch
# is judged by `_torch_name_allowed`.
TORCH_NAMESPACES = frozenset({"nn", "nn.functional", "nn.init", "special", "linalg", "fft"})
TORCH_DENIED = frozenset(
    "autograd backends classes compile compiler cond cpu cuda distributed export from_file func fx hub importlib inspect "  # noqa: SIM905 - a word list is easier to read
    "jit library load manual_seed masked mps mtia multiprocessing nested ops os overrides package profiler quantization "
    "random save seed serialization set_default_device set_default_dtype set_num_threads set_rng_state sparse storage "
    "sys testing threading types utils vmap warnings xpu initial_seed get_file_path textwrap ctypes glob platform "
    "functools builtins typing math pickle torch version use_deterministic_algorithms frombuffer from_numpy "
    "from_dlpack to_dlpack torch_version cpp amp monitor futures functional accelerator distributions return_types optim "
    "signal windows ao quasirandom dataclasses np grad parameter common_types modules attention parallel intrinsic qat "
    "quantizable quantized unique_name set_flush_denormal set_warn_always seed_all fork wait".split()
)
# Refused even when a local of that name exists somewhere: scopes are not resolved here.
BUILTINS_DENIED = frozenset(
    "exec eval compile open getattr setattr delattr globals locals vars breakpoint type object memoryview exit quit help".split()  # noqa: SIM905 - a word list is easier to read
)
METHODS_DENIED = frozenset(
    "apply_ map_ map2_ numpy tofile storage untyped_storage data_ptr set_ resize_ share_memory_ register_hook register_full_backward_hook "  # noqa: SIM905 - a word list is easier to read
    "register_forward_hook register_forward_pre_hook register_post_accumulate_grad_hook format format_map f_globals f_builtins f_locals gi_frame "
    "cr_frame tb_frame func_globals mro with_traceback backward to_dlpack cuda pin_memory record_stream "
    "load_state_dict compile".split()
)


@dataclass(frozen=True)
class Finding:
    """One thing a reference may not contain. `line` counts from 1; 0 is the source as a whole."""

    line: int
    message: str
    code: str = ""

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        return f"{where}{self.message}"


def scan(source: str) -> list[Finding]:
    """Return everything in `source` that the allow-list refuses, in line order; empty when it is acceptable."""
    if len(source) > MAX_SOURCE_CHARS:
        return [
            Finding(
                0, f"the reference is {len(source):,} characters long; at most {MAX_SOURCE_CHARS:,} are read"
            )
        ]
    try:
        tree = syntax_tree(source)
    except SyntaxError as error:
        return [
            Finding(
                error.lineno or 0, f"this is not valid Python: {error.msg}", _line(source, error.lineno or 0)
            )
        ]
    except (ValueError, RecursionError, MemoryError) as error:
        return [Finding(0, f"this can't be parsed as Python: {error or type(error).__name__}")]
    try:
        findings = [
            Finding(line, message, _line(source, line)) for line, message in _Scanner(tree).findings()
        ]
    except RecursionError:
        return [Finding(0, "the reference is nested too deeply to be read")]
    return sorted(set(findings), key=lambda finding: (finding.line, finding.message))


def _line(source: str, number: int) -> str:
    lines = source.splitlines()
    return lines[number - 1].strip()[:200] if 0 < number <= len(lines) else ""


class _Scanner:
    """Walks one syntax tree; keeps which local names stand for which allowed module."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.modules: dict[str, str] = {}
        self.attribute_bases = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        }
        self.bound = {
            node.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        } | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                self.bound.add(node.name)

    def findings(self) -> Iterator[tuple[int, str]]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield from self._import(node)
        yield from self._top_level()
        for node in ast.walk(self.tree):
            yield from self._node(node)

    def _top_level(self) -> Iterator[tuple[int, str]]:
        allowed = (
            ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign
        )  # constants and definitions; a reference does nothing when it is imported
        for node in self.tree.body:
            docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if not isinstance(node, allowed) and not docstring:
                yield node.lineno, "only imports, constants, functions and classes may stand at the top level"

    def _import(self, node: ast.Import | ast.ImportFrom) -> Iterator[tuple[int, str]]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name not in ALLOWED_MODULES:
                    yield node.lineno, _import_message(alias.name)
                elif alias.asname:
                    self.modules[alias.asname] = alias.name
                else:
                    self.modules[alias.name.split(".")[0]] = alias.name.split(".")[0]
            return
        module = node.module or ""
        if node.level or module not in ALLOWED_MODULES:
            yield node.lineno, _import_message("." * node.level + module)
            return
        for alias in node.names:
            full = f"{module}.{alias.name}"
            if alias.name == "*":
                yield node.lineno, f"`from {module} import *` hides what is used; import names one by one"
            elif full in ALLOWED_MODULES or full == "torch.nn.init":
                self.modules[alias.asname or alias.name] = full
            elif module.startswith("torch") and not _torch_name_allowed(full.removeprefix("torch.")):
                yield node.lineno, f"{full} may not be used in a reference"
            else:
                self.bound.add(alias.asname or alias.name)

    def _node(self, node: ast.AST) -> Iterator[tuple[int, str]]:
        line = getattr(node, "lineno", 0)
        if isinstance(
            node, ast.AsyncFunctionDef | ast.AsyncFor | ast.AsyncWith | ast.Await | ast.Yield | ast.YieldFrom
        ):
            yield line, "a reference is a plain function: no async, await or yield"
        elif isinstance(node, ast.Global | ast.Nonlocal):
            yield line, "a reference may not change global state"
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield from self._definition(node)
        elif isinstance(node, ast.Name):
            yield from self._name(node)
        elif isinstance(node, ast.Attribute):
            yield from self._attribute(node)
        elif isinstance(node, ast.keyword) and node.arg and node.arg.startswith("__"):
            yield line, f"`{node.arg}` is not allowed"

    def _definition(self, node: ast.FunctionDef | ast.ClassDef) -> Iterator[tuple[int, str]]:
        for decorator in node.decorator_list:
            if not (
                isinstance(decorator, ast.Name)
                and decorator.id in {"staticmethod", "property", "classmethod"}
            ):
                yield decorator.lineno, "decorators are not allowed in a reference"
        if node.name.startswith("__") and node.name != "__init__":
            yield node.lineno, f"`{node.name}` may not be defined in a reference"
        if isinstance(node, ast.ClassDef) and node.keywords:
            yield node.lineno, "metaclasses are not allowed in a reference"

    def _name(self, node: ast.Name) -> Iterator[tuple[int, str]]:
        if node.id.startswith("__"):
            yield node.lineno, f"`{node.id}` is not allowed"
        elif node.id in BUILTINS_DENIED:
            yield node.lineno, f"`{node.id}` may not be used in a reference"
        elif node.id in self.modules and id(node) not in self.attribute_bases:
            yield node.lineno, f"the module `{node.id}` may only be used as `{node.id}.name`"
        elif isinstance(node.ctx, ast.Load) and node.id in UNLISTED_BUILTINS and node.id not in self.bound:
            yield node.lineno, f"`{node.id}` may not be used in a reference"

    def _attribute(self, node: ast.Attribute) -> Iterator[tuple[int, str]]:
        module = self._module_path(node)
        if module is not None:
            if (
                module.startswith("torch.") and not _torch_name_allowed(module.removeprefix("torch."))
            ) or module.startswith(("math._", "typing._")):
                yield node.lineno, f"{module} may not be used in a reference"
            return
        on_self = isinstance(node.value, ast.Name) and node.value.id == "self"
        on_super = (
            isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Name)
            and node.value.func.id == "super"
        )
        if node.attr.startswith("__") and not (node.attr == "__init__" and on_super):
            yield (
                node.lineno,
                f"`.{node.attr}` is not allowed: double-underscore attributes reach the interpreter",
            )
        elif node.attr.startswith("_") and not node.attr.startswith("__") and not on_self:
            yield node.lineno, f"`.{node.attr}` is not allowed: it is private"
        elif node.attr in METHODS_DENIED:
            yield node.lineno, f"`.{node.attr}` may not be used in a reference"

    def _module_path(self, node: ast.Attribute) -> str | None:
        """`F.silu` -> "torch.nn.functional.silu" when the chain starts at an imported module, else None."""
        parts = [node.attr]
        value = node.value
        while isinstance(value, ast.Attribute):
            parts.append(value.attr)
            value = value.value
        if not isinstance(value, ast.Name) or value.id not in self.modules:
            return None
        return ".".join([self.modules[value.id], *reversed(parts)])


def _torch_name_allowed(name: str) -> bool:
    """Whether `torch.<name>` may be named: an operation, a dtype, an nn class; never a module other than the listed."""
    *namespace, leaf = name.split(".")
    if name in TORCH_NAMESPACES:
        return True
    if ".".join(namespace) not in TORCH_NAMESPACES | {""}:
        # torch.finfo(...).eps and the like are attributes of a call, not of this chain; `torch.Tensor.foo` is refused.
        return False
    return not leaf.startswith("_") and leaf not in TORCH_DENIED


def _import_message(name: str) -> str:
    allowed = ", ".join(sorted(ALLOWED_MODULES - {"__future__"}))
    return f"`import {name}` is not allowed: a reference may import {allowed}"
