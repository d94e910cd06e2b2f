"""Strides, storages, contiguity, and tensors that are given other memory."""

from __future__ import annotations

import gc
import importlib.util
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import autojit as aj


def test_new_data_keeps_the_version_counter() -> None:
    x = aj.rand(1, 2)
    x.add_(1).add_(1)
    view = x[:]
    x.data = aj.rand(2, 3)
    assert (x.shape, x._version) == ((2, 3), 2)
    x.add_(1)
    assert x._version == view._version == 3
    view.add_(1)
    assert x._version == view._version == 4
    with pytest.raises(TypeError, match="Variable data has to be a tensor"):
        x.data = None  # type: ignore[assignment]
    leaf = aj.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="must be floating point or complex"):
        leaf.data = aj.ones(2, dtype=aj.int64)


@pytest.mark.parametrize("jit", [lambda f: f, aj.jit], ids=["eager", "compiled"])
def test_a_tensor_may_be_given_memory_any_number_of_times(jit: Callable[[Any], Any]) -> None:
    w = aj.ones(3, requires_grad=True)

    @jit
    def change() -> None:
        with aj.no_grad():
            w.mul_(1.0)

    before = (w * w).sum()
    memories = []
    for _ in range(sys.getrecursionlimit() + 1):
        w.data = w.data * 0.5
        memories.append(weakref.ref(w._array))
    del memories[-1]
    change()
    change()
    assert w._version == 2
    gc.collect()
    assert not any(memory() is not None for memory in memories)
    with pytest.raises(RuntimeError, match="is at version 2; expected version 0"):
        before.backward()


def test_a_resize_counts_as_a_change_where_it_changes_the_shape() -> None:
    x = aj.rand(1)
    view = x[:]
    x.resize_((1, 2))
    assert x._version == view._version == 1
    x.resize_as_(aj.ones(3))
    assert x._version == 2
    x.resize_(3).resize_as_(aj.ones(3))
    assert x._version == 2


@pytest.mark.parametrize("requires_grad", [True, False])
def test_inference_tensors_can_be_resized(requires_grad: bool) -> None:
    with aj.inference_mode():
        x = aj.ones(1, 2, 3, requires_grad=requires_grad)
        x.resize_(1, 2)
        assert x.shape == (1, 2)
        x.resize_as_(aj.ones(3))
        assert aj.is_inference(x)
        assert x.requires_grad == requires_grad


def test_set_and_resize_give_other_memory() -> None:
    x = aj.arange(6.0)
    kept = x[:2]
    assert x.resize_(2, 2).tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert x.resize_as_(aj.ones(8)).shape == (8,)
    assert x.tolist()[:4] == [0.0, 1.0, 2.0, 3.0]
    x.set_(aj.zeros(5))
    assert x.tolist() == [0.0] * 5
    assert kept.tolist() == [0.0, 1.0]
    leaf = aj.ones(3, requires_grad=True)
    for write in (lambda: leaf.resize_(2), lambda: (leaf * 1).resize_(2), lambda: leaf.resize_as_(aj.ones(1))):
        with pytest.raises(RuntimeError, match="cannot resize variables that require grad"):
            write()
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        leaf.set_(aj.zeros(2))
    with aj.no_grad():
        leaf.set_(leaf[1:])
    aj.cat((leaf, leaf)).sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [2.0, 2.0]


def test_layout_questions() -> None:
    x = aj.ones(4, 3, dtype=aj.float64)
    assert (x.stride(), x.t().stride(), x[1:].storage_offset()) == ((3, 1), (1, 3), 3)
    assert (x.is_contiguous(), x.t().is_contiguous()) == (True, False)
    assert x.data_ptr() == x.t().data_ptr()
    assert x[1:].data_ptr() - x.data_ptr() == 24
    assert x.untyped_storage().data_ptr() == x[2:].untyped_storage().data_ptr()
    assert (len(x.storage()), x.untyped_storage().nbytes()) == (12, 96)
    assert x.is_set_to(x.detach())
    assert not x.is_set_to(x[1:])
    assert aj.empty_strided((2, 3), (1, 2)).stride() == (1, 2)
    assert aj.empty_strided((2, 3, 4), (2, 4, 6)).storage().size() == 29
    assert (aj.zeros(0, 5).stride(), aj.zeros(3, 0, 2).stride()) == ((5, 1), (2, 2, 1))
    last = aj.ones(2, 3, 4, 5).contiguous(memory_format=aj.channels_last)
    assert last.stride() == (60, 1, 15, 3)
    assert last.is_contiguous(memory_format=aj.channels_last)


def test_compiled_changes_of_new_data_are_counted() -> None:
    p = aj.zeros(3)
    view = p[:1]
    p.data = aj.ones(3)
    step = aj.jit(lambda g: p.add_(g) is None)
    for calls in range(1, 5):
        step(aj.ones(3))
        assert p._version == view._version == calls
    assert p.tolist() == [5.0, 5.0, 5.0]


def test_copies_leave_broadcast_axes_where_they_are() -> None:
    assert aj.arange(3.0).expand(2, 3).clone().stride() == (3, 1)
    columns = aj.arange(4.0).view(2, 2).t().unsqueeze(0).expand(3, 2, 2)
    assert columns.clone().stride() == columns.double().stride() == (4, 1, 2)
    assert columns.clone().tolist() == columns.tolist()


def test_a_view_that_would_have_to_copy_is_refused_in_inference_mode_too() -> None:
    with aj.inference_mode():
        x = aj.arange(6.0).view(2, 3)
        assert x.view(-1).tolist() == x.view(6).tolist()
        for t in (x.t(), x.expand(2, 2, 3)):
            with pytest.raises(RuntimeError, match="view size is not compatible"):
                t.view(-1)


@pytest.mark.parametrize("dtype", [aj.uint8, aj.int16, aj.float32, aj.complex64, aj.bool, aj.bfloat16])
def test_storages_are_the_bytes_of_their_memory(dtype: aj.dtype) -> None:
    whole = aj.arange(12).to(dtype).reshape(3, 4)
    for x in (whole, whole.t(), whole[1:], whole.reshape(-1)[2:3], aj.empty(0, dtype=dtype)):
        storage = x.untyped_storage()
        assert storage.untyped() is storage and len(storage) == len(storage.tolist())
        assert [storage[k] for k in range(len(storage))] == storage.tolist()
    storage = whole.untyped_storage()
    assert bytes(storage.tolist()) == whole.view(aj.uint8).numpy().tobytes()
    first = aj.asarray(storage[: 4 * dtype.itemsize], dtype=aj.uint8).view(dtype)
    assert aj.equal(first, whole[0]) and first.data_ptr() == whole.data_ptr()
    storage[dtype.itemsize : 2 * dtype.itemsize] = 0
    assert whole[0, 1] == 0 and first[1] == 0
    with pytest.raises(RuntimeError, match="only a step of 1 is supported"):
        storage[::2]


def test_bytes_that_a_step_asks_for_are_those_of_its_call() -> None:
    step = aj.jit(lambda x: x * (x.untyped_storage()[0] + 1))
    for value in (1, 2, 3):
        x = aj.full((2,), value, dtype=aj.uint8)
        assert step(x).tolist() == [value * (value + 1)] * 2


@pytest.mark.skipif(importlib.util.find_spec("safetensors") is None, reason="safetensors is not installed")
def test_safetensors_reads_through_torchs_names(tmp_path: Path) -> None:
    program = (
        "import autojit\nwith autojit.torch_names():\n import torch, safetensors.torch as st\n"
        " t = {'a': torch.arange(6.0).reshape(2, 3), 'b': torch.ones(2, dtype=torch.int64)}\n"
        " st.save_file(t, 'x.safetensors'); f = st.load_file('x.safetensors')\n"
        " print(all(torch.equal(f[k], t[k]) for k in t), len(f))"
    )
    run = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.stdout.split() == ["True", "2"], run.stderr
