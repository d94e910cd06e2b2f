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
from tests.house.sources import PACKAGE, SOURCES, nodes_of, tree_of

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
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


MODULES = {_name(path): path for path in SOURCES}
RUN_AT_IMPORT = ("autojit.__main__", "autojit.demo", "autojit.testing")


@cache
def _lazy_names() -> dict[str, LazyNames]:
    modules = [name for name in MODULES if not name.startswith(RUN_AT_IMPORT)]
    found = {name: vars(importlib.import_module(name)).get("__getattr__") for name in modules}
    return {name: names for name, names in found.items() if isinstance(names, LazyNames)}


def _home(module: str, name: str) -> str:
    """The module that is imported for ``module.name``."""
    lazy = _lazy_names().get(module)
    if f"{module}.{name}" in MODULES:
        return f"{module}.{name}"
    if lazy is None:
        return module
    if lazy.listed:
        return next((other for other in lazy.others if name in importlib.import_module(other).__all__), module)
    return lazy.names.get(name, module).partition(":")[0]


def _statements(path: Path) -> list[ast.AST]:
    """All nodes of a file but what only type checkers read."""
    nodes = nodes_of(path)
    unread = {
        part
        for node in nodes
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for part in ast.walk(node)
    }
    return [node for node in nodes if node not in unread]


def _imported(path: Path) -> Iterator[str]:
    """The modules that a module imports at any time, itself or through the names that it takes from lazy ones.

    A package is not counted as imported by its modules, which Python imports first, but by those that name it.
    """
    called = {}  # modules by the names they have here
    nodes = _statements(path)
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
        name: {other for other in _imported(path) if other in MODULES and other != name}
        for name, path in MODULES.items()
    }
    assert sum(map(len, needs.values())) > 5000
    TopologicalSorter(needs).prepare()


def test_six_ports_lead_upwards() -> None:
    protocols = [
        node.name
        for node in tree_of(MODULES[PORTS]).body
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
    for module, path in MODULES.items():
        own = [node for node in tree_of(path).body if isinstance(node, ast.FunctionDef) and node.name == "__getattr__"]
        assert not own or module == "autojit.autograd.forward_ad", module  # a number that depends on the thread
        functions = [node.func for node in nodes_of(path) if isinstance(node, ast.Call)]
        called = {function.attr for function in functions if isinstance(function, ast.Attribute)}
        called |= {function.id for function in functions if isinstance(function, ast.Name)}
        assert not called & {"import_module", "__import__"} or module in BY_NAME, module
