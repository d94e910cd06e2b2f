"""No module needs, however late, a module that needs it; and there is one way to leave an import for later."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from autojit.core.lazy_modules import LazyNames
from autojit.core.ports import Ports

ROOT = Path(__file__).resolve().parents[2] / "src"
PORTS = "autojit.core.ports"  # calls that go up the house, by name: `test_six_ports_lead_upwards`
BY_NAME = {  # modules whose names are computed, and why
    "autojit.utils.tensorboard",  # tensorboard may not be installed
    "autojit.functions.public_functions",  # every package whose functions can be overridden
    "autojit.core.lazy_modules",  # the way to leave imports for later
    PORTS,
    "autojit.numba_ops.numba_compiler",  # Numba may not be installed
    "autojit.ir.op",  # ops that a text names, from the table of `ops`
    "autojit.functions.lazy_methods",  # methods
    "autojit.testing.command",  # the user's module
    "autojit.export.command",  # the same
    "autojit.compat.torch_names",  # autojit's modules under torch's names
    "autojit.compat.wanted_names",  # the same
    "autojit.testing.mutants.killers",  # of the tests
    "autojit.testing.mutants.record",  # once the planted defect is in place
    "autojit.testing.mutants.server",  # all of a folder
}


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def _modules() -> dict[str, ast.Module]:
    """The trees of all modules: of a test, not of every process that only collects."""
    return {_name(path): ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "autojit").rglob("*.py")}


RUN_AT_IMPORT = ("autojit.__main__", "autojit.demo", "autojit.testing")


@cache
def _lazy_names() -> dict[str, LazyNames]:
    modules = [name for name in _modules() if not name.startswith(RUN_AT_IMPORT)]
    found = {name: vars(importlib.import_module(name)).get("__getattr__") for name in modules}
    return {name: names for name, names in found.items() if isinstance(names, LazyNames)}


def _home(module: str, name: str) -> str:
    """The module that is imported for ``module.name``."""
    lazy = _lazy_names().get(module)
    if f"{module}.{name}" in _modules():
        return f"{module}.{name}"
    if lazy is None:
        return module
    if lazy.listed:
        return next((other for other in lazy.others if name in importlib.import_module(other).__all__), module)
    return lazy.names.get(name, module).partition(":")[0]


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but what only type checkers read."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield node
            yield from _statements(node)


def _imported(tree: ast.AST) -> Iterator[str]:
    """The modules that a module imports at any time, itself or through the names that it takes from lazy ones.

    A package is not counted as imported by its modules, which Python imports first, but by those that name it.
    """
    called = {}  # modules by the names they have here
    nodes = list(_statements(tree))
    for node in nodes:
        if isinstance(node, ast.Import):
            called |= {alias.asname or alias.name: alias.name for alias in node.names}
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            for alias in node.names:
                called[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield _home(node.module, alias.name)
    for node in nodes:
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and called.get(node.value.id) in _lazy_names()
        ):
            yield _home(called[node.value.id], node.attr)


def test_no_imports_go_in_circles() -> None:
    """``graphlib.CycleError`` names the modules of the first circle."""
    needs = {
        name: {other for other in _imported(tree) if other in _modules() and other != name}
        for name, tree in _modules().items()
    }
    assert sum(map(len, needs.values())) > 5000
    TopologicalSorter(needs).prepare()


def test_six_ports_lead_upwards() -> None:
    protocols = [
        node.name
        for node in _modules()[PORTS].body
        if isinstance(node, ast.ClassDef) and "Protocol" in map(ast.unparse, node.bases)
    ]
    assert protocols == ["Sparse", "Transforms", "Passes", "Numpy", "Export"]
    assert set(Ports.__annotations__) == {
        "sparse",
        "transforms",
        "numpy",
        "passes",
        "export",
    }  # the sixth, the trace, is in ``tensor.state``


def test_imports_are_left_for_later_in_one_way() -> None:
    """``LazyNames`` says which names a module imports when asked; a function's own imports are statements."""
    for module, tree in _modules().items():
        own = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "__getattr__"]
        assert not own or module == "autojit.autograd.forward_ad", module  # a number that depends on the thread
        called = {ast.unparse(node.func).rpartition(".")[2] for node in ast.walk(tree) if isinstance(node, ast.Call)}
        assert not called & {"import_module", "__import__"} or module in BY_NAME, module
