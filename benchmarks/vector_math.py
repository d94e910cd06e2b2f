"""Accuracy and speed of the generated vector mathematics: ``python -m benchmarks.vector_math [name ...]``.

Prints, per function and dtype, the greatest error in ulp over ``--points`` random points and the edge values, where it
was met, and nanoseconds per element beside NumPy's and torch's (where installed). References are 80-bit long doubles of
the C library on x86-64 Linux; elsewhere, and where C has no such function, mpmath on fewer points.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import platform
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import mpmath as mp
import numpy as np
from numpy.typing import NDArray

from autojit.codegen.emitter import Scalar, ScalarEmitter
from autojit.codegen.scalar import memory_type
from autojit.codegen.target import HostTarget, host_target
from autojit.core.dtypes import DType, float32, float64
from autojit.runtime import llvm, loader

Array = NDArray[Any]
Build = Callable[..., Scalar]  # (emitter, *operands) -> result

TIMED_ELEMENTS = 65536
TRIES = 25
SLOW_REFERENCE_POINTS = 3000

# ---- kernels ---------------------------------------------------------------------------------------------------------


class Kernel:
    """A loop that applies a scalar expression to arrays of equal length, compiled like a fused elementwise kernel."""

    def __init__(
        self, build: Build, operands: Sequence[DType], result: DType, target: HostTarget | None = None
    ) -> None:
        self.result = result
        self.target = target or host_target()
        self.text = loop_text(build, operands)
        self._object = loader.load(llvm.compile_to_object(self.text, self.target))
        signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(operands) + 1), ctypes.c_int64)
        self._function = signature(self._object.address("kernel"))

    def __call__(self, *operands: Array, out: Array | None = None) -> Array:
        """Apply to C-contiguous arrays of the operand dtypes; a new array unless ``out`` is given."""
        result = np.empty(operands[0].shape, self.result.numpy) if out is None else out
        assert all(x.flags.c_contiguous and x.size == result.size for x in operands)
        self._function(result.ctypes.data, *(x.ctypes.data for x in operands), result.size)
        return result

    def assembly(self) -> str:
        return llvm.assembly(self.text, self.target)


def loop_text(build: Build, operands: Sequence[DType]) -> str:
    """The module ``void kernel(ptr out, ptr in..., i64 n)``; n may be 0."""
    emit = ScalarEmitter()
    scalars = []
    for i, dtype in enumerate(operands):
        emit.lines.append(f"  %p{i} = getelementptr {memory_type(dtype)}, ptr %in{i}, i64 %i")
        scalars.append(emit.load(f"%p{i}", dtype, ", !llvm.access.group !0"))
    value = build(emit, *scalars)
    emit.lines.append(f"  %q = getelementptr {memory_type(value.dtype)}, ptr %out, i64 %i")
    emit.store(value, "%q", ", !llvm.access.group !0")
    inputs = "".join(f"ptr %in{i}, " for i in range(len(operands)))
    return "\n".join(
        [
            *emit.definitions.values(),
            f"define void @kernel(ptr %out, {inputs}i64 %n) {{",
            "entry:",
            "  %empty = icmp eq i64 %n, 0",
            "  br i1 %empty, label %done, label %loop",
            "loop:",
            "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]",
            *emit.lines,
            "  %next = add nuw nsw i64 %i, 1",
            "  %again = icmp ult i64 %next, %n",
            "  br i1 %again, label %loop, label %done, !llvm.loop !1",
            "done:",
            "  ret void",
            "}",
            "!0 = distinct !{}",
            "!1 = distinct !{!1, !2}",
            '!2 = !{!"llvm.loop.parallel_accesses", !0}',
        ]
    )


@cache
def function_kernel(name: str, dtype: DType, arity: int, target: HostTarget | None = None) -> Kernel:
    """The kernel of one function of the emitter."""
    return Kernel(lambda emit, *xs: getattr(emit, name)(*xs), [dtype] * arity, dtype, target)


# ---- functions and their points --------------------------------------------------------------------------------------


class Case(NamedTuple):
    """A function: its mpmath form, its C long double name if there is one, NumPy and torch names, allowed ulp."""

    name: str
    exact: Callable[..., Any]
    c_name: str = ""
    numpy_name: str = ""
    torch_name: str = ""
    arity: int = 1
    tolerance: float = 2.0
    domain: tuple[float, float] = (-math.inf, math.inf)


def _mp_sigmoid(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x))


def _mp_lgamma(x: Any) -> Any:
    return mp.log(abs(mp.gamma(x))) if abs(x) < 1e6 else mp.re(mp.loggamma(x))


def _same(name: str, exact: Callable[..., Any], **details: Any) -> Case:
    return Case(name, exact, **{"c_name": f"{name}l", "numpy_name": name, "torch_name": name, **details})


CASES: dict[str, Case] = {
    case.name: case
    for case in (
        _same("exp", mp.exp),
        _same("exp2", lambda x: mp.power(2, x)),
        _same("expm1", mp.expm1),
        _same("log", mp.log, domain=(0.0, math.inf)),
        _same("log2", lambda x: mp.log(x, 2), domain=(0.0, math.inf)),
        _same("log10", mp.log10, domain=(0.0, math.inf)),
        _same("log1p", mp.log1p, domain=(-1.0, math.inf)),
        _same("sin", mp.sin),
        _same("cos", mp.cos),
        _same("tan", mp.tan),
        _same("asin", mp.asin, numpy_name="arcsin", domain=(-1.0, 1.0)),
        _same("acos", mp.acos, numpy_name="arccos", domain=(-1.0, 1.0)),
        _same("atan", mp.atan, numpy_name="arctan"),
        _same("sinh", mp.sinh),
        _same("cosh", mp.cosh),
        _same("tanh", mp.tanh),
        _same("asinh", mp.asinh, numpy_name="arcsinh"),
        _same("acosh", mp.acosh, numpy_name="arccosh", domain=(1.0, math.inf)),
        _same("atanh", mp.atanh, numpy_name="arctanh", domain=(-1.0, 1.0)),
        Case("sigmoid", _mp_sigmoid, torch_name="sigmoid"),
        _same("erf", mp.erf, numpy_name=""),
        _same("erfc", mp.erfc, numpy_name=""),
        Case("erfinv", mp.erfinv, torch_name="erfinv", domain=(-1.0, 1.0)),
        _same("lgamma", _mp_lgamma, numpy_name="", domain=(0.0, math.inf)),
        Case("digamma", mp.digamma, torch_name="digamma", domain=(0.0, math.inf)),
        Case("sqrt", mp.sqrt, "sqrtl", "sqrt", "sqrt", domain=(0.0, math.inf)),
        Case("rsqrt", lambda x: 1 / mp.sqrt(x), torch_name="rsqrt", domain=(0.0, math.inf)),
        _same("pow", mp.power, numpy_name="power", arity=2),
        _same("atan2", mp.atan2, numpy_name="arctan2", arity=2),
        _same("hypot", mp.hypot, arity=2),
    )
}

_EDGES = (
    0.25, 0.41421357, 0.5, 0.55, 0.70710677, 0.75, 0.92, 0.93, 1.0, 1.41421357, 1.5, 2.0, 2.41421356, 3.0, 3.5,
    4.0, 6.0, 8.0, 9.01, 9.1, 10.05, 10.06, 17.3, 19.1, 26.5, 26.6, 27.2, 36.7, 38.0, 87.33, 88.0, 88.7228,
    88.72284, 89.415, 89.416, 103.9, 103.97, 104.0, 126.0, 127.0, 128.0, 149.0, 150.0, 708.4, 709.78, 709.79,
    710.475, 710.476, 745.1, 745.13, 746.0, 1022.0, 1023.0, 1024.0, 1074.0, 1075.0, 99999.0, 100001.0, 1e9,
    1.1e9, 1e15, 1e22, 1e30, math.pi / 4, math.pi / 2, math.pi,
    6381956970095103.0 * 2.0**797, 16367173.0 * 2.0**72,  # the doubles and floats nearest to a multiple of pi/2
)  # fmt: skip


def edge_values(dtype: DType) -> Array:
    """Finite values of both signs where something changes: range ends, denormals, splits, and their neighbours.

    There is one zero, without a sign: exact references know no other.
    """
    info = np.finfo(dtype.numpy)
    special = [info.smallest_subnormal, 3 * info.smallest_subnormal, info.tiny, info.eps, info.max]
    with np.errstate(over="ignore"):
        values = np.array([*special, *_EDGES]).astype(dtype.numpy)
    values = values[np.isfinite(values)]
    below = np.nextafter(values, dtype.numpy.type(0))
    above = np.nextafter(values[values < info.max], dtype.numpy.type(np.inf))
    values = np.concatenate([values, below, above])
    return np.unique(np.concatenate([values, -values, np.zeros(1, dtype.numpy)]) + dtype.numpy.type(0))


def sample(case: Case, dtype: DType, points: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """Edge values and random points (all magnitudes, and dense where functions bend) inside the domain."""
    if case.name == "pow":
        return _pow_points(dtype, points, rng)
    return tuple(_scattered(case, dtype, points, rng) for _ in range(case.arity))


def _scattered(case: Case, dtype: DType, points: int, rng: np.random.Generator) -> Array:
    share = points // 8
    unit = rng.uniform(-1, 1, share)
    largest = 127.9 if dtype is float32 else 1023.9
    parts = [
        np.exp2(rng.uniform(-largest, largest, share)) * rng.choice([-1.0, 1.0], share),
        unit,
        4 * rng.uniform(-1, 1, share),
        25 * rng.uniform(-1, 1, share),
        largest * 0.7 * rng.uniform(-1, 1, share),
        np.exp(rng.uniform(-30, 3, share)) * rng.choice([-1.0, 1.0], share),
        1 + np.exp(rng.uniform(-35, -0.5, share)) * rng.choice([-1.0, 1.0], share),
        np.pi / 2 * rng.integers(-(2**20), 2**20, share),
    ]
    values = np.concatenate(parts).astype(dtype.numpy)
    edges = edge_values(dtype)
    if case.arity > 1:
        edges = rng.permutation(edges)
    values = np.concatenate([edges, values])
    return values if case.arity > 1 else values[(values >= case.domain[0]) & (values <= case.domain[1])]


def _pow_points(dtype: DType, points: int, rng: np.random.Generator) -> tuple[Array, Array]:
    largest = 88.0 if dtype is float32 else 708.0
    half = points // 2
    wide = np.exp(rng.uniform(-0.9 * largest, 0.9 * largest, half))
    near_one = 1 + rng.uniform(-0.3, 0.4, half)
    x = np.concatenate([wide, near_one])
    y = rng.uniform(-1, 1, 2 * half) * largest / np.maximum(np.abs(np.log(x)), 1e-3)
    return x.astype(dtype.numpy), y.astype(dtype.numpy)


# ---- references and errors -------------------------------------------------------------------------------------------

Pair = tuple[Array, Array]  # float64 arrays whose sum is the reference


def exact_reference(case: Case, operands: Sequence[Array]) -> Pair:
    """By mpmath in 60 digits."""
    high, low = np.empty(operands[0].size), np.empty(operands[0].size)
    with mp.workdps(60):
        for i, xs in enumerate(zip(*(x.tolist() for x in operands), strict=True)):
            value = _exact_value(case, xs)
            high[i] = float(value)
            low[i] = float(value - mp.mpf(high[i])) if np.isfinite(high[i]) else 0.0
    return high, low


def _exact_value(case: Case, operands: Sequence[float]) -> Any:
    if abs(operands[0]) > 2e3 and case.name in (
        "exp",
        "exp2",
        "expm1",
        "sinh",
        "cosh",
        "sigmoid",
        "erfc",
        "tanh",
        "erf",
    ):
        operands = [math.copysign(1e4, operands[0])]  # saturated, and mpmath would need the digits of e^(10^300)
    try:
        value = case.exact(*map(mp.mpf, operands))
    except (ValueError, ZeroDivisionError):
        return mp.mpf("inf") if case.name != "digamma" and case.name[:3] != "log" else mp.mpf("-inf")
    return mp.re(value)


def has_c_reference() -> bool:
    return platform.system() == "Linux" and platform.machine() == "x86_64"


@cache
def _c_kernel(c_name: str, arity: int) -> tuple[Any, Any]:
    """``void(ptr high, ptr low, ptr in..., i64 n)`` over float64 arrays, calling the C library in 80 bits."""
    loads = []
    for i in range(arity):
        loads += [
            f"  %p{i} = getelementptr double, ptr %in{i}, i64 %i",
            f"  %d{i} = load double, ptr %p{i}",
            f"  %x{i} = fpext double %d{i} to x86_fp80",
        ]
    inputs = "".join(f"ptr %in{i}, " for i in range(arity))
    arguments = ", ".join(f"x86_fp80 %x{i}" for i in range(arity))
    text = "\n".join(
        [
            f"declare x86_fp80 @{c_name}({', '.join(['x86_fp80'] * arity)})",
            f"define void @kernel(ptr %high, ptr %low, {inputs}i64 %n) {{",
            "entry:",
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]",
            *loads,
            f"  %r = call x86_fp80 @{c_name}({arguments})",
            "  %h = fptrunc x86_fp80 %r to double",
            "  %back = fpext double %h to x86_fp80",
            "  %rest = fsub x86_fp80 %r, %back",
            "  %l = fptrunc x86_fp80 %rest to double",
            "  %hp = getelementptr double, ptr %high, i64 %i",
            "  %lp = getelementptr double, ptr %low, i64 %i",
            "  store double %h, ptr %hp",
            "  store double %l, ptr %lp",
            "  %next = add i64 %i, 1",
            "  %again = icmp ult i64 %next, %n",
            "  br i1 %again, label %loop, label %done",
            "done:",
            "  ret void",
            "}",
        ]
    )
    loaded = loader.load(llvm.compile_to_object(text, host_target()))
    signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (2 + arity), ctypes.c_int64)
    return signature(loaded.address("kernel")), loaded


def c_reference(case: Case, operands: Sequence[Array]) -> Pair:
    """By the C library's long doubles: 64-bit significands, an error of about 2^-11 ulp of float64."""
    function, _ = _c_kernel(case.c_name, case.arity)
    wide = [np.ascontiguousarray(x, np.float64) for x in operands]
    high, low = np.empty(wide[0].size), np.empty(wide[0].size)
    function(high.ctypes.data, low.ctypes.data, *(x.ctypes.data for x in wide), high.size)
    return high, np.where(np.isfinite(high), low, 0.0)


def ulp_errors(got: Array, reference: Pair, dtype: DType) -> Array:
    """|got - reference| in units in the last place of the reference; infinite where the kinds differ."""
    high, low = reference
    digits, least = (24, -149) if dtype is float32 else (53, -1074)
    with np.errstate(all="ignore"):
        rounded = high.astype(dtype.numpy)
        _, exponent = np.frexp(high)
        exponent = np.maximum(exponent - digits, least)
        difference = np.abs((got.astype(np.float64) - high) - low)
        error = np.ldexp(difference, -exponent)
        # One step beyond the greatest number is where infinity stands.
        greatest = float(np.finfo(dtype.numpy).max)
        beside = np.isinf(got) & (np.abs(high) >= greatest * (1 - 2.0 ** (1 - digits)))
        beside |= np.isinf(rounded) & (np.abs(got) == greatest) & (np.sign(got) == np.sign(rounded))
        same = (got == rounded) | (np.isnan(got) & np.isnan(rounded)) | beside
    return np.where(np.isfinite(got) & np.isfinite(rounded), error, np.where(same, 0.0, np.inf))


# ---- the campaign ----------------------------------------------------------------------------------------------------


def nanoseconds(call: Callable[[], object]) -> float:
    """Least time per element of a call over TIMED_ELEMENTS elements."""
    best = math.inf
    for _ in range(TRIES):
        started = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - started)
    return best / TIMED_ELEMENTS * 1e9


def timed_operands(case: Case, dtype: DType) -> list[Array]:
    low, high = max(case.domain[0], -3.0), min(case.domain[1], 3.0)
    if case.name == "pow":
        low = 0.0
    values = np.linspace(low, high, TIMED_ELEMENTS + 2)[1:-1].astype(dtype.numpy)
    return [values] + [values[::-1].copy() for _ in range(case.arity - 1)]


def timings(case: Case, dtype: DType) -> list[str]:
    operands = timed_operands(case, dtype)
    kernel, out = function_kernel(case.name, dtype, case.arity), np.empty(TIMED_ELEMENTS, dtype.numpy)
    found = [f"{nanoseconds(lambda: kernel(*operands, out=out)):8.2f}"]
    peer = getattr(np, case.numpy_name, None) if case.numpy_name else None
    found.append("       -" if peer is None else f"{nanoseconds(lambda: peer(*operands, out=out)):8.2f}")
    return [*found, _torch_time(case, operands)]


def _torch_time(case: Case, operands: Sequence[Array]) -> str:
    try:
        import torch
    except ImportError:
        return "       -"
    function = getattr(torch, case.torch_name, None)
    if function is None:
        return "       -"
    torch.set_num_threads(1)
    tensors = [torch.from_numpy(x) for x in operands]
    out = torch.empty_like(tensors[0])
    return f"{nanoseconds(lambda: function(*tensors, out=out)):8.2f}"


def measure(case: Case, dtype: DType, points: int) -> str:
    """One line of the table."""
    by_c = bool(case.c_name) and has_c_reference()
    operands = sample(case, dtype, points if by_c else min(points, SLOW_REFERENCE_POINTS), np.random.default_rng(0))
    got = function_kernel(case.name, dtype, case.arity)(*operands)
    errors = ulp_errors(got, (c_reference if by_c else exact_reference)(case, operands), dtype)
    worst = int(np.argmax(errors))
    at = ", ".join(f"{float(x[worst])!r}" for x in operands)
    times = " ".join(timings(case, dtype))
    return f"{case.name:9}{dtype.short:5}{errors.size:9}{errors[worst]:7.2f}  {times}   {at}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*CASES, []], help="functions; all if none")
    parser.add_argument("--points", type=int, default=1_000_000)
    arguments = parser.parse_args()
    print("function      points    ulp   own ns NumPy ns torch ns   worst at")
    for name in arguments.names or CASES:
        for dtype in (float32, float64):
            print(measure(CASES[name], dtype, arguments.points), flush=True)


if __name__ == "__main__":
    main()
