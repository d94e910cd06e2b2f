"""Fused multiply-add of arrays, rounded once: a loop of machine code, because NumPy has no such function."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable

import numpy as np

from autojit.core.once import once
from autojit.ir.op import Ndarray
from autojit.runtime.executable import data_address
from autojit.runtime.gpu.emulator.conversions import odd_single
from autojit.runtime.host import cached_host_target
from autojit.runtime.llvm import compile_to_object, llvm_identity
from autojit.runtime.loader import LoadedObject, load
from autojit.runtime.object_cache import default_cache

_LOOP = """
define void @fma_{name}(ptr noalias %x, ptr noalias %y, ptr noalias %z, ptr noalias %out, i64 %n) {{
entry:
  %any = icmp sgt i64 %n, 0
  br i1 %any, label %loop, label %end
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %px = getelementptr {name}, ptr %x, i64 %i
  %py = getelementptr {name}, ptr %y, i64 %i
  %pz = getelementptr {name}, ptr %z, i64 %i
  %po = getelementptr {name}, ptr %out, i64 %i
  %vx = load {name}, ptr %px
  %vy = load {name}, ptr %py
  %vz = load {name}, ptr %pz
  %v = call {name} @llvm.fma.{suffix}({name} %vx, {name} %vy, {name} %vz)
  store {name} %v, ptr %po
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}}
declare {name} @llvm.fma.{suffix}({name}, {name}, {name})
"""


@once
def _loaded() -> LoadedObject:
    target = cached_host_target()
    text = _LOOP.format(name="float", suffix="f32") + _LOOP.format(name="double", suffix="f64")
    key = hashlib.sha256("\0".join(("emulated fma", text, str(target), llvm_identity())).encode()).hexdigest()
    return load(default_cache().blob(key, lambda: compile_to_object(text, target)))


@once
def _loop(name: str) -> Callable[[int, int, int, int, int], None]:
    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.c_int64)
    return prototype(_loaded().address(f"fma_{name}"))


def fused(x: Ndarray, y: Ndarray, z: Ndarray) -> Ndarray:
    """``x * y + z`` of single or double floats: often a third of what a kernel does, so it takes no detours."""
    like = max(x, y, z, key=_size)
    out: Ndarray = np.empty(like.shape or (1,), like.dtype)
    a, b, c = _spread(x, out), _spread(y, out), _spread(z, out)
    _loop("float" if out.itemsize == 4 else "double")(
        data_address(a), data_address(b), data_address(c), data_address(out), out.size
    )
    return out


def _size(values: Ndarray) -> int:
    return values.size


def _spread(values: Ndarray, like: Ndarray) -> Ndarray:
    """An array with a value for each of ``like``, in a row."""
    if type(values) is np.ndarray and values.shape == like.shape and values.flags.c_contiguous:
        return values
    found = np.empty_like(like)
    found[...] = values
    return found


def fused_half(x: Ndarray, y: Ndarray, z: Ndarray) -> Ndarray:
    """``x * y + z`` of half floats."""
    return odd_sum(x, y, z).astype("f2")


def fused_bfloat(x: Ndarray, y: Ndarray, z: Ndarray) -> Ndarray:
    """``x * y + z`` of bfloat16, as single floats that round to it."""
    return odd_single(odd_sum(x, y, z))


def odd_sum(x: Ndarray, y: Ndarray, z: Ndarray) -> Ndarray:
    """``x * y + z`` of narrow floats as doubles that are rounded to odd, so that another rounding is exact.

    The product is exact in a double; what the sum loses decides its last digit (Boldo and Melquiond, IEEE Transactions
    on Computers 57(4), 2008).
    """
    product = np.asarray(x).astype("f8") * np.asarray(y).astype("f8")
    other = np.asarray(z).astype("f8")
    total = product + other
    back = total - product
    lost = (product - (total - back)) + (other - back)
    bits = total.view("u8")
    is_even = (bits & np.uint64(1)) == 0
    step = np.where((lost > 0) == (total > 0), bits + np.uint64(1), bits - np.uint64(1))
    result: Ndarray = np.where((lost != 0) & is_even & np.isfinite(total), step, bits).view("f8")
    return result
