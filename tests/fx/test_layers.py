"""Every layer of ``nn``, traced as a part and as the whole: results, gradients and compiled steps are the layer's."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit import fx, nn
from tests.fx.layers import LAYERS

OPEN = {"RNN", "LSTM", "GRU", "LSTMCell", "Transformer"} | {
    f"{kind}{d}d" for kind in ("ConvTranspose", "BatchNorm", "InstanceNorm", "CircularPad") for d in (1, 2, 3)
}
"""Whose own forward decides by what it is given: as the whole they are refused, as in torch."""


class Holder(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *given: aj.Tensor) -> Any:
        return self.layer(*given)


def results(program: Callable[..., Any], given: tuple[Any, ...]) -> list[Any]:
    aj.manual_seed(1)
    return [leaf for leaf in aj.utils._pytree.tree_leaves(program(*given)) if isinstance(leaf, aj.Tensor)]


def gradients(model: nn.Module, given: tuple[Any, ...]) -> list[aj.Tensor]:
    leaves = [x.detach().requires_grad_() if x.is_floating_point() else x for x in given]
    found = [y.square().sum() for y in results(model, tuple(leaves)) if y.requires_grad]
    wanted = [x for x in leaves if x.requires_grad] + [p for _, p in sorted(model.named_parameters())]
    return [g for g in aj.autograd.grad(sum(found), wanted, allow_unused=True) if g is not None]


def check(model: nn.Module, traced: fx.GraphModule, given: tuple[Any, ...]) -> None:
    traced.graph.lint()
    assert {name for name, _ in traced.named_parameters()} == {name for name, _ in model.named_parameters()}
    ways = (traced, pickle.loads(pickle.dumps(traced)), copy.deepcopy(traced), fx.Transformer(traced).transform())
    for way in (*ways, fx.Interpreter(traced).run):
        aj.testing.assert_close(results(way, given), results(copy.deepcopy(model), given))
    aj.testing.assert_close(gradients(traced, given), gradients(model, given))


@pytest.mark.parametrize("train", [False, True], ids=["evaluated", "trained"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_traced_layer_is_the_layer(name: str, train: bool) -> None:
    made, arguments = LAYERS[name]
    aj.manual_seed(0)
    layer = made().train(train)
    given = arguments()
    check(Holder(layer), fx.symbolic_trace(Holder(layer), (fx.PH,) * len(given)), given)
    if name in OPEN:
        with pytest.raises(fx.proxy.TraceError):
            fx.symbolic_trace(layer)
    else:
        check(layer, fx.symbolic_trace(layer), given)


@pytest.mark.parametrize(
    "name", ["Conv2d", "BatchNorm2d", "LSTM", "MultiheadAttention", "CrossEntropyLoss", "MaxPool2d"]
)
def test_a_traced_layer_compiles_to_the_same(name: str) -> None:
    made, arguments = LAYERS[name]
    aj.manual_seed(0)
    model = Holder(made()).eval()
    given = arguments()
    step = aj.jit(fx.symbolic_trace(model, (fx.PH,) * len(given)))
    aj.testing.assert_close(results(step, given), results(model, given))
