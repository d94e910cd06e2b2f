"""Fast paths of eager dispatch: which op is computed by a compiled kernel, from how many elements on, and why.

``Op.eager`` is the meaning of an op: NumPy, whatever the size. What is here is used by dispatch alone, and only
while nothing is to be judged: the interpreter, constant folding, ``verify``, the laws and AUTOJIT_REFERENCE=1 never see
it (``state.reference_only``). A law holds every entry to its op's ``eager``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from autojit.core.config import config
from autojit.core.dtypes import bfloat16, float16
from autojit.core.errors import IndexOutOfRangeError
from autojit.dispatch.kernels import LARGE, evaluate_by_kernel, evaluate_when_ready
from autojit.ir.op import Op
from autojit.ops.loop_orders import as_loop
from autojit.ops.numpy_program import Program, program_of
from autojit.tensor.state import state

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from autojit.ops.attention import Attending
    from autojit.ops.convolution import Trilinear
    from autojit.ops.fused_arrays import FusedArrays
    from autojit.ops.random import RandomBits
    from autojit.ops.scattering import Scattering
    from autojit.ops.sorting import Sort

_HALVES = (float16.numpy, bfloat16.numpy)
Rule = Callable[[Any, Sequence["NDArray[Any]"]], Any]


class FastPath(NamedTuple):
    """A rule that gives the op's result, or None where it does not serve, and the elements from which on it is asked.

    The elements are the first operand's.
    """

    limit: int
    compute: Rule


def _floats(op: Op, arrays: Sequence[NDArray[Any]]) -> Any:
    """One pass over floats that NumPy computes with too."""
    dtype = arrays[-1].dtype
    return evaluate_by_kernel(op, arrays) if dtype.kind == "f" and dtype.itemsize >= 4 else None


def _series(op: Op, arrays: Sequence[NDArray[Any]]) -> Any:
    """A function of one operand that NumPy takes a series for: a copy in rows costs less, whatever the layout."""
    found = _floats(op, arrays)
    if found is not None or arrays[0].dtype.kind != "f" or arrays[0].dtype.itemsize < 4 or not arrays[0].size:
        return found
    copied = evaluate_by_kernel(op, [np.ascontiguousarray(arrays[0])])
    return None if copied is None else as_loop(copied, arrays)


def _widened(op: Op, arrays: Sequence[NDArray[Any]]) -> Any:
    """The same, 2-byte floats in float32 and rounded once, as the op's NumPy rule does it."""
    narrow = arrays[0].dtype
    if narrow not in _HALVES:
        return _floats(op, arrays)
    found = _floats(op, [a.astype(np.float32) for a in arrays])
    if found is None or op.n_outputs == 1:
        return None if found is None else found.astype(narrow)
    return (found[0].astype(narrow), *found[1:])


def _added(op: Scattering, arrays: Sequence[NDArray[Any]]) -> Any:
    """Many elements added to others; NumPy adds one after the other."""
    base, addends = arrays[:2]
    if op.combine != "add" or addends.size < LARGE or base.dtype.char not in "fd":
        return None
    try:
        return evaluate_by_kernel(op, arrays)
    except IndexOutOfRangeError:
        return None  # NumPy's way finds it too, and says which index it is


def _sorted(op: Sort, arrays: Sequence[NDArray[Any]]) -> Any:
    """All of an order, or a piece of it where selecting does not serve."""
    from autojit.ops.sorting import Sort  # one of the modules that are imported when first used

    (x,) = arrays
    if op.ranks is None:
        return evaluate_by_kernel(op, arrays)
    if x.dtype in _HALVES:
        return None
    few = op.first_few(x)
    if few is not None:
        return few
    whole = evaluate_by_kernel(Sort(op.axis, op.descending), arrays)
    return None if whole is None else op.piece_of(whole)


def _convolved(op: Trilinear, arrays: Sequence[NDArray[Any]]) -> Any:
    a, b = arrays
    if a.dtype.kind != "f" or a.dtype.itemsize < 4 or op.count_products(a.shape, b.shape) < _MANY_PRODUCTS:
        return None
    return evaluate_by_kernel(op, arrays)


_MANY_PRODUCTS = 4_000_000  # of one convolution: from here on NumPy needs so long that compiling a kernel pays


def _attended(op: Attending, arrays: Sequence[NDArray[Any]]) -> Any:
    """Attention whose scores are never all in memory, and whose dropped weights are drawn where they are used."""
    queries, keys = arrays[0], arrays[1]
    scores = math.prod(queries.shape[:-1]) * keys.shape[-2]
    return evaluate_by_kernel(op, arrays) if scores >= (LARGE if op.draws else _MANY_SCORES) else None


_MANY_SCORES = 1 << 15  # of all queries: from here on a kernel pays for being compiled; LARGE of such as are drawn for


def _random_bits(op: RandomBits, arrays: Sequence[NDArray[Any]]) -> Any:
    words = int(np.prod(op.shape))
    drawn = drawn_by_kernel("bits_like", (), arrays[0], words) if words else None
    return None if drawn is None else drawn.reshape(op.shape)


def _fused(op: Op, arrays: Sequence[NDArray[Any]]) -> Any:
    """A composite of elementwise ops; operands of other layouts are spread and copied.

    NumPy computes small ones, all but what it takes a series for: a kernel of their own would be waited for.
    """
    if max([a.size for a in arrays]) < LARGE:
        return _in_parts(op, arrays)
    if arrays[0].ndim:
        found = evaluate_by_kernel(op, arrays)
        if found is not None:
            return found
    shape = np.broadcast_shapes(*[a.shape for a in arrays])
    if not shape:
        return None
    found = evaluate_by_kernel(op, [_as_single(a, shape) for a in arrays])
    if found is None:
        found = evaluate_by_kernel(op, [np.ascontiguousarray(np.broadcast_to(a, shape)) for a in arrays])
    return as_loop(found, arrays)


def _in_parts(op: Any, arrays: Sequence[NDArray[Any]]) -> Any:
    """A small composite whose results are in row-major order; None of others."""
    given = op.in_rows(arrays)
    if given is None:
        return None
    run = calls_of(program_of(op, given))
    if given is arrays:
        _keep_short(op, arrays, run)
    return op.one_or_all(run(*given))


def calls_of(program: Program) -> Callable[..., list[Any]]:
    """The NumPy calls of a small composite, with the fast paths of its ops where it is large enough for one of them."""
    return program.by(_fast_of) if 0 < program.quick_from <= program.size else program.run


def _keep_short(op: Op, arrays: Sequence[NDArray[Any]], run: Callable[..., list[Any]]) -> None:
    """Let the composite be computed at once by ``run`` where arrays of this kind come again (``_composite_rule``)."""
    known = op.__dict__.get("_short")
    if known is None or len(known) >= _MOST_SHORT:
        known = {}
        object.__setattr__(op, "_short", known)
    known[tuple([(a.shape, a.strides, a.dtype) for a in arrays])] = run


_MOST_SHORT = 64  # kinds of operands of one composite; programs themselves are kept elsewhere


def _as_single(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """One number for all elements where that is what the array holds."""
    if array.ndim and (array.size == 1 != np.prod(shape) or (array.shape == shape and not any(array.strides))):
        first: Any = (*(0,) * array.ndim, ...)
        one: NDArray[Any] = array[first]
        return one
    return array


def _fused_arrays(op: FusedArrays, arrays: Sequence[NDArray[Any]]) -> Any:
    """A composite with reductions: one compiled step, where that cannot be the fast paths of its parts."""
    if op.is_awaited:
        found = evaluate_when_ready(op, arrays)
        if found is not None:
            return found
        results = op.program(arrays).run_by(_fast_of, arrays)
        return results[0] if op.n_outputs == 1 else tuple(results)
    program = op.program(arrays)
    if program.size >= LARGE and not program.only_spreads:  # NumPy writes those by strides, a kernel asks every element
        found = evaluate_by_kernel(op, arrays)
        if found is not None:
            return found
        results = program.run_by(_fast_of, arrays)
    else:
        run = calls_of(program)
        _keep_short(op, arrays, run)
        results = run(*arrays)
    return results[0] if op.n_outputs == 1 else tuple(results)


def _fast_of(op: Op) -> Callable[..., Any] | None:
    return op.fast


@lru_cache(maxsize=64)
def _drawing_op(composite: str, options: tuple[Any, ...]) -> Any:
    return Op.registry["fused_arrays"](composite, options)


def drawn_by_kernel(
    composite: str, options: tuple[Any, ...], key: NDArray[Any], count: int, *numbers: NDArray[Any]
) -> NDArray[np.generic] | None:
    """A vector of ``count`` numbers by the composite ``<kind>_like`` of ``composites_arrays.py``, in one kernel.

    ``numbers`` are what the composite reads besides the key. None: few numbers, where nothing is to be compiled for so
    few (`AUTOJIT_DISABLE`).
    """
    if count < LARGE and config.disable:
        return None
    op = _drawing_op(composite, options)
    # of the third only the extent is read
    operands = key[0:1].reshape(()), key[1:2].reshape(()), np.empty(count, np.uint8), *numbers
    found: NDArray[Any] | None = evaluate_by_kernel(op, operands)
    drawn: NDArray[Any] = op.eager(*operands) if found is None else found
    return drawn


def _narrow(op: Op, arrays: Sequence[NDArray[Any]]) -> Any:
    """Of bfloat16 alone: NumPy's loops over a number format of others' take ten times a kernel's time."""
    is_narrow = all([a.dtype is bfloat16.numpy for a in arrays])  # noqa: C419  (a list is faster than a generator)
    return evaluate_by_kernel(op, arrays) if is_narrow else None


def _transformed(op: Op, arrays: Sequence[NDArray[Any]]) -> Any:
    """Fourier transforms of float32 and float64."""
    return evaluate_by_kernel(op, arrays)


_MANY_POINTS = 1 << 16  # of all lines: from here on a kernel, made for its sizes, pays for being compiled
_LONG_SERIES = 64  # elements of a function that NumPy takes a series for, 60 to 180 us however few they are
_SERIES = 256  # of one that the C library has: 45 ns each, one by one
_LONG_SUM = 1 << 15  # elements; NumPy adds up fewer before a kernel has started

NARROW = (
    "add", "sub", "mul", "div", "neg", "square", "exp", "log", "sqrt", "tanh", "maximum", "minimum", "abs",
    "reciprocal", "guarded_mul",
)  # fmt: skip
"""Ops that NumPy has, in bfloat16. A kernel rounds after each of them, as NumPy does: the bits are the same.
The short way of two operands leaves these out: it does not ask for a rule.
"""

TABLE: dict[str, FastPath] = {
    **dict.fromkeys(NARROW, FastPath(LARGE, _narrow)),
    # Figures: microseconds of NumPy and of the kernel, float32, 4,096 / 32,768 elements (``python -m
    # benchmarks.fast_paths``, two cores that other work shared: a kernel's start, 14 us there, is 5 us on idle ones).
    # NumPy has no such function and calls one of Python's per element, or sums a series: erf 133, 26 / 1474, 115;
    # lgamma 1060, 123; polygamma 685, 79. Of 64: erf 3, 6; erfinv 152, 6; lgamma 59, 6. A first call waits 40 to 80 ms
    # for the kernel, once on a machine, and 2 in later processes.
    # A copy of other layouts is 1 of 2M elements' 10 ms; lgamma of them in NumPy 650
    **dict.fromkeys(("erf", "erfc"), FastPath(_SERIES, _series)),
    **dict.fromkeys(("erfinv", "lgamma", "digamma", "polygamma"), FastPath(_LONG_SERIES, _series)),
    # the same, or some 30 passes over float64 (processor time, one thread): bessel "i0" 437, 63 / 3403, 216; ndtri
    # 1119, 80 / 9762, 353; erfcx 581, 58 / 3901, 181; nextafter 61, 42 / 462, 43
    **dict.fromkeys(("bessel", "erfcx", "ndtri"), FastPath(_LONG_SERIES, _series)),
    "nextafter": FastPath(LARGE, _floats),
    # slow in NumPy, element by element: remainder 70, 28 / 546, 76; fmod 103, 34 / 921, 99; logaddexp 196, 48 /
    # 1029, 141; hypot 51, 28 / 200, 54; pow_number 32, 31 / 98, 39; where 21, 25 / 180, 36 (branches)
    **dict.fromkeys(
        ("floor_divide", "remainder", "fmod", "logaddexp", "hypot", "pow_number", "where"), FastPath(LARGE, _floats)
    ),
    # several passes with temporaries: sigmoid 26, 20 / 281, 63; sign 16, 14 / 64, 18; trunc_divide 11, 27 / 19, 26;
    # rsqrt 7, 14 / 20, 26; relu 7, 14 / 29, 18; copysign 8, 22 / 46, 29 (even at the limit, twice as fast at 100,000)
    **dict.fromkeys(
        ("sigmoid", "sign", "trunc_divide", "rsqrt", "relu", "copysign"), FastPath(LARGE, _floats)
    ),
    # exponentials without a temporary array: 58, 40 / 289, 136
    "softmax": FastPath(LARGE, _floats),
    "log_softmax": FastPath(LARGE, _floats),
    # NumPy reads a reversed axis element by element: 12, 24 / 32, 27; 83, 48 at 100,000
    "flip": FastPath(LARGE, _floats),
    # NumPy folds along an axis with one call per line, or in a Python loop: 21, 25 / 118, 50; 85, 50; 121, 33
    "cumulative": FastPath(LARGE, _widened),
    "cumulative_extreme": FastPath(LARGE, _widened),
    "linear_recurrence": FastPath(LARGE, _widened),
    # NumPy adds pairwise, with vectors: 23, 24 at 32,768 and 67, 33 at 100,000; mean 51, 39
    "sum": FastPath(_LONG_SUM, _floats),
    "mean": FastPath(_LONG_SUM, _floats),
    # NumPy's stable sort of positions on one core: 335, 101 / 19,423, 1172
    "sort": FastPath(LARGE, _sorted),
    # NumPy adds one after the other: 69, 46 / 290, 132; LARGE is asked of the addends
    "scatter": FastPath(0, _added),
    "index_update": FastPath(0, _added),
    "index_put": FastPath(0, _added),
    # the reference adds up one offset of the window after the other; the rule counts products
    "convolution": FastPath(0, _convolved),
    "convolution_input": FastPath(0, _convolved),
    "convolution_weight": FastPath(0, _convolved),
    # vectors of lines: 4096 complex lines of 64 points 2713, 150; 256 of 1024 2749, 372; one of 65,536 851, 290; real
    # ones 476, 99; 551, 224; 375, 227 (one thread)
    "fft": FastPath(_MANY_POINTS, _transformed),
    "rfft": FastPath(_MANY_POINTS, _transformed),
    "irfft": FastPath(_MANY_POINTS, _transformed),
    # no passes over scores: without dropout 32,768 scores 97, 39 and backward 114, 50; 295,000 855, 388 and 789, 436.
    # With it NumPy draws each number by ten rounds: 4,096 scores 202, 16 and 188, 19; 295,000 11,000, 729 and 11,800,
    # 779 (processor time, one thread). A first call waits 150 to 560 ms, once on a machine, and 10 to 50 later
    "attention": FastPath(0, _attended),
    "attention_adjoint": FastPath(0, _attended),
    # ten rounds of 64-bit products, each a pass: 308, 86 / 755, 254; of four words 45, 8; the rule counts words
    "random_bits": FastPath(0, _random_bits),
    # made for large arrays only: one pass instead of one per op
    "fused": FastPath(0, _fused),
    # the rule looks at the largest of its values
    "fused_arrays": FastPath(0, _fused_arrays),
}  # fmt: skip


def _rule_of(path: FastPath) -> Callable[..., Any]:
    limit, compute = path

    def fast(op: Op, *arrays: NDArray[Any]) -> Any:
        size = arrays[0].size
        if size < limit or state.reference or (0 < limit < LARGE > size and config.disable):
            return op.eager(*arrays)
        found = compute(op, arrays)
        return op.eager(*arrays) if found is None else found

    return fast


def _composite_rule(path: FastPath) -> Callable[..., Any]:
    """``_rule_of`` for composites: of small arrays, whose calls of NumPy's are known, these and nothing else."""
    long_way = _rule_of(path)

    def fast(op: Op, *arrays: NDArray[Any]) -> Any:
        known = op.__dict__.get("_short")
        if known is not None and not state.reference:
            run = known.get(tuple([(a.shape, a.strides, a.dtype) for a in arrays]))
            if run is not None:
                found = run(*arrays)
                return found[0] if len(found) == 1 else tuple(found)
        return long_way(op, *arrays)

    return fast


def _pair_rule_of(op: Any, path: FastPath) -> Callable[..., Any]:
    """The same for an op of two operands and no parameters, which dispatch does not ask for its ``fast``."""
    ufunc, (limit, compute) = type(op).ufunc, path

    def fast(x: NDArray[Any], y: NDArray[Any]) -> Any:
        if x.size < limit or state.reference:
            return ufunc(x, y)
        found = compute(op, (x, y))
        return ufunc(x, y) if found is None else found

    return fast


Op.fast_paths.update({name: (path.limit, _rule_of(path)) for name, path in TABLE.items()})
Op.fast_paths.update({name: (0, _composite_rule(TABLE[name])) for name in ("fused", "fused_arrays")})
for _name in TABLE.keys() & Op.registry.keys():  # those that are imported later find theirs in ``fast_paths``
    _op: Any = Op.registry[_name]
    _op.fast_from, _op.fast = Op.fast_paths[_name]
    if _op.of_pair is not None and _name not in NARROW:
        _op.of_pair = staticmethod(_pair_rule_of(_op(), TABLE[_name]))
