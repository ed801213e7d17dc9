"""Names for the values of a row program, from what they are: rstd, sig_x, dot. Pure."""

from __future__ import annotations

import keyword

from kernels.row_program import SPLITS, Cast, Gather, Load, Map, Reduce, RowProgram, Scan, Symbol, Uniform

RESERVED = {
    "tl", "torch", "triton", "ctx", "mask", "offsets", "col_offsets", "row_idx", "row_offsets", "grid", "n_cols", "n_rows",
    "n_elements", "block_start", "row_start", "row_end", "rows_per_program", "n_programs", "program_id", "BLOCK_SIZE",
    "split_idx", "split_offsets", "split_mask", "n_splits", "BLOCK_SPLITS",
    "relu", "tanh", "expm1", "log1p", "softplus", "silu", "sign", "abs", "max", "min", "sum", "range", "float", "int",
}  # fmt: skip
PREFIXES = {
    "sigmoid": "sig", "tanh": "tanh", "erf": "erf", "exp": "exp", "expm1": "expm1", "log": "log", "log1p": "log1p",
    "sqrt": "sqrt", "rsqrt": "rstd", "abs": "abs", "sin": "sin", "cos": "cos", "sign": "sign", "floor": "floor",
    "ceil": "ceil",
}  # fmt: skip
PIECES = {0: "first", 1: "second"}
INTERLEAVED = {0: "even", 1: "odd"}
LONGEST = 18


def stem(tensor: str) -> str:
    """A tensor's name in host code and as a pointer: x -> X, dx -> dX, weight -> weight."""
    if len(tensor) == 1:
        return tensor.upper()
    if len(tensor) == 2 and tensor[0] == "d" and tensor[1].isalpha():
        return f"d{tensor[1].upper()}"
    return tensor


def value_names(program: RowProgram, taken: set[str], statements: set[int] | None = None) -> dict[int, str]:
    """A unique name for every statement (every node, when it isn't known yet); `taken` are the kernel's arguments."""
    bases: dict[int, str] = {}
    for index in range(len(program.nodes)):
        bases[index] = _wanted(program, index, bases)
    used = set(RESERVED) | set(taken)
    names: dict[int, str] = {}
    for index, base in bases.items():
        if statements is not None and index not in statements:
            continue
        wanted = f"{base}_value" if keyword.iskeyword(base) or base in RESERVED else base
        name, count = wanted, 2
        while name in used:
            name, count = f"{wanted}_{count}", count + 1
        used.add(name)
        names[index] = name
    return names


def _wanted(program: RowProgram, index: int, names: dict[int, str]) -> str:
    node = program.nodes[index]
    if isinstance(node, Load):
        suffix = ""
        for axis, at in node.at:
            dims = next(d for d in program.tensor(node.tensor).dims if axis in d)
            inner = len(dims) > 1 and dims[-1] == axis
            two = program.axis(axis).unroll == 2
            word = (INTERLEAVED if inner else PIECES).get(at) if two else None
            suffix += f"_{word or at}"
        return node.tensor + suffix
    if isinstance(node, Gather):
        return f"{node.tensor}_{names[node.index]}"
    if isinstance(node, Reduce) and node.axes == (SPLITS,):
        return names[_first_load(program, node.arg)].removesuffix("_parts")
    if isinstance(node, Reduce):
        arg = program.nodes[node.arg]
        if node.fn == "sum" and isinstance(arg, Map) and arg.fn == "mul" and arg.args[0] != arg.args[1]:
            return "dot"
        return _joined("total" if node.fn == "sum" else node.fn, names[node.arg])
    if isinstance(node, Scan):
        return _joined("prefix", names[node.arg])
    if isinstance(node, Cast):
        return _joined("rounded", names[node.arg])
    if isinstance(node, Uniform):
        return "uniform"
    if isinstance(node, Symbol):
        return "factor"
    if isinstance(node, Map):
        return _map_name(program, node, names)
    return "value"


def _first_load(program: RowProgram, index: int) -> int:
    node = program.nodes[index]
    return _first_load(program, node.args[0]) if isinstance(node, Map) else index


def _map_name(program: RowProgram, node: Map, names: dict[int, str]) -> str:
    first = names[node.args[0]]
    if node.fn in PREFIXES:
        return "rstd" if node.fn == "rsqrt" else _joined(PREFIXES[node.fn], first)
    if node.fn == "mul" and node.args[0] == node.args[1]:
        return f"{first}_sq" if len(first) <= LONGEST else "squared"
    if node.fn == "mul":
        second = program.nodes[node.args[1]]
        if isinstance(second, Map) and second.fn == "sigmoid" and second.args[0] == node.args[0]:
            return _joined("silu", first)
        return _product_name(program, node)
    if node.fn == "div" and program.nodes[node.args[1]].kind == "symbol" and first.startswith("total"):
        return "mean" + first.removeprefix("total")
    if node.fn in ("add", "sub"):
        second_name = names[node.args[1]]
        if node.fn == "sub" and second_name.startswith("mean"):
            return f"{first}_centered" if len(first) <= LONGEST else "centered"
        word = "plus" if node.fn == "add" else "minus"
        if program.nodes[node.args[0]].kind == "load" and program.nodes[node.args[1]].kind == "load":
            return f"{first}_{word}_{second_name}"
    if node.fn == "maximum" and _is_zero(program, node.args[1]):
        return _joined("relu", first)
    fixed = {"add": "shifted", "sub": "difference", "div": "quotient", "where": "selected", "neg": "negated"}
    if node.fn in fixed:
        return fixed[node.fn]
    return {"maximum": "upper", "minimum": "lower", "not": "outside"}.get(node.fn, "inside")


def _product_name(program: RowProgram, node: Map) -> str:
    """After the loaded factors: an incoming gradient first, else the input that is scaled."""
    loads: list[str] = []
    stack, seen = list(node.args), set[int]()
    while stack:
        index = stack.pop()
        if index in seen:
            continue
        seen.add(index)
        found = program.nodes[index]
        if isinstance(found, Load):
            loads.append(found.tensor)
        elif isinstance(found, Map) and found.fn in ("mul", "div", "neg"):
            stack.extend(found.args)
    kinds = {t.name: t.kind for t in program.tensors}
    for name in sorted(loads, key=lambda n: kinds[n] != "tangent"):
        if kinds[name] == "tangent":
            return f"{name}_scaled"
        if program.role_of(frozenset(program.tensor(name).axes)) == "full":
            return f"scaled_{name}"
    return "scaled"


def _is_zero(program: RowProgram, node: int) -> bool:
    found = program.nodes[node]
    return found.kind == "const" and found.value == 0


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}_{name}" if len(name) <= LONGEST - len(prefix) else prefix
