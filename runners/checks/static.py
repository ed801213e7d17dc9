"""What a kernel's source may not do, read from its syntax tree.

Kevin, KernelBench and Sakana: ATen called inside the "kernel", try/except fallbacks to torch, frames and garbage collector
walked for the expected answer, timers patched. Liger#803: `program_id * stride` in 32 bits.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from kernels.syntax import syntax_tree
from runners.protocol import Gate, Outcome, Verdict

ALLOWED_ROOTS = frozenset(
    {
        "torch",
        "triton",
        "math",
        "typing",
        "functools",
        "contextlib",
        "operator",
        "packaging",
        "__future__",
        "collections",
    }
)
DENIED_MODULES = frozenset({
    "torch.nn.functional", "torch.utils.cpp_extension", "torch.cuda.graphs", "torch.multiprocessing", "torch._C", "torch.ops", "torch.hub",
    "torch.jit", "torch.package", "torch.compiler", "torch._inductor", "torch._dynamo",
})  # fmt: skip
# Work that belongs in the kernel. Allocation, layout, dtype queries and sums over partial results are the host's.
TORCH_WORK = frozenset(
    "relu silu gelu softmax log_softmax sigmoid tanh exp exp2 log log2 log1p expm1 pow square sqrt rsqrt matmul mm bmm addmm baddbmm einsum "  # noqa: SIM905 - a word list is easier to read
    "dot where clamp clip maximum minimum layer_norm rms_norm group_norm batch_norm softplus mish erf logsumexp cumsum cumprod conv1d conv2d "
    "conv3d linear embedding cross_entropy nll_loss kl_div dropout sin cos var mean std norm topk sort compile tensordot mul div add sub".split()
)
DENIED_NAMES = frozenset(
    "exec eval compile open __import__ globals locals vars setattr delattr breakpoint input memoryview".split()  # noqa: SIM905 - a word list is easier to read
)
DENIED_ATTRIBUTES = frozenset(
    "__globals__ __code__ __closure__ __subclasses__ __bases__ __mro__ __builtins__ __dict__ f_back f_globals f_locals gi_frame tb_frame "  # noqa: SIM905 - a word list is easier to read
    "_C cpp_extension set_stream current_stream stream synchronize Stream CUDAGraph data_ptr _version".split()
)
CASTS = ("int64", "uint64")


def check_static(files: Mapping[str, str], products: Sequence[str] = ()) -> list[Verdict]:
    """Findings in every file that defines a Triton kernel, or one verdict that there are none.

    products: files whose reference multiplies matrices; there `@` is left to torch. What else torch does is seen when they run.
    """
    verdicts: list[Verdict] = []
    scanned = []
    for path, source in sorted(files.items()):
        if not path.endswith(".py"):
            continue
        try:
            tree = syntax_tree(source)
        except (SyntaxError, ValueError, RecursionError) as error:
            verdicts.append(
                _failed(path, getattr(error, "lineno", None), f"this is not valid Python: {error}")
            )
            continue
        if not any(is_kernel(node) for node in ast.walk(tree)):
            continue
        scanned.append(path)
        own_package = _package_of(path)
        verdicts += [
            _failed(path, line, message)
            for line, message in _findings(tree, own_package, product=path in products)
        ]
        verdicts += [
            _verdict(path, line, Outcome.flagged, message, hard=False, check="style/int64_offsets")
            for line, message in _narrow_offsets(tree)
        ]
    if scanned and not any(v.outcome is Outcome.failed for v in verdicts):
        words = f"{', '.join(scanned)}: imports, names and calls are those of a kernel"
        verdicts.append(_verdict(scanned[0], None, Outcome.passed, words))
    return verdicts


def is_kernel(node: ast.AST) -> bool:
    """Whether a node is a function decorated with triton.jit, plainly or among others."""
    return isinstance(node, ast.FunctionDef) and any(
        "jit" in ast.unparse(decorator).split("(")[0].split(".") for decorator in node.decorator_list
    )


def _findings(tree: ast.Module, own_package: str, *, product: bool) -> Iterator[tuple[int, str]]:
    kernels = [node for node in ast.walk(tree) if is_kernel(node)]
    in_kernel = {id(inner) for kernel in kernels for inner in ast.walk(kernel)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _import(node.lineno, alias.name, own_package)
        elif isinstance(node, ast.ImportFrom):
            yield from _import(node.lineno, node.module or "", own_package, relative=bool(node.level))
            for alias in node.names:
                if f"{node.module}.{alias.name}" in DENIED_MODULES:
                    yield node.lineno, f"{node.module}.{alias.name} may not be imported by a kernel module"
        elif isinstance(node, ast.Try):
            yield node.lineno, "try/except in a kernel module: a kernel has no fallback"
        elif isinstance(node, ast.Name) and node.id in DENIED_NAMES:
            yield node.lineno, f"`{node.id}` may not be used in a kernel module"
        elif isinstance(node, ast.Attribute):
            if node.attr in DENIED_ATTRIBUTES:
                yield node.lineno, f"`.{node.attr}` may not be used in a kernel module"
            elif id(node) not in in_kernel and _is_torch(node.value) and node.attr in TORCH_WORK:
                yield node.lineno, f"torch.{node.attr} computes outside the kernel"
        elif (
            isinstance(node, ast.expr | ast.stmt)
            and not product
            and id(node) not in in_kernel
            and _is_product(node)
        ):
            yield node.lineno, "`@` computes outside the kernel"


def _import(line: int, name: str, own_package: str, *, relative: bool = False) -> Iterator[tuple[int, str]]:
    root = name.split(".", maxsplit=1)[0]
    if relative or root == own_package:
        return
    if root not in ALLOWED_ROOTS:
        yield line, f"`import {name}` is not something a kernel module needs"
    elif any(name == denied or name.startswith(denied + ".") for denied in DENIED_MODULES):
        yield line, f"{name} may not be imported by a kernel module"


def _narrow_offsets(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Kernels that use their program id without ever making anything 64-bit."""
    for kernel in ast.walk(tree):
        if not (isinstance(kernel, ast.FunctionDef) and is_kernel(kernel)):
            continue
        text = ast.unparse(kernel)
        if "program_id" in text and not any(cast in text for cast in CASTS):
            message = f"{kernel.name} keeps its program id in 32 bits: offsets overflow past 2^31 elements"
            yield kernel.lineno, message


def _is_product(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)


def _is_torch(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("torch", "F")


def _package_of(path: str) -> str:
    parts = path.split("/")
    return parts[1] if parts[0] == "src" and len(parts) > 2 else parts[0]


def _failed(path: str, line: int | None, message: str) -> Verdict:
    return _verdict(path, line, Outcome.failed, message)


def _verdict(
    path: str,
    line: int | None,
    outcome: Outcome,
    message: str,
    *,
    hard: bool = True,
    check: str = "style/static",
) -> Verdict:
    return Verdict(
        check=check, gate=Gate.style, outcome=outcome, hard=hard, summary=message[:500], path=path, line=line
    )
