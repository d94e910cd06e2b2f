"""Symbolic graphs: the graph of a module computes what the module computes, however it is run, changed and copied."""

from __future__ import annotations

import copy
import dataclasses
import math
import operator
import pickle
from collections.abc import Callable
from math import sqrt
from typing import Any

import pytest

import autojit as aj
from autojit import fx, nn
from autojit.fx.graph_module import _USER_PRESERVED_ATTRIBUTES_KEY, _CodeOnlyModule, _copy_attr
from autojit.nn import functional as F


class Mixed(nn.Module):
    """Submodules, parameters, buffers, constants, operators, methods, attributes and structures."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh())])
        self.scale = nn.Parameter(aj.ones(4))
        self.register_buffer("shift", aj.arange(4.0))

    def forward(self, x: aj.Tensor, by: float = 2.0) -> dict[str, Any]:
        for layer in self.layers:
            x = x + layer(x) * by
        a, b = x.chunk(2, dim=1)
        rows, _ = x.shape
        y = aj.cat([a, b], 1).view(rows, -1)[..., :4] * self.scale - self.shift
        y = F.dropout(y, 0.5, self.training)
        z = aj.einsum("ij,kj->ik", y, x) / math.sqrt(2) + aj.ones(1)
        return {"z": -z, "more": [y.max(dim=1).values, (z > 0, float("inf"))], "as": y.T.to(aj.float64)}


class Convolutional(nn.Module):
    """In-place functions, batch norm, augmented assignment."""

    def __init__(self) -> None:
        super().__init__()
        self.c, self.bn = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)

    def forward(self, x: aj.Tensor) -> aj.Tensor:
        y = F.relu(self.bn(self.c(x.unsqueeze(0).unsqueeze(0))), inplace=True)
        y += 1
        return 3 - y.mean([2, 3])


MODELS: dict[str, Callable[[], nn.Module]] = {"mixed": Mixed, "convolutional": Convolutional}
WAYS: dict[str, Callable[[fx.GraphModule], Callable[..., Any]]] = {
    "graph module": lambda traced: traced,
    "interpreter": lambda traced: fx.Interpreter(traced).run,
    "transformer": lambda traced: fx.Transformer(traced).transform(),
    "deep copy": copy.deepcopy,
    "shallow copy": copy.copy,
    "pickle": lambda traced: pickle.loads(pickle.dumps(traced)),
    "traced again": fx.symbolic_trace,
    "compiled": lambda traced: aj.jit(lambda x: traced(x)),
    "without what nothing reads": lambda traced: (traced.graph.eliminate_dead_code(), traced.recompile(), traced)[2],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_a_graph_computes_what_the_module_computes(name: str, way: str) -> None:
    aj.manual_seed(0)
    model, x = MODELS[name]().eval(), aj.randn(4, 4)
    traced = fx.symbolic_trace(model)
    traced.graph.lint()
    expected, found = (aj.utils._pytree.tree_flatten(run(x)) for run in (model, WAYS[way](traced)))
    assert found[1] == expected[1]
    for a, b in zip(found[0], expected[0], strict=True):
        aj.testing.assert_close(a, b)


def test_gradients_reach_the_parameters_of_the_module() -> None:
    model = Mixed().eval()
    traced = fx.symbolic_trace(model)
    assert traced.scale is model.scale and {name for name, _ in model.named_parameters()} == {
        name for name, _ in traced.named_parameters()
    }
    traced(aj.ones(2, 4))["z"].sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_leaves_and_names_are_torchs() -> None:
    nodes = [(node.op, node.name) for node in fx.symbolic_trace(Convolutional()).graph.nodes]
    assert nodes == [
        ("placeholder", "x"), ("call_method", "unsqueeze"), ("call_method", "unsqueeze_1"), ("call_module", "c"),
        ("call_module", "bn"), ("call_function", "relu"), ("call_function", "add"), ("call_method", "mean"),
        ("call_function", "sub"), ("output", "output"),
    ]  # fmt: skip


def test_what_nobody_can_know_is_refused() -> None:
    for program, words in (
        (lambda x: x if x.sum() > 0 else -x, "cannot be used as inputs to control flow"),
        (lambda x: list(x), "cannot be iterated"),
        (lambda x: len(x), "'len' is not supported"),
        (lambda x: range(x.shape[0]), "no number yet"),
    ):
        with pytest.raises(fx.proxy.TraceError, match=words):
            fx.symbolic_trace(program)
    step = fx.symbolic_trace(lambda x, flag: x + 1 if flag else x, {"flag": True})
    assert step(1, True) == 2
    with pytest.raises(AssertionError, match="specialized to have value True"):
        step(1, False)


def test_nodes_know_their_readers_through_changes() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_function(aj.add, (x, 1))
    graph.output({"k": [graph.call_method("neg", (a,)), None]})
    module = fx.GraphModule(nn.Module(), graph)
    with graph.inserting_after(a):
        b = graph.call_function(aj.relu, (a,))
    a.replace_all_uses_with(b, delete_user_cb=lambda user: user is not b)
    module.recompile()
    graph.lint()
    assert list(a.users) == [b] and module(aj.tensor([-3.0]))["k"][0].tolist() == [0]
    with pytest.raises(RuntimeError, match="still had 1 users"):
        graph.erase_node(a)
    with pytest.raises(NotImplementedError, match="does not support mutation"):
        graph.output_node().args[0]["k"].append(a)
    assert not graph.eliminate_dead_code() and len(graph.nodes) == len(list(reversed(graph.nodes))) == 5


def test_modules_are_put_in_and_taken_away() -> None:
    traced = fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    assert traced.add_submodule("new.inner", nn.Tanh()) and not traced.delete_submodule("nothing")
    (relu,) = traced.graph.find_nodes(op="call_module", target="1")
    relu.target = "new.inner"
    traced.recompile()
    traced.delete_all_unused_submodules()
    assert {name for name, _ in traced.named_modules()} == {"", "0", "new", "new.inner"}
    assert traced(aj.zeros(1, 2)).abs().max() < 1


def test_patterns_with_modules_and_structures_are_replaced() -> None:
    traced = fx.symbolic_trace(lambda x, y: aj.cat([x * y, y]).sum() + aj.cat([y, x]).sum())
    found = fx.replace_pattern(traced, lambda a, b: aj.cat([a, b]).sum(), lambda a, b: a.sum() + b.sum())
    assert len(found) == 2 and not traced.graph.find_nodes(op="call_function", target=aj.cat)
    x, y = aj.ones(3), aj.arange(3.0)
    assert traced(x, y).item() == (x * y).sum() + 2 * y.sum() + 3


@dataclasses.dataclass
class Pair:
    a: aj.Tensor
    b: aj.Tensor


class Made(metaclass=fx.ProxyableClassMeta):
    def __init__(self, a: Any, b: Any) -> None:
        self.a, self.b = a, b

    def total(self) -> Any:
        return self.a + self.b


@fx.wrap
def decided(x: aj.Tensor) -> aj.Tensor:
    return x if x.sum() > 0 else -x


@pytest.mark.parametrize("again", [False, True], ids=["traced", "traced again"])
def test_results_named_like_what_is_called_are_its_results(again: bool) -> None:
    for program in (lambda x: decided(decided(x)), lambda x: sqrt(x.abs()) + x, lambda x: Made(x, x + 1).total()):
        traced = fx.symbolic_trace(program)
        traced = fx.symbolic_trace(traced) if again else traced
        for way in WAYS.values():
            x = aj.tensor(4.0)
            if way is not WAYS["compiled"]:
                assert way(traced)(x) == program(x)


@pytest.mark.parametrize(
    "given",
    [[fx.PH, fx.PH], (fx.PH, 2.0), {"a": fx.PH, "b": {"c": [fx.PH], "d": 3}}, Pair(fx.PH, fx.PH), {}, [None, fx.PH]],
    ids=repr,
)
def test_arguments_that_are_structures_are_taken_apart(given: Any) -> None:
    def program(parts: Any, by: float = 1.0) -> Any:
        found = [part for part in aj.utils._pytree.tree_leaves(parts) if part is not None]
        return {"sum": sum(found) * by, "parts": parts}

    tree = aj.utils._pytree
    values = tree.tree_map(lambda part: aj.randn(2) if part is fx.PH else part, given)
    traced = fx.symbolic_trace(program, {"parts": given})
    assert len(traced.graph.find_nodes(op="placeholder")) == len(tree.tree_leaves(given)) + 1
    expected = tree.tree_flatten(program(values, 2.0))
    for way in (traced, fx.Interpreter(traced).run, pickle.loads(pickle.dumps(traced)), copy.deepcopy(traced),
                fx.Transformer(traced).transform(), fx.symbolic_trace(traced)):  # fmt: skip
        leaves, structure = tree.tree_flatten(way(values, 2.0))
        assert structure == expected[1] and len(leaves) == len(expected[0])
        assert all(a is b or bool(aj.as_tensor(a == b).all()) for a, b in zip(leaves, expected[0], strict=True))
    if given:
        with pytest.raises((RuntimeError, AssertionError, TypeError)):
            traced([[[values]]], 2.0)


def test_what_concrete_arguments_were_is_asserted_even_after_dead_code_went() -> None:
    traced = fx.symbolic_trace(
        lambda x, by=None, flag=True: x if by is None and flag else -x, {"by": None, "flag": True}
    )
    traced.graph.eliminate_dead_code()
    traced.recompile()
    assert traced(3, None, True) == 3
    for wrong in ((None, False), (1.0, True)):
        with pytest.raises(AssertionError, match="specialized to have value"):
            traced(3, *wrong)


def test_assertions_become_nodes_if_asked() -> None:
    class Asserting(fx.Tracer):
        trace_asserts = True

    names: dict[str, Any] = {"aj": aj}  # pytest writes the assertions of tests again
    exec("def program(x):\n    assert x > 0\n    aj._assert(x < 9, 'too large')\n    return x + 1", names)
    program = names["program"]
    traced = fx.GraphModule({}, Asserting().trace(program))
    traced.graph.eliminate_dead_code()
    traced.recompile()
    assert traced(2) == 3
    for wrong in (-1, 10):
        with pytest.raises(AssertionError):
            traced(wrong)
    with pytest.raises(fx.proxy.TraceError, match="control flow"):
        fx.symbolic_trace(program)


def test_in_place_operators_write_as_python_does() -> None:
    graph = fx.Graph()
    a, b = graph.placeholder("a"), graph.placeholder("b")
    graph.call_function(operator.imul, (a, b))
    graph.output(a)
    assert fx.GraphModule({}, graph)(2, 3) == 6


def test_generators_of_code_decide_how_graphs_are_called() -> None:
    class Stacked(fx.CodeGen):
        def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
            return f"\ndef forward(self, rows):\n    {', '.join(free_vars)} = unstacked(rows)"

        def process_inputs(self, *args: Any) -> Any:
            return args[0].unbind()

        def generate_output(self, output_args: Any, *, repr_fn: Callable[[Any], str] = repr) -> str:
            return f"return [{output_args!r}]"

        def process_outputs(self, outputs: Any) -> Any:
            return [outputs]

        def additional_globals(self) -> list[tuple[str, Any]]:
            return [("unstacked", aj.unbind)]

    traced = fx.symbolic_trace(lambda x, y: x - y)
    traced.graph.set_codegen(Stacked())
    traced.recompile()
    rows = aj.tensor([[3.0], [1.0]])
    for way in (traced, fx.Interpreter(traced).run, copy.deepcopy(traced), fx.Transformer(traced).transform()):
        assert [part.tolist() for part in way(rows)] == [[2.0]]


def test_nodes_without_anything_behind_them_are_warned_of() -> None:
    traced = fx.symbolic_trace(nn.Linear(2, 2))
    for make in (traced.graph.get_attr, traced.graph.call_module):
        with pytest.warns(UserWarning, match="no underlying reference in the owning GraphModule"):
            make("nothing.here")
    other = fx.Graph()
    for node in fx.symbolic_trace(lambda x: x + 1).graph.nodes:
        other.node_copy(node)
    with pytest.raises(RuntimeError, match="does not belong to this Graph"):
        other.lint()


def test_dataclasses_layouts_and_formats_are_arguments() -> None:
    traced = fx.symbolic_trace(
        lambda x: Pair(x + 1, aj.zeros_like(x, layout=aj.strided, memory_format=aj.preserve_format))
    )
    assert traced(aj.ones(2)).a.tolist() == [2, 2] and traced(aj.ones(2)).b.tolist() == [0, 0]
    assert [node.target for node in traced.graph.nodes][1:-1] == [operator.add, aj.zeros_like, Pair]


def test_what_torchvision_takes_of_graph_modules_is_there() -> None:
    made, layer = nn.Module(), nn.Sequential(nn.Linear(2, 2))
    _copy_attr(layer, made, "0.weight")
    assert made.get_parameter("0.weight") is layer[0].weight and isinstance(_USER_PRESERVED_ATTRIBUTES_KEY, str)
    assert _CodeOnlyModule(vars(layer))._modules is layer._modules
