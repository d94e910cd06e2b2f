"""Bands: kernels that walk the same rows run one after another on a *slice* of rows, while it is in cache.

A long chain over many points (every layer of a network, its first and second derivatives) stores each intermediate to
memory if every kernel runs over all rows in turn. A band cuts the rows into ``count`` slices and runs all its kernels
on one slice before the next; values that live only inside the band get memory for one slice per worker.

Where the number of rows is a symbolic size, slices are of a size that follows from it when the step runs, and the last
one may be shorter.

A kernel may join when, cut into ``count`` slices, slice ``s`` of it reads of the band's own values only what slice
``s`` of their kernels wrote. ``local_grains`` proves that on index expressions. Reductions over rows leave one partial
result per slice and are combined after the band; so do products that contract over the rows (weight gradients) when
their result is small.

How to read: ``local_grains`` (the proof), ``Cut`` (how a kernel can be sliced), ``form_bands`` (the sweep).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache, reduce
from math import prod
from typing import Any

from autojit.core.machine import Bands, Machine
from autojit.core.records import record
from autojit.core.sizes import is_symbolic, size_gcd, size_max, size_min, surely_less, typical
from autojit.ir.graph import Value
from autojit.ir.index import Index, LoopVariable
from autojit.schedule.expressions import Load, RandomWord
from autojit.schedule.kernels import Access, Apart, Kernel, LoopKernel, MatmulKernel
from autojit.schedule.pull import loop_indices

# Counts are those of tools/schedule_bounds.py: 29 steps, 1,778 kernels, of which 758 are in 19 bands.

# Kernels passed over one after the other before a band ends: bounds the sweep. Half as many lose two bands of eight
# kernels; without a bound, the same 19 bands hold two kernels more.
LOOK_AHEAD = 64
# A product contracts over the band's rows, and leaves a partial product for each slice, if it has this many times more
# rows than its operands have columns. From 1 to 4 the bands are the same; with 16 eleven kernels leave them, without
# contractions 126 do, and a quarter more memory is planned.
LONG_ROWS = 4
LEAST_KERNELS = 2  # one alone has no value that stays inside; asking for 3 or 4 changes no band
# A slice of this many grains tells how much memory each needs; one alone would count what buffers are rounded up by.
TRIAL_GRAINS = 64


def local_grains(rows: Sequence[LoopVariable], index: Index, elements: int) -> int:
    """The largest number of slices (all its divisors are fine too) for which slice s reads only slice s of a buffer.

    ``index`` is a position in a buffer of ``elements``; ``rows`` are the loops that are sliced, outermost first.
    """
    coefficients = dict(index.terms)
    divided = index.divided_variables()
    for count in range(len(rows), 0, -1):
        head = rows[:count]
        grains = prod(v.extent for v in head)
        if grains == 0 or elements % grains != 0 or not divided.isdisjoint(head):
            continue
        width = elements // grains
        stride = width
        for variable in reversed(head):
            if coefficients.get(variable, 0) != stride:
                break
            stride *= variable.extent
        else:
            rest = Index(tuple((t, c) for t, c in index.terms if t not in head), index.offset)
            low, high = rest.bounds()
            if surely_less(-1, low) and surely_less(high, width):
                return grains
    return 1


@record(eq=False, frozen=False)
class Cut:
    """How a kernel can be sliced: into any divisor of ``grains``, the smallest pieces of its rows.

    ``reads`` and ``writes`` have the grains of each buffer, which bound a band that makes these values in the same way.
    ``contracts``: the kernel sums over the rows and leaves one partial result per slice. ``least`` of its grains should
    be in a slice where there is a choice.
    """

    grains: int
    reads: dict[Value, int]
    writes: dict[Value, int]
    most: int
    contracts: bool = False
    least: int = 1


class _Cuts:
    """The ways to slice kernels; those that differ in their values only are cut alike."""

    def __init__(self, bands: Bands) -> None:
        self.bands = bands
        self.known: dict[Any, tuple[Cut | None, list[Value]]] = {}

    def of(self, kernel: Kernel) -> Cut | None:
        """The ways to slice a kernel, or None."""
        key: Any
        if isinstance(kernel, LoopKernel):
            key, values = kernel.program.form, [*kernel.program.loads, *kernel.writes()]
        elif isinstance(kernel, MatmulKernel):
            values = [*kernel.reads(), *kernel.writes()]
            places = [(access.offset, access.strides, access.value.type) for access in (kernel.a, kernel.b)]
            key = (
                *places,
                *[v.type for v in kernel.node.inputs],
                kernel.init is None,
                kernel.a.value is kernel.b.value,
            )
        else:
            return None
        found = self.known.get(key)
        if found is None:
            cut = _cut_loops(kernel, self.bands) if isinstance(kernel, LoopKernel) else _cut_matmul(kernel, self.bands)
            self.known[key] = cut, values
            return cut
        known, before = found
        if known is None:
            return None
        names = dict(zip(before, values, strict=True))
        reads = {names[v]: n for v, n in known.reads.items()}
        return replace(known, reads=reads, writes={names[v]: n for v, n in known.writes.items()})


def _cut_loops(kernel: LoopKernel, bands: Bands) -> Cut | None:
    program = kernel.program
    rows = program.sliced
    if not rows or any(isinstance(e, RandomWord) for e in program.exprs):
        return None
    if len({store.value for store in program.stores}) != len(program.stores):
        return None  # one of them is stored in parts, of which each slice would have some
    reads: dict[Value, int] = {}
    for expr in program.exprs:
        if not isinstance(expr, Load):
            continue
        value = program.loads[expr.buffer]
        grains = local_grains(rows, expr.positions[0], value.type.size)
        reads[value] = size_gcd(reads.get(value, 0), grains)
    writes = {s.value: local_grains(rows, s.index, s.value.type.size) for s in program.stores}
    grains = prod(v.extent for v in rows)
    for accumulator in program.accumulators:
        if accumulator.prefix:  # else the slices' partial results are added up after the band
            writes[accumulator.value] = grains
    return Cut(grains, reads, writes, bands.most_slices)


def _cut_matmul(kernel: MatmulKernel, bands: Bands) -> Cut | None:
    if kernel.init is not None:
        return None
    a_type, b_type = (v.type for v in kernel.node.inputs[:2])
    result = kernel.node.outputs[0].type.dtype
    *batch, m, k = a_type.shape
    n = b_type.shape[-1]
    count = prod(batch)
    is_open = is_symbolic(m * n * k * count)
    # One partial product for each slice: larger ones are cheaper as one product over all rows (`contracted_bytes`).
    is_small = count == 1 and surely_less(m * n * result.size_bytes, bands.contracted_bytes + 1)
    if is_small and typical(k) >= LONG_ROWS * max(typical(m), typical(n)):
        return _cut_contraction(kernel, m, k, n, bands.most_slices)
    axes = loop_indices((*batch, m), "r")
    sliced = axes[:-1] if is_open and count != 1 else axes  # whole matrices, where they cannot be cut evenly
    rows = [t for axis in sliced for t, _ in axis.terms if isinstance(t, LoopVariable)]
    if not rows:
        return None
    (inner,), (column,) = loop_indices((k,), "k"), loop_indices((n,), "n")
    reads = {kernel.a.value: local_grains(rows, _position(kernel.a, (*axes, inner)), kernel.a.value.type.size)}
    b_grains = local_grains(rows, _position(kernel.b, (*axes[:-1], inner, column)), kernel.b.value.type.size)
    reads[kernel.b.value] = size_gcd(reads.get(kernel.b.value, 0), b_grains)
    grains = prod(v.extent for v in rows)
    most = bands.most_slices
    if typical(k * n) * a_type.dtype.size_bytes > bands.resident_bytes and not batch_varies(kernel, count):
        if is_open:
            return None  # few rows would be one slice, and one worker's
        most = m * count // bands.rows_per_packing
    return Cut(grains, reads, {kernel.node.outputs[0]: grains}, most) if most >= bands.least_slices else None


def batch_varies(kernel: MatmulKernel, count: int) -> bool:
    """Whether the right operand changes with the batch, so that no slice packs it again."""
    return count > 1 and any(stride for stride in kernel.b.strides[:-2])


def _cut_contraction(kernel: MatmulKernel, m: int, k: int, n: int, most: int) -> Cut:
    rows, (i,), (j,) = loop_indices((k,), "k"), loop_indices((m,), "i"), loop_indices((n,), "j")
    batch = (Index(),) * (kernel.node.inputs[0].type.ndim - 2)
    variables = [t for t, _ in rows[0].terms if isinstance(t, LoopVariable)]
    a_grains = local_grains(variables, _position(kernel.a, (*batch, i, rows[0])), kernel.a.value.type.size)
    reads = {kernel.a.value: a_grains}
    b_grains = local_grains(variables, _position(kernel.b, (*batch, rows[0], j)), kernel.b.value.type.size)
    reads[kernel.b.value] = size_gcd(reads.get(kernel.b.value, 0), b_grains)
    # ``least`` is asked for in open bands alone, so that few rows do not each make a partial product. No measurement is
    # recorded for the half.
    return Cut(k, reads, {}, most, contracts=True, least=max(m, n) // 2)


def _position(access: Access, index: Sequence[Index]) -> Index:
    total = Index((), access.offset)
    for part, stride in zip(index, access.strides, strict=True):
        total = total + part * stride
    return total


@record
class Slices:
    """``count`` slices of ``size`` of the ``grains`` that a band's rows are made of; the last may be shorter."""

    count: int
    grains: int
    size: int

    def part(self, extent: int) -> int:
        """How much of an extent, a multiple of ``grains``, belongs to one slice."""
        return extent // self.grains * self.size

    @property
    def is_even(self) -> bool:
        """Whether all slices are of one size."""
        return not is_symbolic(self.count)


@record(eq=False, frozen=False)
class Band:
    """Kernels run slice by slice. ``local`` values have ``offsets`` in memory of ``local_bytes`` per worker."""

    kernels: list[Kernel]
    slices: Slices
    cuts: list[Cut]
    offsets: dict[Value, int] = field(default_factory=dict)
    local_bytes: int = 0

    def reads(self) -> list[Value]:
        return list(dict.fromkeys(v for k in self.kernels for v in k.reads() if v not in self.offsets))

    def writes(self) -> list[Value]:
        return [v for k in self.kernels for v in k.writes() if v not in self.offsets]

    def slice_bytes(self, value: Value) -> int:
        return self.slices.part(value.type.size_bytes)


@record(eq=False, frozen=False)
class _Grower:
    """Grows one band over the remaining kernels."""

    users: Mapping[Value, list[Kernel]]
    reads: Mapping[Kernel, list[Value]]
    outputs: set[Value]
    apart: Apart
    machine: Machine
    bands: Bands
    most: int
    kernels: list[Kernel] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    grains: int = 0
    produced: set[Value] = field(default_factory=set)
    unreadable: set[Value] = field(default_factory=set)

    def join(self, kernel: Kernel, cut: Cut | None) -> bool:
        reads = self.reads[kernel]
        if cut is None or not self.unreadable.isdisjoint(reads) or self.apart.separates(kernel, self.kernels):
            return False
        grains = size_gcd(self.grains, cut.grains)
        for value, bound in cut.reads.items():
            if value in self.produced:
                grains = size_gcd(grains, bound)
        for bound in cut.writes.values():
            grains = size_gcd(grains, bound)
        if cut.contracts and self.produced.isdisjoint(reads):
            return False  # nothing of the band in cache: better as a kernel of its own
        most = min(self.most, cut.most)
        least = self.bands.least_slices
        if typical(grains) < least:
            return False
        # Slices are of equal size where sizes are fixed, so their number divides all bounds.
        if not is_symbolic(grains) and not any(least <= d <= most for d in _divisors(grains)):
            return False
        self.grains, self.most = grains, most
        self.kernels.append(kernel)
        self.cuts.append(cut)
        for value in kernel.writes():
            (self.produced if value in cut.writes else self.unreadable).add(value)
        return True


def form_bands(
    kernels: Sequence[Kernel],
    outside: set[Value],
    after: Mapping[Kernel, set[Kernel]],
    alone: set[Kernel],
    apart: Apart,
    machine: Machine,
) -> list[Kernel | Band]:
    """Kernels in order, with runs of sliceable ones gathered into bands.

    ``after[k]`` are kernels that must have run before ``k``; values ``outside`` are read after the step; kernels in
    ``alone`` never join, and those that are to be ``apart`` are in no band together. A kernel that cannot join is
    passed over and runs after the band, with everything that depends on it. Time O(kernels * LOOK_AHEAD).
    """
    bands = machine.bands
    if bands is None:
        return list(kernels)
    users: dict[Value, list[Kernel]] = {}
    reads = {kernel: kernel.reads() for kernel in kernels}
    for kernel in kernels:
        for value in reads[kernel]:
            users.setdefault(value, []).append(kernel)
    remaining = list(kernels)
    first = 0  # of those that remain
    result: list[Kernel | Band] = []
    known = _Cuts(bands)
    cuts = {kernel: None if kernel in alone else known.of(kernel) for kernel in kernels}
    while first < len(remaining):
        if cuts[remaining[first]] is None:
            result.append(remaining[first])
            first += 1
            continue
        grower = _Grower(users, reads, outside, apart, machine, bands, bands.most_slices)
        passed: set[Kernel] = set()
        since_last = 0
        place = first
        while place < len(remaining) and since_last < LOOK_AHEAD:
            kernel = remaining[place]
            place += 1
            if cuts[kernel] is None or not passed.isdisjoint(after[kernel]) or not grower.join(kernel, cuts[kernel]):
                passed.add(kernel)
                since_last += 1
            else:
                since_last = 0
        band = _finish(grower)
        if band is None:
            result.append(remaining[first])
            first += 1
            continue
        result.append(band)
        remaining[first:place] = [k for k in remaining[first:place] if k in passed]
    return result


def _finish(grower: _Grower) -> Band | None:
    bands = grower.bands
    if len(grower.kernels) < LEAST_KERNELS:
        return None
    members = set(grower.kernels)
    local = [
        v
        for v in dict.fromkeys(v for k in grower.kernels for v in k.writes())
        if v in grower.produced and v not in grower.outputs and all(u in members for u in grower.users.get(v, ()))
    ]
    if sum(typical(v.type.size_bytes) for v in local) < bands.least_bytes:
        return None
    if is_symbolic(grower.grains):
        return _open_band(grower, local) if len(grower.kernels) >= bands.least_open_kernels else None
    # The fewest slices that fit the cache: each costs a call per kernel. If none fits, the smallest.
    best: Band | None = None
    for count in _divisors(grower.grains):
        if count < bands.least_slices or count > grower.most:
            continue
        best = Band(grower.kernels, Slices(count, count, 1), grower.cuts)
        _place_local(best, local, grower.machine)
        if typical(best.local_bytes) <= bands.slice_bytes:
            break
    return best


def _open_band(grower: _Grower, local: Sequence[Value]) -> Band:
    """Slices as large as fit the cache, but enough of them for a few workers, by the rows of a call."""
    grains, bands = grower.grains, grower.bands
    trial = Band(grower.kernels, Slices(grains, grains, TRIAL_GRAINS), grower.cuts)
    _place_local(trial, local, grower.machine)
    fitting = size_max(1, bands.slice_bytes * TRIAL_GRAINS // trial.local_bytes)
    local_bytes = sum(v.type.size_bytes for v in local)
    worthwhile = bands.least_slices * (local_bytes // bands.least_bytes)  # slices that pay for a fork
    size = size_min(fitting, -(-grains // size_max(1, size_min(worthwhile, bands.least_slices))))
    least = [bands.least_grains, *(-(-cut.least * grains // cut.grains) for cut in grower.cuts)]
    size = size_max(size, size_min(fitting, reduce(size_max, least)))
    size = size_max(size, -(-grains // bands.most_slices))
    size = -(-size // bands.least_grains) * bands.least_grains  # so that slices of any value begin at a cache line
    band = Band(grower.kernels, Slices(-(-grains // size), grains, size), grower.cuts)
    _place_local(band, local, grower.machine)
    return band


@lru_cache(maxsize=1024)
def _divisors(number: int) -> tuple[int, ...]:
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


def _typical_offset(placed: tuple[int, int, Value]) -> int:
    return typical(placed[0])


def _place_local(band: Band, local: Sequence[Value], machine: Machine) -> None:
    """First fit over the kernels of the band."""
    chosen = set(local)
    first: dict[Value, int] = {}
    last: dict[Value, int] = {}
    for time, kernel in enumerate(band.kernels):
        for value in kernel.writes():
            if value in chosen:
                first[value] = last[value] = time
        for value in kernel.reads():
            if value in chosen:
                last[value] = time
    placed: list[tuple[int, int, Value]] = []
    for value in sorted(first, key=lambda v: first[v]):
        size = machine.aligned(band.slice_bytes(value))
        offset = 0
        for start, length, other in placed:
            if last[other] < first[value] or last[value] < first[other]:
                continue
            if surely_less(offset + size - 1, start):
                break
            offset = size_max(offset, start + length)
        band.offsets[value] = offset
        insort(placed, (offset, size, value), key=_typical_offset)
        band.local_bytes = size_max(band.local_bytes, offset + size)
