"""Reads a target checkout and says what its conventions are, each with the file and line it was read from.

Supported layout: a Python package with `ops/` (Triton kernels), `transformers/` (modules and functional.py), tests under
test/ and benchmark scripts; Liger-Kernel 0.5.10 and later have it.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

from agents.conventions.existing_ops import existing_ops, is_jit
from agents.conventions.reading import Outline, outline
from agents.conventions.record import BenchmarkApi, Conventions, NotAKernelLibrary
from agents.ports import Tree
from agents.profiles import Evidence

TEST_UTILS = "test/utils.py"
BENCHMARK_UTILS = "benchmark/scripts/utils.py"
BENCHMARK_MODELS = "benchmark/scripts/benchmark_model_configs.py"
PULL_REQUEST_TEMPLATE = ".github/pull_request_template.md"
TEST_HELPERS = ("assert_verbose_allclose", "set_seed", "supports_bfloat16")


def detect(tree: Tree) -> Conventions:
    """Conventions of a checkout. Raises NotAKernelLibrary with one sentence that says what is missing."""
    source_root = _source_root(tree)
    package = source_root.rsplit("/", 1)[-1]
    needed = [
        f"{source_root}/ops/utils.py",
        f"{source_root}/ops/__init__.py",
        f"{source_root}/transformers/__init__.py",
    ]
    needed += [f"{source_root}/transformers/functional.py", TEST_UTILS, BENCHMARK_UTILS]
    missing = [path for path in needed if tree.read(path) is None]
    if missing:
        raise NotAKernelLibrary(
            f"This repository has Triton kernels in {source_root}/ops but no {', '.join(missing)}, "
            "so I don't know where a new kernel's module, exports, tests and benchmark go."
        )
    evidence: dict[str, Evidence] = {}

    def saw(field: str, text: str, path: str, line: int | None = None) -> None:
        evidence[field] = Evidence(kind="read", text=text, where=f"{path}:{line}" if line else path)

    pyproject = _pyproject(tree)
    version = str(pyproject.get("project", {}).get("version", ""))
    saw("version", version or "not stated", *_where(tree, "pyproject.toml", r"^version\s*="))
    line_length = pyproject.get("tool", {}).get("ruff", {}).get("line-length", 88)
    saw("line_length", f"{line_length} columns", *_where(tree, "pyproject.toml", r"^line-length\s*="))
    ruff = _requirement(tree, "ruff")
    saw("ruff_requirement", ruff[0] or "no requirement stated", *ruff[1:])
    transformers = _requirement(tree, "transformers")
    saw("transformers_requirement", transformers[0] or "no requirement stated", *transformers[1:])

    ops = existing_ops(tree, source_root)
    ops_import, exports_wrappers = _ops_exports(tree, source_root, package, saw)
    transformers_init = _transformers_init(tree, source_root, saw)
    helpers = _ops_utils(tree, source_root, saw)
    api, bytes_per_token = _benchmark_api(tree, saw)
    test_utils = outline(tree.read(TEST_UTILS))
    test_helpers = tuple(name for name in TEST_HELPERS if name in test_utils.functions)
    saw(
        "test_helpers",
        ", ".join(test_helpers) or "none",
        TEST_UTILS,
        _line(test_utils, "assert_verbose_allclose"),
    )
    allclose = test_utils.functions.get("assert_verbose_allclose")
    extra_info = allclose is not None and "extra_info" in allclose.parameters
    saw(
        "allclose_extra_info",
        "yes" if extra_info else "no",
        TEST_UTILS,
        _line(test_utils, "assert_verbose_allclose"),
    )
    template = tree.read(PULL_REQUEST_TEMPLATE) or ""
    saw(
        "pull_request_template",
        "sections: " + (", ".join(re.findall(r"^##\s+(.+?)\s*$", template, re.MULTILINE)) or "none"),
        PULL_REQUEST_TEMPLATE,
    )
    saw("existing_ops", f"ops: {len(ops)}", f"{source_root}/ops")
    return Conventions(
        package=package,
        source_root=source_root,
        version=version,
        ops_import=ops_import,
        exports_wrappers=exports_wrappers,
        transformers_init=transformers_init,
        calculate_settings=helpers["calculate_settings"],
        ensure_contiguous=helpers["ensure_contiguous"],
        device_context=helpers["device_context"],
        extra_repr=_extra_repr(tree, source_root, saw),
        ruff_requirement=ruff[0],
        line_length=int(line_length),
        benchmark_api=api,
        bytes_per_token_sweep=bytes_per_token,
        test_helpers=test_helpers,
        allclose_extra_info=extra_info,
        infer_device_module=_infer_device(tree, source_root, package, saw),
        transformers_requirement=transformers[0],
        pull_request_template=template,
        existing_ops=ops,
        evidence=evidence,
    )


def _source_root(tree: Tree) -> str:
    candidates = [*tree.files("src/*/ops/*.py"), *tree.files("*/ops/*.py")]
    for path in candidates:
        if is_jit(tree.read(path) or ""):
            return path.rsplit("/ops/", 1)[0]
    raise NotAKernelLibrary(
        "This repository doesn't look like a Triton kernel library: no @triton.jit kernel under src/<package>/ops/ or <package>/ops/."
    )


def _pyproject(tree: Tree) -> dict[str, Any]:
    text = tree.read("pyproject.toml")
    if text is None:
        raise NotAKernelLibrary(
            "This repository has Triton kernels but no pyproject.toml, so its version and lint rules are unknown."
        )
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise NotAKernelLibrary(f"This repository's pyproject.toml is not valid TOML: {error}.") from error


def _where(tree: Tree, path: str, pattern: str) -> tuple[str, int | None]:
    for number, line in enumerate((tree.read(path) or "").splitlines(), start=1):
        if re.search(pattern, line):
            return path, number
    return path, None


def _requirement(tree: Tree, name: str) -> tuple[str | None, str, int | None]:
    """A requirement as written in setup.py or pyproject.toml, e.g. "ruff>=0.12.0,<0.16.0", and where."""
    pattern = re.compile(rf"""["']({name}\s*(?:[<>=!~][^"']*)?)["']""")
    for path in ("setup.py", "pyproject.toml"):
        for number, line in enumerate((tree.read(path) or "").splitlines(), start=1):
            if found := pattern.search(line):
                return found[1].replace(" ", ""), path, number
    return None, "setup.py", None


def _line(found: Outline, name: str) -> int | None:
    definition = found.functions.get(name) or found.classes.get(name)
    return definition.line if definition else None


def _ops_exports(tree: Tree, source_root: str, package: str, saw: Any) -> tuple[Any, bool]:
    path = f"{source_root}/ops/__init__.py"
    exported = [
        found
        for found in outline(tree.read(path)).imports
        if found.module.startswith(f"{package}.ops.") and not found.nested
    ]
    functions = [found for found in exported if found.name.endswith("Function")]
    if not functions:
        saw("ops_import", "from the op's own module: the ops package exports nothing", path)
        saw("exports_wrappers", "no", path)
        return "submodule", False
    wrappers = [found for found in exported if found.name.endswith(("_forward", "_backward"))]
    saw(
        "ops_import",
        f"from {package}.ops; Function classes exported there: {len(functions)}",
        path,
        functions[0].line,
    )
    saw(
        "exports_wrappers",
        f"forward and backward wrappers exported: {len(wrappers)}",
        path,
        wrappers[0].line if wrappers else None,
    )
    return "package", bool(wrappers)


def _transformers_init(tree: Tree, source_root: str, saw: Any) -> Any:
    path = f"{source_root}/transformers/__init__.py"
    found = outline(tree.read(path))
    style = "lazy" if "__getattr__" in found.functions else "plain"
    saw("transformers_init", style, path, _line(found, "__getattr__"))
    return style


def _ops_utils(tree: Tree, source_root: str, saw: Any) -> dict[str, bool]:
    path = f"{source_root}/ops/utils.py"
    found = outline(tree.read(path))
    for name in ("calculate_settings", "ensure_contiguous", "device_context"):
        saw(name, "defined" if name in found.functions else "not there", path, _line(found, name))
    return {
        name: name in found.functions
        for name in ("calculate_settings", "ensure_contiguous", "device_context")
    }


def _benchmark_api(tree: Tree, saw: Any) -> tuple[BenchmarkApi, bool]:
    found = outline(tree.read(BENCHMARK_UTILS))
    models = outline(tree.read(BENCHMARK_MODELS))
    sweep = models.functions.get("compute_seq_len_sweep_config")
    if "build_speed_bench_fn" in found.functions and "build_token_length_sweep" in models.functions:
        saw("benchmark_api", "builders", BENCHMARK_UTILS, _line(found, "build_speed_bench_fn"))
        return "builders", False
    if "run_speed_benchmark" in found.functions and sweep:
        saw("benchmark_api", "sweeps", BENCHMARK_UTILS, _line(found, "run_speed_benchmark"))
        return "sweeps", "kernel_bytes_per_token" in sweep.parameters
    saw("benchmark_api", "functions", BENCHMARK_UTILS, _line(found, "_test_memory"))
    return "functions", False


def _extra_repr(tree: Tree, source_root: str, saw: Any) -> bool:
    having = []
    for path in tree.files(f"{source_root}/transformers/*.py"):
        found = outline(tree.read(path))
        having += [(path, cls.line) for cls in found.classes.values() if "extra_repr" in cls.methods]
    saw(
        "extra_repr",
        f"modules that define it: {len(having)}",
        *(having[0] if having else (f"{source_root}/transformers", None)),
    )
    return bool(having)


def _infer_device(tree: Tree, source_root: str, package: str, saw: Any) -> str:
    path = f"{source_root}/utils.py"
    found = outline(tree.read(path))
    if "infer_device" not in found.functions:
        raise NotAKernelLibrary(
            f"This repository's {path} doesn't define infer_device, which its tests and benchmarks would need."
        )
    saw("infer_device_module", f"{package}.utils", path, _line(found, "infer_device"))
    return f"{package}.utils"
