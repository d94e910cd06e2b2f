"""Passes over graphs: what is split, replaced, fused and checked computes what it computed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit import fx, nn
from autojit.functions import overridable
from autojit.fx.experimental.optimization import fuse
from autojit.fx.passes.graph_drawer import FxGraphDrawer
from autojit.fx.passes.infra.pass_base import PassResult
from autojit.fx.passes.infra.pass_manager import PassManager, pass_result_wrapper, this_before_that_pass_constraint
from autojit.fx.passes.shape_prop import ShapeProp
from autojit.fx.passes.split_module import split_module
from autojit.fx.passes.utils.matcher_utils import SubgraphMatcher
from autojit.fx.subgraph_rewriter import replace_pattern_with_filters


class Branches(nn.Module):
    """Parameters, submodules and constants that several parts read."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.inner = nn.Parameter(aj.rand(3)), nn.Sequential(nn.Linear(3, 3), nn.Tanh())

    def forward(self, x: aj.Tensor, by: float = 2.0) -> tuple[aj.Tensor, dict[str, aj.Tensor]]:
        a = self.inner(x) * self.scale
        b = aj.relu(a) + x * by
        return b * self.scale, {"a": a, "more": b.sum()}


def leaves(program: object, x: aj.Tensor) -> list[aj.Tensor]:
    assert callable(program)
    return aj.utils._pytree.tree_leaves(program(x))


@pytest.mark.parametrize("parts", [1, 2, 3, 9])
@pytest.mark.parametrize("ordered", [False, True])
def test_the_parts_of_a_graph_compute_what_it_computes(parts: int, ordered: bool) -> None:
    aj.manual_seed(0)
    model, x, paths = Branches(), aj.randn(2, 3), {}
    traced = fx.symbolic_trace(model)
    places = {node: place for place, node in enumerate(traced.graph.nodes)}
    split = split_module(traced, model, lambda node: places[node] * parts // 10, paths, keep_original_order=ordered)
    split.graph.lint()
    aj.testing.assert_close(leaves(split, x), leaves(model, x))
    assert {id(p) for p in split.parameters()} == {id(p) for p in model.parameters()}
    assert set(paths.values()) == {"inner.0", "inner.1"}


def test_parts_that_need_each_other_are_refused() -> None:
    traced = fx.symbolic_trace(lambda x: aj.sin(aj.cos(aj.sin(x))))
    with pytest.raises(RuntimeError, match="cycle exists between partitions!"):
        split_module(traced, traced, lambda node: str(node.target is aj.cos))


def test_patterns_of_several_results_are_replaced() -> None:
    def program(x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
        z = x - y
        return aj.sigmoid(z) + aj.relu(z) * aj.linalg.norm(aj.clamp(x, min=0.5))

    def pattern(a: aj.Tensor, b: aj.Tensor) -> tuple[aj.Tensor, ...]:
        c = a - b
        return aj.sigmoid(c), aj.relu(c)

    traced, x, y = fx.symbolic_trace(program), aj.randn(3), aj.randn(3)
    (found,) = fx.replace_pattern(traced, pattern, lambda a, b: (aj.sin(b), aj.cos(a)))
    traced.graph.lint()
    aj.testing.assert_close(traced(x, y), aj.sin(y) + aj.cos(x) * aj.linalg.norm(aj.clamp(x, min=0.5)))
    assert {node.name for node in found.nodes_map} >= {"a", "b", "sub"}
    with pytest.raises(RuntimeError, match="the pattern has 1 arguments, and the replacement 2"):
        fx.replace_pattern(traced, lambda a: aj.sin(a), lambda a, b: a + b)


def test_filters_literals_and_callbacks_choose_what_is_replaced() -> None:
    traced = fx.symbolic_trace(lambda x: aj.relu(x + 1) * aj.relu(x + 2) * aj.relu(x + 3))
    pattern = fx.symbolic_trace(lambda x: aj.relu(x + 1)).graph
    assert [len(SubgraphMatcher(pattern, ignore_literals=free).match(traced.graph)) for free in (False, True)] == [1, 3]
    replaced = replace_pattern_with_filters(
        traced,
        pattern,
        match_filters=[lambda match, graph, sought: any(node.args[-1] != 2 for node in match.returning_nodes[0].args)],
        ignore_literals=True,
        replacement_callback=lambda match, graph, sought: fx.symbolic_trace(lambda x: x - 1).graph,
    )
    assert [[node.name for node in found.replacements] for found in replaced] == [["sub"], ["sub_1"]]
    assert traced(aj.tensor(5.0)) == 4 * 7 * 4


def test_modules_of_replacements_come_along() -> None:
    traced = fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.Sigmoid()))
    fx.replace_pattern(traced, lambda x: x, lambda x: x)
    (norm,) = traced.graph.find_nodes(op="call_module", target="1")
    pattern = fx.Graph()
    pattern.output(pattern.call_module("1", (pattern.placeholder("x"),)))
    fx.replace_pattern(traced, pattern, fx.symbolic_trace(nn.Sequential(nn.Tanh())))
    traced.graph.lint()
    assert norm not in list(traced.graph.nodes)


@pytest.mark.parametrize("shared", [False, True])
def test_fused_norms_compute_the_same(shared: bool) -> None:
    aj.manual_seed(0)
    conv = nn.Conv2d(2, 2, 3, padding=1)
    model = nn.Sequential(conv, nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3), nn.BatchNorm1d(3))
    if shared:
        model = nn.Sequential(conv, nn.BatchNorm2d(2), conv, nn.BatchNorm2d(2))
    x = aj.randn(5, 2, 4, 4)
    model(x)
    model.eval()
    fused = fuse(model)
    norms = [layer for layer in fused.modules() if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d)]
    assert len(norms) == (2 if shared else 0) and not any(isinstance(m, fx.GraphModule) for m in model.modules())
    aj.testing.assert_close(fused(x), model(x), rtol=1e-4, atol=1e-5)


def test_passes_run_in_an_order_that_keeps_the_constraints() -> None:
    ran: list[str] = []

    def named(name: str) -> object:
        def one(module: fx.GraphModule) -> PassResult:
            ran.append(name)
            return PassResult(module, len(ran) < 4)

        return one

    a, b = named("a"), named("b")
    manager = PassManager([b, a], [this_before_that_pass_constraint(a, b)], steps=5)
    with pytest.raises(RuntimeError, match="pass schedule constraint violated"):
        manager.validate_constraints()
    assert manager(fx.symbolic_trace(lambda x: x + 1)).modified and ran == ["a", "b", "a", "b", "a", "b"]
    manager.add_constraint(this_before_that_pass_constraint(b, a))
    with pytest.raises(RuntimeError, match="Circular dependency"):
        manager.solve_constraints()
    with pytest.raises(TypeError, match="should be type PassResult"):
        PassManager([lambda module: None])(fx.symbolic_trace(lambda x: x))
    failing = PassManager([pass_result_wrapper(lambda module: 1 / 0)])
    with pytest.raises(ZeroDivisionError) as told:
        failing(fx.symbolic_trace(lambda x: x))
    assert "running the '<lambda>' pass" in told.value.__notes__[0]


def test_pictures_say_what_nodes_are() -> None:
    traced = fx.symbolic_trace(nn.Sequential(nn.Linear(3, 2), nn.ReLU()))
    ShapeProp(traced).propagate(aj.zeros(4, 3))
    drawer = FxGraphDrawer(traced, "model")
    assert [drawer.label(node) for node in traced.graph.nodes][1] == (
        "{name=%_0|op_code=call_module|Linear(in_features=3, out_features=2, bias=True)|weight: (2, 3)|bias: (2,)|"
        "num_users=1|dtype=autojit.float32, shape=(4, 2)}"
    )
    if "pydot" not in sys.modules:
        with pytest.raises(RuntimeError, match="requires the pydot package"):
            drawer.get_dot_graph()


def test_a_call_of_a_public_function_is_one_node_from_the_first() -> None:
    overridable.uninstall()  # as in a new process
    functions = (aj.equal, aj.allclose, aj.isclose, aj.broadcast_tensors, aj.linalg.norm, aj.nn.functional.mse_loss)
    for function in functions:
        graph = fx.Tracer().trace(calling(function))
        assert [node.target for node in graph.nodes][2:-1] == [function]
        overridable.uninstall()


def calling(function: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    return lambda x, y: function(x, y)


def test_submodules_are_in_the_same_order_in_every_process() -> None:
    program = (
        "import autojit as aj; m = aj.nn.Sequential(*[aj.nn.Linear(2, 2) for _ in range(9)]);"
        "print([name for name, _ in aj.fx.symbolic_trace(m).named_parameters()])"
    )
    said = {
        subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, env=_seeded(seed)).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1


def _seeded(seed: str) -> dict[str, str]:
    return {**os.environ, "PYTHONHASHSEED": seed}
