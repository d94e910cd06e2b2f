"""The device ``meta``: what every op gives there has the type and the layout of what it gives on the CPU."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn
from autojit.core.device import forget_device
from autojit.core.dtypes import float32
from autojit.dispatch.dispatch import apply
from autojit.ir import Op
from autojit.tensor.state import meet_devices

OPS = [
    op
    for op in Op.registry.load().values()
    if op.__module__.startswith("autojit.ops.") and hasattr(op, "samples") and op.samples(float32)
]


@pytest.fixture(autouse=True)
def other_tests_meet_no_device() -> Iterator[None]:
    yield
    forget_device("meta")
    meet_devices()


def told(x: Any) -> list[tuple[Any, ...]]:
    """Shape, dtype, and the steps of the axes that have any."""
    parts = x if isinstance(x, tuple) else (x,)
    return [(tuple(t.shape), t.dtype, [s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1]) for t in parts]


@pytest.mark.parametrize("kind", OPS, ids=lambda op: op.name)
def test_ops_give_there_what_they_give_here_without_elements(kind: Any) -> None:
    for op, inputs in kind.samples(float32)[:4]:
        for turned in (False, True)[: 1 + (op.name != "as_strided")]:  # which speaks of the memory, not of the axes
            here = [aj.tensor(x).mT.contiguous().mT if turned and x.ndim > 1 else aj.tensor(x) for x in inputs]
            there = [x.to("meta") for x in here]
            assert told(tuple(there)) == told(tuple(here))
            if op.moves:
                continue
            if op.needs_elements:
                with pytest.raises(NotImplementedError, match="no data"):
                    apply(op, *there)
                continue
            found = apply(op, *there) if there else None
            if found is not None:
                assert told(found) == told(apply(op, *here))
                assert all(t.is_meta for t in (found if isinstance(found, tuple) else (found,)))


def test_models_are_made_trained_and_moved_without_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    drawn = aj.get_rng_state()
    with aj.device("meta"):
        model = nn.Sequential(nn.Linear(1 << 20, 1 << 20), nn.ReLU(), nn.LayerNorm(1 << 20), nn.Linear(1 << 20, 4))
    optimizer = aj.optim.Adam(model.parameters())
    target = aj.zeros(8, dtype=aj.int64).to("meta")
    loss = nn.functional.cross_entropy(model(aj.randn(8, 1 << 20, device="meta")), target)
    loss.backward()
    optimizer.step()
    assert {p.grad.device for p in model.parameters() if p.grad is not None} == {aj.device("meta")}
    assert sum(p.numel() for p in model.parameters()) > 1 << 40
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB; the weights have 4 TiB
    assert aj.equal(drawn, aj.get_rng_state())


def test_memory_is_made_by_to_empty_and_filled_by_a_state() -> None:
    made = nn.Linear(3, 2)
    with aj.device("meta"):
        model = nn.Linear(3, 2)
    with pytest.raises(NotImplementedError, match=r"to_empty\(\) instead of autojit\.nn\.Module\.to\(\)"):
        model.to("cpu")
    with pytest.warns(UserWarning, match="which is a no-op"):
        model.load_state_dict(made.state_dict())
    assert model.weight.is_meta
    model.to_empty(device="cpu").load_state_dict(made.state_dict())
    assert aj.equal(model.weight, made.weight)
    with aj.device("meta"):
        other = nn.Linear(3, 2)
    other.load_state_dict(made.state_dict(), assign=True)
    assert aj.equal(other(aj.ones(3)), made(aj.ones(3)))


def test_skip_init_draws_nothing() -> None:
    drawn = aj.get_rng_state()
    layer = nn.utils.skip_init(nn.Linear, 4, 5, dtype=aj.float64)
    assert layer.weight.device == aj.device("cpu") and layer.weight.dtype is aj.float64
    assert aj.equal(drawn, aj.get_rng_state())


def test_elements_are_refused_and_the_rest_is_told() -> None:
    x = aj.empty(2, 3, device="meta", requires_grad=True)
    for ask in (lambda: x.sum().item(), lambda: x.tolist(), lambda: bool((x > 0).all()), lambda: x.cpu(), x.nonzero):
        with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor; no data!"):
            ask()
    assert repr(x) == "tensor(..., device='meta', size=(2, 3), requires_grad=True)"
    assert x.data_ptr() == 0 and x.device.index is None and aj.device("meta:0") == x.device
    with pytest.raises(RuntimeError, match="found at least two devices, meta and cpu"):
        x + aj.ones(3)
    assert (x * aj.tensor(2.0)).is_meta  # a number may be anywhere
    y = aj.zeros(4, device="meta")
    view = y[1:3]
    view.add_(1)
    assert view._version == y._version == 1 and np.shares_memory(y._array.layout, view._array.layout)
    y += y
    (x.sum() * 2).backward()
    assert x.grad is not None and x.grad.shape == x.shape
