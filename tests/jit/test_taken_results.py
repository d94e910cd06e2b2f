"""Arrays that a step takes of what it computes (``t.numpy()``, ``np.asarray(t)``) are arrays of the step.

Results, types, memory order and sharing are those of eager mode, also where the function writes to the tensor or to the
array after it was taken; calls are native where NumPy's part of the function is one that steps know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj

W = aj.tensor(np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32))
KEPT: list[Any] = []


def tensor_changed(x: aj.Tensor) -> Any:
    t = x @ W
    a = t.numpy()
    t.add_(1)
    return a


def array_changed(x: aj.Tensor) -> Any:
    t = x @ W
    a = t.numpy()
    a[0] = 5
    return t


def both(x: aj.Tensor) -> Any:
    t = x @ W
    return t, t.numpy()


def requires_grad(x: aj.Tensor) -> Any:
    w = W.clone().requires_grad_()
    try:
        return (x @ w).numpy()
    except RuntimeError:
        return (x @ w).detach().numpy()


def kept(x: aj.Tensor) -> Any:
    KEPT.append((x @ W).numpy())
    return KEPT.pop().sum()


def decides(x: aj.Tensor) -> Any:
    return "high" if (x @ W).numpy().max() > 2 else "low"


NATIVE: dict[str, Callable[[aj.Tensor], Any]] = {
    "numpy": lambda x: (x @ W).numpy(),
    "detached": lambda x: (x @ W).softmax(-1).detach().cpu().numpy(),
    "asarray": lambda x: np.asarray(x @ W),
    "array": lambda x: np.array(x @ W),
    "mean": lambda x: (x @ W).numpy().mean(),
    "scalar": lambda x: float(x.sum().numpy()),
    "ints": lambda x: [int(v) for v in (x @ W).argmax(1).numpy()],
    "accuracy": lambda x: ((x @ W).argmax(1).numpy() == 1).mean(),
    "nested": lambda x: {"p": (x @ W).exp().numpy(), "t": x.sum()},
    "stacked": lambda x: np.stack([(x @ W).numpy(), (x @ W * 2).numpy()]),
    "joined": lambda x: np.concatenate([(x @ W).numpy(), np.ones((1, 3), np.float32)]),
    "tensor changed": tensor_changed,
    "both": both,
    "requires grad": requires_grad,
    "decides": decides,
}
OTHERS: dict[str, Callable[[aj.Tensor], Any]] = {
    "array changed": array_changed,
    "kept": kept,
    "masked": lambda x: (x @ W).numpy()[(x @ W).numpy() > 0.5],
    "forced": lambda x: (x @ W).numpy(force=True),
    "transposed": lambda x: (x @ W).T.numpy(),
    "part": lambda x: (x @ W)[1:].numpy(),
    "argument": lambda x: x.numpy(),
    "state": lambda x: W.numpy() + x.sum().item(),
    "sorted": lambda x: sorted((x @ W).numpy().ravel().tolist()),
}


def _same(found: Any, wanted: Any) -> None:
    assert type(found) is type(wanted)
    if isinstance(wanted, tuple | list):
        for a, b in zip(found, wanted, strict=True):
            _same(a, b)
    elif isinstance(wanted, dict):
        _same(list(found.items()), list(wanted.items()))
    elif isinstance(wanted, np.ndarray | np.generic):
        assert (found.dtype, found.shape, found.strides) == (wanted.dtype, wanted.shape, wanted.strides)
        assert found.flags.writeable == wanted.flags.writeable
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    elif isinstance(wanted, aj.Tensor):
        np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), rtol=1e-4, atol=1e-5)
    else:
        assert found == (pytest.approx(wanted, rel=1e-4, abs=1e-5) if isinstance(wanted, float) else wanted)


@pytest.mark.filterwarnings("ignore:jit.*served no second call")
@pytest.mark.parametrize("name", [*NATIVE, *OTHERS])
def test_arrays_of_results(name: str) -> None:
    function = NATIVE.get(name) or OTHERS[name]
    step = aj.jit(function)
    rng, results = np.random.default_rng(1), []
    for _ in range(24):
        x = rng.normal(size=(4, 8)).astype(np.float32)
        results.append((step(aj.tensor(x)), function(aj.tensor(x))))
        _same(*results[-1])
    for found, wanted in results:  # later calls have left them alone
        _same(found, wanted)
    if name in NATIVE:
        assert step.stats()["native_calls"] >= 16


def test_a_tensor_and_its_array_share_memory() -> None:
    step = aj.jit(both)
    for _ in range(6):
        t, a = step(aj.ones(4, 8))
        a[0] = 99
        assert (t[0] == 99).all()
        t[1] = 7
        assert (a[1] == 7).all()


def test_open_sizes() -> None:
    step = aj.jit(lambda x: (x @ W).exp().numpy())
    for size in (4, 5, 2, 7, 1, 3, 9, 2):
        x = aj.linspace(-1, 1, size * 8).reshape(size, 8)
        _same(step(x), (x @ W).exp().numpy())
    assert step.stats()["captures"] <= 4
