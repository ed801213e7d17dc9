"""Which existing patches break or drift under a version of transformers, and what to ask for. Pure: both are read as text.

A finding is one of
- `breaks`: the patch raises (a class, module or submodule that it names is gone);
- `dead`: an assignment to a name that the modeling module lacks, so the flag changes nothing;
- `drifts`: lce_forward and the model's own forward no longer take the same parameters.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from agents.autopatch.layout import Layout, read_layout
from agents.autopatch.patch_reading import Expected, expectations
from agents.autopatch.splice import functions, parse
from agents.conventions import detect
from agents.ports import Tree
from kernels.syntax import syntax_tree

PREFIX = "apply_liger_kernel_to_"
OURS = {"skip_logits"}  # a parameter of Liger's own


@dataclass(frozen=True)
class Drift:
    """One thing about one patch. `where`: file:line in the checkout; `propose`: the command that would mend it, if one can."""

    model: str
    kind: Literal["breaks", "dead", "drifts"]
    what: str
    where: str
    propose: str


class Modeling:
    """One module of transformers, as its text says."""

    def __init__(self, text: str):
        self._tree = syntax_tree(text)

    @cached_property
    def bound(self) -> frozenset[str]:
        """Names that the module has once it is imported, under whatever condition."""
        return frozenset(_bound(self._tree.body))

    @cached_property
    def attributes(self) -> frozenset[str]:
        """Attributes that any of its classes sets on itself."""
        return frozenset(
            node.attr
            for node in ast.walk(self._tree)
            if isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and ast.unparse(node.value) == "self"
        )

    def forward(self, cls: str) -> ast.FunctionDef | None:
        """A class's own forward."""
        for node in self._tree.body:
            if isinstance(node, ast.ClassDef) and node.name == cls:
                return next(
                    (n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "forward"), None
                )
        return None


def _bound(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                yield (alias.asname or alias.name).split(".")[0]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from (name.id for name in ast.walk(target) if isinstance(name, ast.Name))
        elif isinstance(node, ast.If):
            yield from _bound([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            yield from _bound([*node.body, *node.orelse, *(s for h in node.handlers for s in h.body)])


def watch(checkout: Tree, transformers: Tree, version: str) -> list[Drift]:
    """Every finding about every patch of a checkout.

    transformers: a tree whose top folder `transformers` is the package · version: its version, "5.24.0".
    Raises NotAKernelLibrary, AnchorMissing when monkey_patch.py is not valid Python.
    """
    conventions = detect(checkout)
    layout = read_layout(checkout, conventions)
    text = checkout.read(layout.monkey_patch) or ""
    tree = parse(text, layout.monkey_patch)
    look = _Look(checkout, transformers, layout, _forwards(tree), _numbers(version))
    keys = {function: key for key, function in reversed(layout.registered.items())}
    found: list[Drift] = []
    for function in functions(tree, lambda name: name.startswith(PREFIX)):
        model = keys.get(function.name, function.name.removeprefix(PREFIX))
        found += look.function(function, model)
    return list(dict.fromkeys(found))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:3] if part.isdigit())


def _forwards(tree: ast.Module) -> dict[str, tuple[str, str]]:
    """Name in monkey_patch.py -> (module, name there) of what it imports, at its top or inside functions."""
    return {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


class _Look:
    """One pass over a checkout's patches; each module of transformers is parsed once."""

    def __init__(
        self,
        checkout: Tree,
        transformers: Tree,
        layout: Layout,
        forwards: dict[str, tuple[str, str]],
        version: tuple[int, ...],
    ):
        self._checkout, self._transformers, self._layout = checkout, transformers, layout
        self._forwards, self._version = forwards, version
        self._modules: dict[str, Modeling | None] = {}

    def function(self, function: ast.FunctionDef, model: str) -> Iterator[Drift]:
        """The findings about one patch."""
        expected = expectations(function, self._version)
        modelings = {one.module: one for one in reversed(expected) if ".modeling_" in one.module}
        gone = {module: one for module, one in modelings.items() if self.module(module) is None}
        for module, one in gone.items():
            where = f"{self._layout.monkey_patch}:{one.line}"
            yield Drift(model, "breaks", f"this transformers has no {module}", where, "")
        if gone:
            return  # what else the patch expects of that module is told by this
        modules = [
            m for one in expected if one.kind == "import" and (m := self.module(one.module)) is not None
        ]
        for one in expected:
            where = f"{self._layout.monkey_patch}:{one.line}"
            match one.kind:
                case "import":
                    kind, what = "breaks", self._import(one)
                case "assignment":
                    kind, what = "dead", self._assignment(one)
                case "attribute":
                    kind, what = "breaks", self._attribute(one, modules)
                case _:
                    yield from self._forward(one, model, where)
                    continue
            if what:
                yield Drift(model, kind, what, where, propose(model, one.flag))

    def module(self, name: str) -> Modeling | None:
        """A module of transformers; None when this version lacks it."""
        if name not in self._modules:
            path = name.replace(".", "/")
            text = self._transformers.read(f"{path}.py") or self._transformers.read(f"{path}/__init__.py")
            self._modules[name] = Modeling(text) if text is not None else None
        return self._modules[name]

    def _import(self, one: Expected) -> str:
        module = self.module(one.module)
        if module is None:
            return f"there is no module {one.module}"
        # a package binds most of its names lazily, when they are asked for
        if one.name and one.name not in module.bound and not self._is_package(one.module):
            return f"{one.module} has no {one.name}"
        return ""

    def _is_package(self, name: str) -> bool:
        return self._transformers.read(f"{name.replace('.', '/')}/__init__.py") is not None

    def _assignment(self, one: Expected) -> str:
        module = self.module(one.module)
        if module is None or one.name in module.bound:
            return ""
        under = f"`{one.flag}`" if one.flag else "the assignment"
        short = one.module.rsplit(".", 1)[-1]
        return f"{under} replaces {short}.{one.name}, which this transformers lacks: it changes nothing"

    def _attribute(self, one: Expected, modules: list[Modeling]) -> str:
        if not modules or any(one.name in module.attributes for module in modules):
            return ""
        return f"with `model=`, {one.value} is patched, and no class of the model sets `{one.name}`"

    def _forward(self, one: Expected, model: str, where: str) -> Iterator[Drift]:
        module = self.module(one.module)
        if module is None:
            return
        request = propose(model, None)
        if one.name not in module.bound:
            short = one.module.rsplit(".", 1)[-1]
            yield Drift(
                model, "breaks", f"{short} has no {one.name}, whose forward is replaced", where, request
            )
            return
        theirs, ours = module.forward(one.name), self._ours(one.value)
        if theirs is None or ours is None:
            return
        path, function = ours
        yield from self._imports(path, model, request)
        if sentences := signature_drift(theirs, function):
            yield Drift(model, "drifts", f"{one.name}.forward: {'; '.join(sentences)}", path, request)

    def _ours(self, name: str) -> tuple[str, ast.FunctionDef] | None:
        """(path with line, the function that replaces a forward)."""
        module, function = self._forwards.get(name, ("", ""))
        path = self._layout.path(*module.split(".")[1:]) + ".py"
        text = self._checkout.read(path)
        if text is None:
            return None
        found = functions(parse(text, path), lambda here: here == function)
        return (f"{path}:{found[0].lineno}", found[0]) if found else None

    def _imports(self, where: str, model: str, request: str) -> Iterator[Drift]:
        """Names of modeling modules that the file of lce_forward imports at its top."""
        path = where.rsplit(":", 1)[0]
        for node in parse(self._checkout.read(path) or "", path).body:
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith(
                "transformers.models."
            ):
                continue
            for alias in node.names:
                one = Expected("import", node.module or "", alias.name, node.lineno)
                if what := self._import(one):
                    yield Drift(model, "breaks", what, f"{path}:{node.lineno}", request)


def signature_drift(theirs: ast.FunctionDef, ours: ast.FunctionDef) -> list[str]:
    """How lce_forward's parameters differ from those of the model's forward, as sentences."""
    said, own, renamed = _names(theirs.args), _names(ours.args), _renamed(theirs)
    late = {old: new for old, new in renamed.items() if old in own and new not in own}
    missing = [name for name in said if name not in own and name not in late.values()]
    gone = [name for name in own if name not in said and name not in late and name not in OURS]
    sentences = [f"{old} is called {new} now" for old, new in late.items()]
    if missing and ours.args.kwarg is None:
        sentences.append(f"lce_forward doesn't take {', '.join(missing)}: passing one raises")
    elif missing:
        sentences.append(
            f"lce_forward knows {', '.join(missing)} only as keyword arguments that it passes on"
        )
    if theirs.args.kwarg is not None and ours.args.kwarg is None:
        sentences.append("lce_forward doesn't take the keyword arguments that the model passes on")
    if gone:
        sentences.append(f"lce_forward takes {', '.join(gone)}, which the model no longer has")
    return sentences


def _names(arguments: ast.arguments) -> list[str]:
    named = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return [name for name in named if name != "self"]


def _renamed(function: ast.FunctionDef) -> dict[str, str]:
    """old -> new name of the parameters that transformers renamed, from its `deprecate_kwarg` decorators."""
    found = {}
    for node in function.decorator_list:
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "deprecate_kwarg" and node.args:
            new = next((k.value for k in node.keywords if k.arg == "new_name"), None)
            if isinstance(node.args[0], ast.Constant) and isinstance(new, ast.Constant):
                found[str(node.args[0].value)] = str(new.value)
    return found


def propose(model: str, flag: str | None) -> str:
    """The modify request that would mend a finding: the part under its flag written anew, or else the forward."""
    change = f"--add {flag}" if flag and flag != "fused_linear_cross_entropy" else "--refresh"
    return f"/liger autopatch {model} {change}"
