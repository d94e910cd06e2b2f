"""Kernels of eager mode on devices: every op, copy and sum in any layout gives NumPy's elements, and NumPy's layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.core.device import Device, space_at
from autojit.core.device_array import Array, DeviceArray, layout_in_memory, share_memory
from autojit.core.dtypes import float32
from autojit.core.product_precision import may_round_operands
from autojit.dispatch.device_kernels import KEPT, DeviceKernels, are_alike
from autojit.dispatch.dispatch import apply
from autojit.dispatch.operand_memory import memory_of
from autojit.ir import Op
from autojit.runtime.gate import Reentered
from autojit.tensor.tensor import wrap
from autojit.testing import second_device
from autojit.testing.second_device import SecondSpace

OPS = [
    op
    for op in Op.registry.load().values()
    if op.__module__.startswith("autojit.ops.") and hasattr(op, "samples") and op.samples(float32)
]


class KernelSpace(SecondSpace):
    """A second device whose elements kernels alone compute with."""

    def __init__(self, device: Device, copies_for_numpy: bool = False) -> None:
        super().__init__(device, copies_for_numpy)
        self.kernels = DeviceKernels(self)

    def write(self, target: DeviceArray, source: Array) -> None:
        if are_alike(target, source) and not share_memory(target, source):
            super().write(target, source)
        else:
            self.kernels.write(target, source)

    def add(self, total: DeviceArray, part: DeviceArray) -> None:
        self.kernels.add(total, part)

    def apply(self, op: Op, arrays: Sequence[Array]) -> list[DeviceArray]:
        return self.kernels.compute(op, arrays)


@pytest.fixture
def there() -> Iterator[str]:
    with second_device("there", space=KernelSpace) as name:
        yield name


def drawn(rng: np.random.Generator, shape: Sequence[int], dtype: Any) -> tuple[Any, Any]:
    """An array of a shape with axes in any order, steps and gaps between; and the memory it is in."""
    axes = rng.permutation(len(shape))
    inner = [shape[axis] for axis in axes]
    memory = (rng.standard_normal([2 * n + 1 for n in inner]) * 9).astype(dtype)
    cut = tuple(
        slice(start := int(rng.integers(2)), start + n * (step := int(rng.integers(1, 3))), step) for n in inner
    )
    return memory[cut].transpose(np.argsort(axes)), memory


def seen_in(memory: Any, array: Any) -> Any:
    """What an array shows of a copy of its memory."""
    before = array.__array_interface__["data"][0] - memory.__array_interface__["data"][0]
    return np.ndarray(array.shape, array.dtype, memory.copy(), before, array.strides)


DTYPES = (np.float32, np.float64, np.int32, np.bool_)


@pytest.mark.parametrize("seed", range(40))
def test_writing_and_adding_change_the_elements_of_the_target_alone(there: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    space: Any = space_at(Device(there, 0))
    shape = [int(n) for n in rng.integers(1, 5, rng.integers(1, 4))]
    (target, memory), (source, _) = (drawn(rng, shape, rng.choice(DTYPES)) for _ in range(2))
    if seed % 3 == 0:
        source = np.broadcast_to(source[:1], shape)
    expected = seen_in(memory, target)
    if seed % 4 == 0 and target.dtype != np.bool_:
        source = source.astype(target.dtype)
        expected += source
        space.add(space.holding(target), space.holding(source))
    else:
        with np.errstate(all="ignore"):
            np.copyto(expected, source, casting="unsafe")
        space.write(space.holding(target), space.holding(source))
    np.testing.assert_array_equal(memory, expected.base)


def test_a_source_that_shares_memory_is_read_before_it_is_written(there: str) -> None:
    x = aj.arange(12.0, device=there).reshape(4, 3)
    x[1:] = x[:-1]
    assert x.tolist() == [[0.0, 1.0, 2.0], [0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0, 8.0]]
    square = aj.arange(4.0, device=there).reshape(2, 2)
    square.copy_(square.t())
    assert square.tolist() == [[0.0, 2.0], [1.0, 3.0]]
    square += square.t()
    assert square.tolist() == [[0.0, 3.0], [3.0, 6.0]]


def test_numbers_fill_memory_of_any_layout(there: str) -> None:
    x = aj.zeros(3, 4, device=there)
    x.diagonal().fill_(7)
    x[:, 3] = -0.0
    x.as_strided((2, 2), (3, 2), 4).fill_(2)  # steps that no nested loops have
    flat = np.zeros(12, np.float32)
    flat[[0, 5, 10]] = 7
    flat[[3, 7, 11]] = -0.0
    flat[[4, 6, 7, 9]] = 2
    np.testing.assert_array_equal(np.array(x.tolist(), np.float32), flat.reshape(3, 4))
    assert np.signbit(x.cpu().numpy()[:, 3]).tolist() == [True, False, True]
    assert aj.full((2,), float("nan"), device=there).isnan().all()


def laid_out(x: Any, kind: str) -> Any:
    if kind == "rows" or not x.ndim:
        return x
    if kind == "columns":
        return np.asfortranarray(x)
    memory = np.empty((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    memory[..., ::2] = x
    return memory[..., ::2]


@pytest.mark.parametrize("op_class", OPS, ids=lambda op: op.name)
def test_ops_give_the_elements_and_the_layout_of_the_cpu(there: str, op_class: Any) -> None:
    op, inputs = op_class.samples(float32)[0]
    if op.has_effect or any(name == "device" for name in op.__match_args__):
        pytest.skip("says where its result is")
    for kind in ("rows", "columns", "gaps"):
        arrays = [laid_out(x, kind) for x in inputs]
        here = apply(op, *map(wrap, arrays))
        space = space_at(Device(there, 0))
        moved = [wrap(space.holding(a.copy() if kind == "rows" else a)) for a in arrays]
        made = apply(op, *moved)
        for expected, found in zip(*[(x,) if op.n_outputs == 1 else x for x in (here, made)], strict=True):
            assert type(found._array) is DeviceArray
            np.testing.assert_allclose(
                layout_in_memory(found._array), expected._array, rtol=2e-5, atol=2e-6, err_msg=f"{op} of {kind}"
            )
            if expected.numel() > 1 and not (op.is_view and op.copies(arrays[0])):
                assert found.stride() == expected.stride(), f"{op} of {kind}"


def test_what_needs_elements_to_know_its_shape_comes_from_the_host(there: str) -> None:
    x = aj.tensor([[3.0, 0.0], [0.0, 3.0]], device=there)
    assert x.nonzero().tolist() == [[0, 0], [1, 1]]
    assert x.unique().device.type == x[x > 1].device.type == there
    assert x[x > 1].tolist() == [3.0, 3.0]


def test_a_kernel_is_made_once_per_layout(there: str) -> None:
    x = aj.arange(6.0, device=there).reshape(2, 3)
    kept: Any = space_at(x.device).kernels._of_op  # type: ignore[attr-defined]
    aj.erfc(x), aj.erfc(x.t())
    before = list(kept.kernels())
    aj.erfc(x), aj.erfc(x.t()), aj.erfc(x)
    assert {id(kernel) for kernel in kept.kernels()} == {id(kernel) for kernel in before} and kept.kept == KEPT


@pytest.mark.parametrize("seed", range(3))
def test_calls_that_are_known_give_what_the_first_one_gave(there: str, seed: int) -> None:
    """Operands laid out alike, with other elements; and in between such as are not."""
    rng = np.random.default_rng(seed)
    kernels = space_at(aj.device(there)).kernels
    views = [lambda x: x, lambda x: x.mT, lambda x: x[::2], lambda x: x[:1].expand(6, 6), lambda x: x.flip(0)]
    ops = [lambda x, y: x + y, lambda x, y: x @ y.mT, lambda x, y: x.sum(1), lambda x, y: aj.cumsum(x, 0)]
    known = 0
    for turn in range(3):
        for view in views:
            for op in ops:
                x, y = (view(aj.tensor(rng.normal(size=(6, 6)))) for _ in range(2))
                found = op(x.to(there), y.to(there))
                wanted = op(x, y)
                assert np.allclose(found.cpu().numpy(), wanted.numpy(), rtol=1e-12, atol=1e-12)
                assert found.stride() == wanted.stride()
        if turn:
            assert len(kernels._calls) == known, "nothing is new"
        known = len(kernels._calls)


def test_a_kernel_that_is_called_within_itself_gives_its_result(there: str, monkeypatch: Any) -> None:
    x = aj.arange(3.0, device=there)
    expected = aj.expm1(x).tolist()
    kept: Any = space_at(x.device).kernels._of_op  # type: ignore[attr-defined]
    what = Op.registry["expm1"](), may_round_operands()
    kernel, _ = kept.find(what, (memory_of(x._array),), is_elementwise=True, is_fixed=False)

    def entered(*arguments: object) -> None:
        raise Reentered

    monkeypatch.setattr(kernel.executable, "run_with", entered)
    assert aj.expm1(x).tolist() == expected
