"""Fast paths of eager dispatch are held to ``Op.eager``, which is NumPy at every size."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import autojit as aj
import autojit.nn.functional as F
from autojit.dispatch import fast_paths, kernels
from autojit.dispatch.fast_paths import TABLE
from autojit.ir.op import Op
from autojit.tensor.state import reference_only, state

MANY = 1 << 16  # elements: beyond every limit of the table


@pytest.fixture
def no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(op: Op, arrays: Any) -> Any:
        raise AssertionError(f"{op} asked for a kernel")

    monkeypatch.setattr(kernels, "evaluate_by_kernel", refuse)
    monkeypatch.setattr(fast_paths, "evaluate_by_kernel", refuse)


def test_every_entry_of_the_table_is_an_op() -> None:
    assert set(TABLE) <= set(Op.registry.load())
    assert {name for name, op in Op.registry.load().items() if op.fast is not None} == set(TABLE)


PROGRAMS = {
    "sigmoid": lambda x: x.sigmoid(), "sum": lambda x: x.sum(), "softmax": lambda x: x.reshape(64, -1).softmax(1),
    "gelu": lambda x: aj.nn.functional.gelu(x), "std": lambda x: x.std(), "sort": lambda x: x.sort()[0],
    "remainder": lambda x: x % 0.3, "cumsum": lambda x: x.cumsum(0), "where": lambda x: aj.where(x > 0, x, 1.0),
    "index_add": lambda x: aj.zeros(8).index_add(0, aj.arange(len(x)) % 8, x),
    "topk": lambda x: x.reshape(-1, 8).topk(5)[0],
    "conv": lambda x: aj.nn.functional.conv2d(x.reshape(1, 16, 64, -1), x[: 16 * 16 * 9].reshape(16, 16, 3, 3)),
    "layer_norm": lambda x: aj.nn.functional.layer_norm(x.reshape(64, -1), (len(x) // 64,)),
    "attention": lambda x: F.scaled_dot_product_attention(*[x.reshape(4, 4, -1, 16)] * 3),
    "attention with dropout": lambda x: F.scaled_dot_product_attention(*[x.reshape(64, -1, 64)] * 3, dropout_p=0.2),
    "mse": lambda x: aj.nn.functional.mse_loss(x, x * 2), "flip": lambda x: x.flip(0),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_reference_asks_for_no_kernel_forward_or_backward(name: str, no_kernels: None) -> None:
    x = aj.tensor(np.random.default_rng(1).normal(size=MANY).astype(np.float32), requires_grad=True)
    with reference_only():
        y = PROGRAMS[name](x)
        if y.requires_grad:
            y.sum().backward()
    with pytest.raises(AssertionError, match="asked for a kernel"):
        y = PROGRAMS[name](x)


@pytest.mark.parametrize("draw", [aj.rand, aj.randn, lambda n: aj.randint(0, 1000, (n,)), aj.randperm])
def test_the_reference_draws_the_numbers_of_the_kernels(draw: Any) -> None:
    aj.manual_seed(3)
    fast = draw(MANY)
    aj.manual_seed(3)
    with reference_only():
        slow = draw(MANY)
    np.testing.assert_allclose(slow.numpy(), fast.numpy(), rtol=4e-6, atol=1e-6)


def test_the_switch_is_a_threads_own_and_is_put_back_by_errors() -> None:
    seen = []
    with pytest.raises(ZeroDivisionError), reference_only():
        thread = threading.Thread(target=lambda: seen.append(state.reference))
        thread.start()
        thread.join()
        raise ZeroDivisionError
    assert seen == [False]
    assert not state.reference


@pytest.mark.parametrize("name", ["erf", "erfc", "erfinv", "lgamma", "digamma", "erfcx", "ndtri"])
def test_no_layout_is_left_to_a_series_of_numpy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is transposed or spread is copied for the kernel; the result is in memory as NumPy's would be."""
    op: Any = Op.registry[name]()
    x = np.random.default_rng(2).uniform(0.1, 0.9, (8, 32, 32))
    layouts = [x.transpose(1, 0, 2), np.repeat(x, 2, 2)[..., ::2], x[::-1], np.broadcast_to(x[:1], x.shape)]
    expected = [op.eager(given) for given in layouts]

    def refuse(*arrays: Any) -> Any:
        raise AssertionError("NumPy was asked")

    monkeypatch.setattr(type(op), "eager", refuse)
    for given, wanted in zip(layouts, expected, strict=True):
        found = op.fast(given)
        np.testing.assert_allclose(found, wanted, rtol=1e-13)
        assert found.strides == wanted.strides
