"""Where the library makes a tensor, it says on which device: else it is on the default one, its operands elsewhere."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from types import FunctionType

import autojit
from autojit import signal
from autojit.dispatch.declared import DECLARED
from tests.house.sources import PACKAGE, SOURCES, nodes_of

POSITIONS = {"as_tensor": 3}  # arguments without a name, the device among them
HOMES = {  # where a factory can be imported from
    "autojit",
    "autojit.functions",
    "autojit.functions.derived",
    "autojit.functions.factories",
    "autojit.functions.integers",
    "autojit.functions.random",
    "autojit.signal.windows",
    "autojit.sparse",
    "autojit.sparse.compressed",
    "autojit.sparse.construct",
}
SET_APART = (
    "functions/factories.py",
    "functions/random.py",
    "demo/",
    "testing/",
)  # factories, programs, tests' numbers
ON_THE_DEFAULT_DEVICE = {  # calls that say nothing of a device, by file: how many, and why
    "compat/stochastic.py": 1,  # where the means are
    "control_flow/nests.py": 1,  # a number of the user's
    "fft/sample_points.py": 3,  # moved to where the user asks for them
    "functions/derived.py": 1,  # the blocks of no matrix
    "functions/legacy.py": 6,  # what the user makes
    "interop/numpy_creation.py": 7,  # what the user makes
    "interop/numpy_elements.py": 1,  # a condition that is an array of the user's
    "interop/scipy_objective.py": 2,  # SciPy's array, and the number that the user's function gave
    "interop/ufunc_calls.py": 2,  # the user's arrays and numbers
    "io/torch_names.py": 2,  # where their values are
    "nn/parameter.py": 2,  # an empty tensor for what was not given
    "nn/uneven_inputs.py": 2,  # what ranks tell each other
    "nn/utils/clip_grad.py": 1,  # the norm of nothing
    "utils/data/collate.py": 6,  # what is made of the user's numbers and arrays
    "utils/data/sampler.py": 1,  # the user's weights
}


def _takes_a_device(value: object) -> bool:
    return isinstance(value, FunctionType) and "device" in inspect.signature(value).parameters


def _factories() -> set[str]:
    """Names of public functions that make tensors without looking at the elements of others."""
    declared = {name for name, said in DECLARED.items() if said.is_factory and said.is_function}
    named = {name for name in dir(autojit) if _takes_a_device(getattr(autojit, name))}
    windows = set(signal.windows.__all__)
    others = {"tril_indices", "triu_indices"}  # take the device among their options
    return {name for name in declared | named | windows | others if not name.endswith("_like")} - {"set_default_device"}


def _names_of_factories(nodes: list[ast.AST], factories: set[str]) -> tuple[dict[str, str], set[str]]:
    """By which names a file calls factories, and by which the modules that hold them."""
    own: dict[str, str] = {}
    modules: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and str(node.module) in HOMES:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if whole in HOMES:
                    modules.add(alias.asname or alias.name)
                elif alias.name in factories:
                    own[alias.asname or alias.name] = alias.name
        elif isinstance(node, ast.Import):
            modules.update(alias.asname or alias.name for alias in node.names if alias.name in HOMES)
    return own, modules


def calls_without_a_device(nodes: list[ast.AST], factories: set[str]) -> Iterator[str]:
    """The calls of factories in a source that leave the device open."""
    own, modules = _names_of_factories(nodes, factories)
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        name = None
        if isinstance(function, ast.Name):
            name = own.get(function.id)
        elif isinstance(function, ast.Attribute) and function.attr in factories:
            name = function.attr if ast.unparse(function.value) in modules else None
        if name is None or len(node.args) >= POSITIONS.get(name, 99):
            continue
        if not any(keyword.arg in ("device", None) for keyword in node.keywords):
            yield f"{node.lineno}: {ast.unparse(node)}"


def test_factories_are_found() -> None:
    assert _factories() >= {"zeros", "eye", "arange", "tensor", "as_tensor", "randn", "hann_window", "tril_indices"}


def test_a_call_that_leaves_the_device_open_is_found() -> None:
    text = """
import autojit as aj
from autojit.functions import factories
from autojit.functions.factories import eye as unit
from autojit.ops import zeros
a = aj.rand(2)
b = factories.ones(2, dtype=aj.float64)
c = unit(3)
d = zeros(x, (2,))
e = aj.rand(2, device=x.device) + unit(2, **options) + x.new_zeros(2)
"""
    found = [line.partition(": ")[2] for line in calls_without_a_device(list(ast.walk(ast.parse(text))), _factories())]
    assert found == ["aj.rand(2)", "factories.ones(2, dtype=aj.float64)", "unit(3)"]


def test_what_the_library_makes_says_on_which_device() -> None:
    factories = _factories()
    found: dict[str, list[str]] = {}
    for path in SOURCES:
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(SET_APART):
            calls = list(calls_without_a_device(nodes_of(path), factories))
            found |= {name: calls} if calls else {}
    assert {name: len(calls) for name, calls in found.items()} == ON_THE_DEFAULT_DEVICE, found
