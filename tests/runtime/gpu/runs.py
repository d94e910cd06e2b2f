"""Runs of hand-written kernels, bound to memory and called as plans call them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import numpy as np

from autojit.codegen.grid_text import Buffer, GridText, Role
from autojit.codegen.lowered import DeviceRun, Offset
from autojit.core.device import Device
from autojit.core.dtypes import BY_SHORT
from autojit.core.sizes import evaluate, is_symbolic
from autojit.core.types import TensorType
from autojit.ir.graph import Value
from autojit.runtime.failures import Failures
from autojit.runtime.gpu.channel import DeviceChannel, host_object
from autojit.runtime.gpu.devices import CudaDevice
from autojit.runtime.gpu.order import Place
from autojit.runtime.gpu.plan import DevicePlan

CUDA = Device("cuda", 0)
THREADS = 64

_TOLD = "i32 %tid, i32 %block, i32 %block.y, i32 %block.z, i32 %meeting"
_THREAD = f"""
  %first = mul i32 %block, {THREADS}
  %k32 = add i32 %first, %tid
  %k = zext i32 %k32 to i64
"""
_REPORT = """
define internal void @report(ptr addrspace(1) %errors, i64 %code, i64 %position) {
  %high = shl i64 %code, 32
  %word = or i64 %high, 1
  %pair = cmpxchg ptr addrspace(1) %errors, i64 0, i64 %word monotonic monotonic
  %done = extractvalue { i64, i1 } %pair, 1
  br i1 %done, label %first, label %leave
first:
  %at = getelementptr i64, ptr addrspace(1) %errors, i64 1
  store i64 %position, ptr addrspace(1) %at, align 8
  br label %leave
leave:
  ret void
}
"""


def value(n: int, short: str = "f32", device: Device = CUDA) -> Value:
    """A value of a step: n numbers, one of rank 0 for n = 0."""
    return Value(TensorType((n,) if n else (), BY_SHORT[short], device))


def weighted_sum(n: int, weights: Sequence[float], role: Role = "writes", limit: float | None = None) -> GridText:
    """The first of n-element buffers becomes a sum of the others, times weights; it may be one of them ("updates").

    ``limit``: elements of the second buffer from there on are reported.
    """
    reads = [
        f"""  %p{j} = getelementptr float, ptr addrspace(1) %b{j}, i64 %k
  %v{j} = load float, ptr addrspace(1) %p{j}, align 4
  %w{j} = fmul float %v{j}, {_float(weight)}
  %s{j} = fadd float {f"%s{j - 1}" if j > 1 else "0.0"}, %w{j}"""
        for j, weight in enumerate(weights, 1)
    ]
    checks = ""
    takes = [f"ptr addrspace(1) %b{j}" for j in range(len(weights) + 1)]
    if limit is not None:
        takes += ["ptr addrspace(1) %errors", "i64 %code"]
        checks = f"""
  %outside = fcmp oge float %v1, {_float(limit)}
  br i1 %outside, label %bad, label %leave
bad:
  call void @report(ptr addrspace(1) %errors, i64 %code, i64 %k)"""
    text = f"""define internal void @body({", ".join([_TOLD, *takes])}) alwaysinline {{{_THREAD}
  %inside = icmp ult i64 %k, {n}
  br i1 %inside, label %run, label %leave
run:
{chr(10).join(reads)}
  %p0 = getelementptr float, ptr addrspace(1) %b0, i64 %k
  store float %s{len(weights)}, ptr addrspace(1) %p0, align 4
  {checks}
  br label %leave
leave:
  ret void
}}
{_REPORT if limit is not None else ""}"""
    others: Role = "updates" if role == "updates" else "reads"
    buffers = (Buffer(role, 4), *(Buffer(others, 4) for _ in weights))
    return GridText(text, buffers, THREADS, (-(-n // THREADS), 1, 1), reports=limit is not None)


def scaled(n: int) -> GridText:
    """The first of n-element buffers becomes the second times a number."""
    takes = "ptr addrspace(1) %b0, ptr addrspace(1) %b1, ptr addrspace(1) %b2"
    text = f"""define internal void @body({_TOLD}, {takes}) alwaysinline {{{_THREAD}
  %inside = icmp ult i64 %k, {n}
  br i1 %inside, label %run, label %leave
run:
  %number = load float, ptr addrspace(1) %b2, align 4
  %p1 = getelementptr float, ptr addrspace(1) %b1, i64 %k
  %v = load float, ptr addrspace(1) %p1, align 4
  %r = fmul float %v, %number
  %p0 = getelementptr float, ptr addrspace(1) %b0, i64 %k
  store float %r, ptr addrspace(1) %p0, align 4
  br label %leave
leave:
  ret void
}}"""
    return GridText(
        text, (Buffer("writes", 4), Buffer("reads", 4), Buffer("reads", 4)), THREADS, (-(-n // THREADS), 1, 1)
    )


def doubled(n: int) -> GridText:
    """The first buffer becomes twice the second, as far as an open size says."""
    takes = "ptr addrspace(1) %b0, ptr addrspace(1) %b1, i64 %z0"
    text = f"""define internal void @body({_TOLD}, {takes}) alwaysinline {{{_THREAD}
  %inside = icmp ult i64 %k, %z0
  br i1 %inside, label %run, label %leave
run:
  %p1 = getelementptr float, ptr addrspace(1) %b1, i64 %k
  %v = load float, ptr addrspace(1) %p1, align 4
  %r = fadd float %v, %v
  %p0 = getelementptr float, ptr addrspace(1) %b0, i64 %k
  store float %r, ptr addrspace(1) %p0, align 4
  br label %leave
leave:
  ret void
}}"""
    blocks = -(-n // THREADS)
    return GridText(text, (Buffer("writes", 4), Buffer("reads", 4)), THREADS, (blocks, 1, 1), sizes=(n,))


def _float(number: float) -> str:
    return f"0x{np.float64(np.float32(number)).view(np.uint64):016X}"


class Memory:
    """Where the values of a step are, in a plan's place; addresses that move are patched before a call."""

    def __init__(self, device: CudaDevice, fixed: Mapping[Value, int], places: Mapping[Value, Place]) -> None:
        self.device = device
        self.fixed = dict(fixed)
        self.places = places
        self.patches: list[tuple[int, Value, int]] = []  # word, value, bytes behind its start
        self.fixed_words: list[tuple[int, Value, int]] = []
        self.size_words: list[tuple[int, int]] = []  # word, the open size that it holds
        self.sizes: dict[str, int] = {}

    def word(self, argument: Value | Offset, slot: int) -> int:
        value, offset = (argument.value, argument.offset_bytes) if isinstance(argument, Offset) else (argument, 0)
        if value in self.fixed:
            self.fixed_words.append((slot, value, offset))
            return self.fixed[value] + offset
        self.patches.append((slot, value, offset))
        return 0

    def place(self, value: Value) -> Place:
        return self.places.get(value, "own")

    def home(self, value: Value) -> Value:
        return value

    def region_of(self, value: Value) -> None:
        return None

    def region(self, size_bytes: int, device: Device) -> int:
        raise AssertionError("memory of these runs is of fixed size")

    def region_word(self, region: int, slot: int) -> int:
        raise AssertionError("memory of these runs is of fixed size")

    def number(self, size: int, slot: int) -> int:
        if is_symbolic(size):
            self.size_words.append((slot, size))
        return 0 if is_symbolic(size) else size

    def most(self, size: int) -> int:
        return size

    def sizes_now(self) -> Mapping[str, int]:
        return self.sizes

    def resize(self, **sizes: int) -> None:
        """The next call has these sizes."""
        self.sizes = sizes
        for slot, size in self.size_words:
            ctypes.c_uint64.from_address(slot).value = evaluate(size, sizes)

    def move(self, value: Value, address: int) -> None:
        """What stays in place is elsewhere from now on."""
        self.fixed[value] = address
        for slot, moved, offset in self.fixed_words:
            if moved is value:
                ctypes.c_uint64.from_address(slot).value = address + offset

    def patch(self, addresses: Mapping[Value, int]) -> None:
        """A call begins with these addresses."""
        for slot, value, offset in self.patches:
            ctypes.c_uint64.from_address(slot).value = addresses[value] + offset


class Step:
    """One run, ready to be called."""

    def __init__(self, memory: Memory, run: DeviceRun) -> None:
        self.memory = memory
        self.failures = Failures()
        self.channel = DeviceChannel(memory.device, self.failures)
        self.plan = DevicePlan(memory, run, self.channel)
        self.native = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
            host_object().address("aj_device")
        )

    def __call__(self, addresses: Mapping[Value, int] | None = None) -> None:
        """Run; raises what the device reports, and what Python was called for."""
        self.memory.patch(addresses or {})
        self.native(self.plan.address, 0, 0)
        word, position = (ctypes.c_int64 * 2).from_address(self.failures.address)
        if word > 1:  # not a mark that an error waits, or that a signal came
            self.failures.clear()
            raise ReportedError(word >> 32, word & 0xFFFFFFFF, position)
        self.failures.check()


class ReportedError(Exception):
    """What a kernel reported: its code, the site, the position."""


def block_sums(n: int) -> GridText:
    """The first buffer, one element, becomes the sum of the second: blocks leave parts, a thread adds them up."""
    blocks = -(-n // THREADS)
    takes = "ptr addrspace(1) %b0, ptr addrspace(1) %b1, ptr addrspace(1) %partials"
    text = f"""define internal void @body({_TOLD}, {takes}) alwaysinline {{{_THREAD}
  %is = icmp eq i32 %tid, 0
  br i1 %is, label %run, label %leave
run:
  br label %head
head:
  %i = phi i64 [ %k, %run ], [ %next, %more ]
  %sum = phi float [ 0.0, %run ], [ %added, %more ]
  %end = add i64 %k, {THREADS}
  %a = icmp ult i64 %i, %end
  %b = icmp ult i64 %i, {n}
  %go = and i1 %a, %b
  br i1 %go, label %more, label %done
more:
  %p = getelementptr float, ptr addrspace(1) %b1, i64 %i
  %v = load float, ptr addrspace(1) %p, align 4
  %added = fadd float %sum, %v
  %next = add i64 %i, 1
  br label %head
done:
  %block64 = zext i32 %block to i64
  %q = getelementptr float, ptr addrspace(1) %partials, i64 %block64
  store float %sum, ptr addrspace(1) %q, align 4
  br label %leave
leave:
  ret void
}}"""
    combine = f"""define internal void @body({_TOLD}, {takes}) alwaysinline {{
  br label %head
head:
  %i = phi i64 [ 0, %0 ], [ %next, %more ]
  %sum = phi float [ 0.0, %0 ], [ %added, %more ]
  %go = icmp ult i64 %i, {blocks}
  br i1 %go, label %more, label %done
more:
  %p = getelementptr float, ptr addrspace(1) %partials, i64 %i
  %v = load float, ptr addrspace(1) %p, align 4
  %added = fadd float %sum, %v
  %next = add i64 %i, 1
  br label %head
done:
  store float %sum, ptr addrspace(1) %b0, align 4
  ret void
}}"""
    buffers, size = (Buffer("writes", 4), Buffer("reads", 4)), 4 * blocks
    last = GridText(combine, buffers, 1, (1, 1, 1), partial_bytes=size)
    return GridText(text, buffers, THREADS, (blocks, 1, 1), partial_bytes=size, combine=last)
