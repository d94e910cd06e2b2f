"""Tensors made in inference mode keep out of history; normal tensors met there stay normal."""

from __future__ import annotations

import pytest

import autojit as aj


def test_inference_tensors_keep_out_of_history() -> None:
    with aj.inference_mode():
        x = aj.ones(3)
        y = x * 2
        assert aj.ones(1, requires_grad=True).requires_grad
    assert x.is_inference()
    assert aj.is_inference(y)
    assert not aj.ones(1).is_inference()
    leaf = aj.ones(3, requires_grad=True)
    total = x + leaf
    assert total.requires_grad
    assert not total.is_inference()
    assert x.view(-1).is_inference()
    assert not x.view(-1)._is_view()
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        x * leaf
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        leaf.clone().mul_(x)
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode"):
        x.add_(1)
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode"):
        x.unsqueeze_(0)
    with pytest.raises(RuntimeError, match="Inference tensors do not track version counter"):
        _ = x._version
    with pytest.raises(RuntimeError, match="Setting requires_grad=True on inference tensor"):
        x.requires_grad_()
    with aj.inference_mode():
        x.add_(1)
    assert x.clone().add_(1).tolist() == [3.0, 3.0, 3.0]
    with aj.inference_mode():
        asked = aj.ones(2, 3, requires_grad=True)
    views = (asked.view(-1), asked[0], asked.t(), asked.unbind()[0], asked.as_strided((1,), (1,)), asked * asked)
    assert not any(v.requires_grad for v in views)
    asked.add(leaf).sum().backward()
    assert asked.grad is not None


def test_compiled_results_are_marked_as_eager_ones_are() -> None:
    @aj.jit
    def step(x: aj.Tensor) -> tuple[aj.Tensor, ...]:
        with aj.inference_mode():
            return x * 2, x.view(-1), aj.ones(2)

    plain = aj.jit(lambda x: x * 2)
    for _ in range(3):
        y, view, ones = step(aj.ones(2, requires_grad=True).clone())
        assert (y.is_inference(), view.is_inference(), ones.is_inference()) == (True, False, True)
        with aj.inference_mode():
            assert plain(aj.ones(2)).is_inference()
        with aj.no_grad():
            assert not plain(aj.ones(2)).is_inference()
    assert plain.stats()["native_calls"] > 0


@pytest.mark.parametrize("requires_grad", [True, False])
def test_normal_tensors_in_inference_mode(requires_grad: bool) -> None:
    x = aj.ones(1, 2, 3, requires_grad=requires_grad).clone()
    out = x * x
    with aj.inference_mode():
        view = x.view(-1)
        assert (view.is_inference(), view.requires_grad, view._is_view(), view.is_leaf) == (
            False, requires_grad, True, True,
        )  # fmt: skip
        x.add_(2)
        x.transpose_(0, 1)
        assert not x.is_inference()
        assert x.requires_grad == requires_grad
    if not requires_grad:
        view.add_(2)
        return
    with pytest.raises(RuntimeError, match="A view was created in inference mode and is being modified inplace"):
        view.add_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
