"""Storages: memory as bytes and as elements, made by themselves and of tensors."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import autojit as aj
from autojit.functions.storage_kinds import KINDS


@pytest.mark.parametrize("name", KINDS)
def test_a_storage_of_a_dtype_has_its_elements(name: str) -> None:
    kind = KINDS[name]
    made = kind([1, 0, 1])
    assert made.dtype is kind.dtype and made.tolist() == [1, 0, 1] and len(made) == 3
    assert isinstance(made, kind) and type(made) is aj.TypedStorage and getattr(aj, name) is kind
    assert made.nbytes() == 3 * kind.dtype.size_bytes == len(made.untyped())
    made[1] = 1
    assert list(made) == [1, 1, 1] and aj.tensor(made, dtype=kind.dtype).sum().item() == 3
    assert kind(2).fill_(1).tolist() == [1, 1] and kind().size() == 0
    assert aj.zeros(0, dtype=kind.dtype).set_(made, 1, (2,), (1,)).tolist() == [1, 1]
    for again in (copy.deepcopy(made), pickle.loads(pickle.dumps(made)), made.clone()):
        assert again.tolist() == [1, 1, 1] and again.data_ptr() != made.data_ptr()


def test_storages_show_the_memory_that_they_are_of() -> None:
    x = aj.arange(4.0)
    seen, as_int = x.storage(), aj.TypedStorage(wrap_storage=x.untyped_storage(), dtype=aj.int32)
    seen[0] = 8.0
    as_int[1] = 0
    assert x.tolist() == [8.0, 0.0, 2.0, 3.0] and isinstance(seen, aj.FloatStorage)
    assert as_int.dtype is aj.int32 and as_int.data_ptr() == x.data_ptr() and as_int == seen.untyped()
    assert x[2:].storage()._cdata == seen._cdata != x.clone().storage()._cdata
    turned = aj.tensor([], dtype=aj.int32).set_(x.untyped_storage())
    assert turned.dtype is aj.int32 and turned.tolist() == as_int.tolist()
    assert aj.UntypedStorage([1, 2, 3])[1:].tolist() == [2, 3] and aj.UntypedStorage(2).tolist() == [0, 0]
    assert "of size 4" in repr(seen) and np.asarray(seen).dtype == np.float32


def test_what_a_storage_cannot_do_is_an_error() -> None:
    x = aj.arange(4.0)
    with pytest.raises(RuntimeError, match="slices are only supported in UntypedStorage"):
        x.storage()[1:]
    with pytest.raises(RuntimeError, match="Expected a Storage of type"):
        aj.tensor([1]).set_(x.storage())
    with pytest.raises(TypeError, match="wrap_storage"):
        aj.TypedStorage(3, wrap_storage=x.untyped_storage(), dtype=aj.int8)
    with pytest.raises(TypeError, match="one sequence"):
        aj.UntypedStorage(1, 2)


@pytest.mark.parametrize("kind", ["storage", "untyped_storage"])
def test_storages_of_both_kinds_are_filled_copied_and_cloned(kind: str) -> None:
    x, y = aj.arange(3.0), aj.ones(3)
    mine, other = getattr(x, kind)(), getattr(y, kind)()
    for again in (mine.clone(), copy.copy(mine)):
        assert type(again) is type(mine) and again.tolist() == mine.tolist() and again.data_ptr() != mine.data_ptr()
    assert mine.copy_(other) is mine and x.equal(y) and mine.cpu() is mine
    assert mine.fill_(0) is mine and x.eq(0).all()
