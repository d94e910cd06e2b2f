"""What a node shows of the function call it stands for: ``grad_fn._saved_<name>``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
import autojit.nn.functional as F


def leaf(*shape: int) -> aj.Tensor:
    return aj.ones(*shape, requires_grad=True)


CASES: list[tuple[Callable[[], aj.Tensor], str, dict[str, Any]]] = [
    (lambda: aj.pdist(leaf(2, 2), p=1), "PdistBackward0", {"p": 1.0}),
    (lambda: aj.cdist(leaf(2, 2), leaf(2, 2), p=3), "CdistBackward0", {"p": 3.0}),
    (lambda: aj.logit(leaf(2), 1.0), "LogitBackward0", {"eps": 1.0}),
    (lambda: aj.logit(leaf(2)), "LogitBackward0", {"eps": None}),
    (lambda: aj.linalg.qr(leaf(1, 1), mode="reduced")[0], "LinalgQrBackward0", {"mode": "reduced"}),
    (lambda: aj.div(leaf(1), 2.0, rounding_mode="trunc"), "DivBackward2", {"rounding_mode": "trunc"}),
    (lambda: aj.div(leaf(1), 2.0, rounding_mode=None), "DivBackward0", {"rounding_mode": None}),
    (lambda: leaf(2, 2).as_strided((3,), (1,), 1), "AsStridedBackward0", {"size": (3,), "storage_offset": 1}),
    (lambda: leaf(2, 2).as_strided((3,), (1,)), "AsStridedBackward0", {"storage_offset": None}),
    (
        lambda: F.interpolate(leaf(1, 1, 2), 4, mode="linear"),
        "UpsampleLinear1DBackward0",
        {"output_size": (4,), "align_corners": False, "scale_factors": None},
    ),
    (
        lambda: F.interpolate(leaf(1, 1, 2), scale_factor=0.5, mode="linear"),
        "UpsampleLinear1DBackward0",
        {"output_size": None, "scale_factors": (0.5,)},
    ),
]


@pytest.mark.parametrize(("call", "name", "arguments"), CASES)
def test_a_node_shows_the_arguments_of_the_call(
    call: Callable[[], aj.Tensor], name: str, arguments: dict[str, Any]
) -> None:
    node: Any = call().grad_fn
    assert node.name() == name
    for argument, value in arguments.items():
        assert getattr(node, f"_saved_{argument}") == value
        assert f"_saved_{argument}" in dir(node)


@pytest.mark.parametrize("value", [1 + 0j, 1.0, 1, False])
def test_the_threshold_keeps_its_python_type(value: Any) -> None:
    node: Any = aj.threshold(leaf(5), threshold=value, value=value).grad_fn
    assert type(node._saved_threshold) is type(value)
    assert aj.equal(F.threshold(aj.arange(3.0), value, value), aj.arange(3.0).clamp(min=float(complex(value).real)))


def test_a_threshold_with_an_imaginary_part_is_refused() -> None:
    with pytest.raises(RuntimeError, match="imaginary"):
        F.threshold(aj.ones(2), 1j, 0.0)


def test_indexing_shows_its_index_tensors_which_take_hooks() -> None:
    index = aj.tensor([0, 1])
    node: Any = leaf(2, 3)[:, index].grad_fn
    assert node.name() == "IndexBackward0"
    assert node._saved_indices[0] is None
    assert aj.equal(node._saved_indices[1], index)
    assert node._saved_self_sym_sizes == (2, 3)
    node._raw_saved_indices[1].register_hooks(lambda t: t, lambda t: t)
    with pytest.raises(RuntimeError, match="None is forbidden"):
        node._raw_saved_indices[0].register_hooks(lambda t: t, lambda t: t)


def test_hooks_on_a_saved_index_take_part_in_backward() -> None:
    x = leaf(3)
    y = x[aj.tensor([0, 1])]
    y.grad_fn._raw_saved_indices[0].register_hooks(lambda t: t, lambda t: t + 1)  # type: ignore[union-attr]
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 1.0, 1.0]


def test_a_saved_weight_is_shown_until_the_graph_is_freed() -> None:
    scores, target = aj.randn(3, 5, requires_grad=True), aj.tensor([1, 0, 4])
    bare: Any = F.nll_loss(scores, target)
    assert bare.grad_fn._saved_weight is None
    loss: Any = F.nll_loss(scores, target, weight=aj.ones(5))
    assert aj.equal(loss.grad_fn._saved_weight, aj.ones(5))
    loss.backward()
    with pytest.raises(RuntimeError, match="after they have already been freed"):
        loss.grad_fn._saved_weight
