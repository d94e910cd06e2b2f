"""Random small graphs, compiled and compared with the interpreter.

``graph_case(seed)`` draws a graph of 5 to 20 ops over all dtypes that have a native form: elementwise chains with
broadcasts, reductions over random axes, reshapes, permutations, slices, strided views, pads, flips, concatenations,
slice updates, gathers, scatters, scans, sorts and matrix products, over extents that include 0, 1, primes and more
than a chunk.

``python -m tests.fuzz_graphs 2000 [first seed] [how]`` runs a campaign and prints every seed that fails;
``how`` joins some of ``fine``, ``checked``, ``donated`` by commas (see ``cut``).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

import autojit.ops as ops
from autojit.core.config import config
from autojit.core.dtypes import DType, bool_, float16, float32, float64, int32, int64, uint8
from autojit.core.types import TensorType
from autojit.ir import Graph, GraphBuilder, Op, evaluate, verify
from autojit.ir.op import bind
from autojit.ops.indexing import Gather, GatherNd, IndexSelect
from autojit.ops.reinterpret import AsStrided
from autojit.ops.scattering import IndexPut, IndexUpdate, Scatter
from tests.codegen.agreement import check_compiled, check_donated, check_fenced
from tests.on_cpu import compiling_with

EXTENTS = (1, 2, 3, 4, 5, 7, 8, 13, 16, 31)
WEIGHTED_DTYPES = (float32, float32, float32, float64, int64, int32, bool_, uint8, float16)
MAX_ELEMENTS = 20_000
ULPS = 64.0  # of the largest magnitude: chains of up to 20 ops, sums in another order
UNARY_FLOAT = ("neg", "abs", "exp", "sqrt", "square", "floor", "relu", "sign", "is_nan", "reciprocal", "rsqrt")
UNARY = ("neg", "abs", "square", "sign", "relu")
BINARY = ("add", "sub", "mul", "maximum", "minimum")
COMPARE = ("lt", "le", "eq", "ne", "gt", "ge")


class Drawer:
    """Draws one graph op by op; every method appends the values it makes to ``pool``."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.builder = GraphBuilder()
        self.pool: list[Any] = []
        self.rules: list[Callable[[], Any]] = [
            self.unary, self.unary, self.binary, self.binary, self.binary, self.compare, self.where, self.cast,
            self.reduce, self.reduce, self.reduce, self.normalize, self.arg_reduce, self.reshape, self.permute,
            self.slice, self.pad, self.flip, self.concatenate, self.broadcast, self.slice_update, self.gather,
            self.index_select, self.gather_nd, self.scatter, self.index_update, self.index_put, self.matmul,
            self.cumulative, self.iota, self.diagonal, self.unfold, self.strided, self.sort,
        ]  # fmt: skip

    # -- choices

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def pick(self, items: Any) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def operand(self, test: Callable[[TensorType], bool] = lambda t: True) -> Any:
        """A value of the pool, the later the likelier, that passes the test; a new input if none does."""
        found = [x for x in self.pool if test(x.spec)]
        if not found or self.chance(0.06):
            return None
        return found[-1 - min(int(self.rng.geometric(0.35)) - 1, len(found) - 1)]

    def extent(self) -> int:
        draw = self.rng.random()
        if draw < 0.03:
            return 0
        if draw < 0.07:
            return int(self.pick((1031, 1500, 2048)))
        return int(self.pick(EXTENTS))

    def shape(self) -> tuple[int, ...]:
        while True:
            shape = tuple(self.extent() for _ in range(int(self.rng.integers(0, 5))))
            if prod(shape) <= MAX_ELEMENTS:
                return shape

    def input(self, shape: tuple[int, ...] | None = None, dtype: DType | None = None) -> Any:
        chosen = self.shape() if shape is None else shape
        value = self.builder.input(TensorType(chosen, dtype or self.pick(WEIGHTED_DTYPES)))
        x = self.builder.tracer(value)
        self.pool.append(x)
        return x

    def any(self, test: Callable[[TensorType], bool] = lambda t: True, dtype: DType | None = None) -> Any:
        both = lambda t: test(t) and (dtype is None or t.dtype is dtype)
        for _ in range(20):
            x = self.operand(both)
            if x is not None:
                return x
            if test(self.input(dtype=dtype).spec):
                return self.pool[-1]
        return self.input((3, 4), dtype)

    def like(self, x: Any, shape: tuple[int, ...] | None = None) -> Any:
        """An operand of x's dtype that broadcasts with it (or has ``shape``)."""
        target = x.spec.shape if shape is None else shape

        def fits(t: TensorType) -> bool:
            if t.dtype is not x.spec.dtype:
                return False
            if shape is not None:
                return t.shape == shape
            pairs = zip(reversed(t.shape), reversed(target), strict=False)
            return t.ndim <= len(target) and all(a in (1, b) for a, b in pairs)

        found = self.operand(fits)
        if found is not None and self.chance(0.8):
            return found
        dims = target if shape is not None else self._stretched(target)
        return self.input(dims, x.spec.dtype)

    def _stretched(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        start = int(self.rng.integers(0, len(shape) + 1)) if self.chance(0.3) else 0
        return tuple(1 if self.chance(0.25) else n for n in shape[start:])

    def apply(self, name: str, *operands: Any, **parameters: Any) -> Any:
        return bind(Op.registry[name](**parameters), *operands)  # type: ignore[call-arg]

    # -- rules

    def unary(self) -> Any:
        x = self.any(lambda t: t.dtype.kind in ("float", "int"))
        return self.apply(self.pick(UNARY_FLOAT if x.spec.dtype.kind == "float" else UNARY), x)

    def binary(self) -> Any:
        x = self.any(lambda t: t.dtype is not bool_)
        y = self.like(x)
        pair = (x, y) if self.chance(0.5) else (y, x)
        if x.spec.dtype.kind == "float" and self.chance(0.2):
            return self.apply("div", *pair)
        return self.apply(self.pick(BINARY), *pair)

    def compare(self) -> Any:
        x = self.any()
        return self.apply(self.pick(COMPARE), x, self.like(x))

    def where(self) -> Any:
        x = self.any()
        condition = self.like(self.any(dtype=bool_), x.spec.shape) if self.chance(0.5) else self.compare_of(x)
        return self.apply("where", condition, x, self.like(x))

    def compare_of(self, x: Any) -> Any:
        return self.apply(self.pick(COMPARE), x, self.like(x))

    def cast(self) -> Any:
        x = self.any(lambda t: t.dtype.kind != "float")
        return self.apply("cast", x, dtype=self.pick((float32, float64, int64)))

    def axes_of(self, x: Any) -> tuple[int, ...]:
        axes = tuple(a for a in range(x.spec.ndim) if self.chance(0.45))
        return axes or ((int(self.rng.integers(x.spec.ndim)),) if x.spec.ndim else ())

    def reduce(self) -> Any:
        x = self.any(lambda t: t.ndim > 0)
        axes = self.axes_of(x)
        names = ["any_true", "all_true"] if x.spec.dtype is bool_ else ["sum", "sum", "sum", "prod"]
        if prod(x.spec.shape[a] for a in axes):
            names += ["amax", "amin"]
        return self.apply(self.pick(names), x, axes=axes)

    def normalize(self) -> Any:
        """(x - max) / sum and the like: a reduction read back by the nest it came from."""
        x = self.any(lambda t: t.ndim > 0 and t.dtype.kind == "float" and t.size > 0)
        axes = self.axes_of(x)
        kept = tuple(1 if a in axes else n for a, n in enumerate(x.spec.shape))
        top = ops.reshape(self.apply("amax", x, axes=axes), kept)
        shifted = self.apply("sub", x, top)
        powers = self.apply("exp", shifted) if self.chance(0.5) else self.apply("square", shifted)
        if self.chance(0.5):
            return powers
        total = ops.reshape(self.apply("sum", powers, axes=axes), kept)
        return self.apply("sub" if self.chance(0.5) else "mul", powers, total)

    def arg_reduce(self) -> Any:
        x = self.any(lambda t: t.ndim > 0 and t.size > 0)
        return self.apply(self.pick(("argmax", "argmin")), x, axes=self.axes_of(x)[:1])

    def reshape(self) -> Any:
        x = self.any(lambda t: t.size > 0)
        return ops.reshape(x, self._factors(x.spec.size))

    def _factors(self, size: int) -> tuple[int, ...]:
        shape: list[int] = []
        while size > 1 and len(shape) < 3:
            divisors = [d for d in range(2, min(size, 64) + 1) if size % d == 0]
            if not divisors or self.chance(0.3):
                break
            shape.append(int(self.pick(divisors)))
            size //= shape[-1]
        return (*shape, size) if size != 1 or self.chance(0.3) else tuple(shape)

    def permute(self) -> Any:
        x = self.any(lambda t: t.ndim > 1)
        return ops.permute(x, tuple(int(a) for a in self.rng.permutation(x.spec.ndim)))

    def slice(self) -> Any:
        x = self.any(lambda t: t.ndim > 0)
        starts, stops, steps = [], [], []
        for n in x.spec.shape:
            start = int(self.rng.integers(0, n + 1)) if self.chance(0.4) else 0
            starts.append(start)
            stops.append(int(self.rng.integers(start, n + 1)) if self.chance(0.4) else n)
            steps.append(int(self.rng.integers(1, 4)) if self.chance(0.3) else 1)
        return ops.strided_slice(x, starts, stops, steps)

    def pad(self) -> Any:
        x = self.any(lambda t: 0 < t.ndim and t.size * 9 < MAX_ELEMENTS)
        widths = lambda: tuple(int(self.rng.integers(0, 3)) for _ in x.spec.shape)
        interior = widths() if self.chance(0.3) else None
        return ops.pad(x, widths(), widths(), 1 if self.chance(0.3) else 0, interior)

    def flip(self) -> Any:
        x = self.any(lambda t: t.ndim > 0)
        return self.apply("flip", x, axes=self.axes_of(x))

    def concatenate(self) -> Any:
        x = self.any(lambda t: t.ndim > 0 and 2 * t.size < MAX_ELEMENTS)
        axis = int(self.rng.integers(x.spec.ndim))
        other = list(x.spec.shape)
        other[axis] = int(self.pick((0, 1, 2, 5)))
        parts = [x, self.like(x, tuple(other)), *([x] if self.chance(0.3) else [])]
        return self.apply("concatenate", *(parts if self.chance(0.5) else parts[::-1]), axis=axis)

    def broadcast(self) -> Any:
        x = self.any(lambda t: t.size <= 2000)
        shape = tuple(int(self.pick((2, 3, 5))) if n == 1 else n for n in x.spec.shape)
        return ops.broadcast_to(x, (int(self.pick((1, 2, 4))), *shape) if self.chance(0.5) else shape)

    def slice_update(self) -> Any:
        base = self.any(lambda t: t.ndim > 0 and t.size > 0)
        starts, extents, steps = [], [], []
        for n in base.spec.shape:
            start, step = int(self.rng.integers(0, n)), int(self.rng.integers(1, 3))
            starts.append(start)
            steps.append(step)
            extents.append(int(self.rng.integers(0, (n - 1 - start) // step + 2)))
        return ops.slice_update(base, self.like(base, tuple(extents)), starts, steps)

    def positions(self, shape: tuple[int, ...], extent: int) -> Any:
        """An index operand: an input whose drawn elements fit ``extent`` (recorded in its name)."""
        value = self.builder.input(TensorType(shape, int64), f"index{len(self.builder.inputs)}_{extent}")
        return self.builder.tracer(value)

    def gather(self) -> Any:
        x = self.any(lambda t: t.ndim > 0 and t.size > 0)
        axis = int(self.rng.integers(x.spec.ndim))
        shape = tuple(int(self.rng.integers(0, n + 1)) for n in x.spec.shape)
        return bind(Gather(axis), x, self.positions(shape, x.spec.shape[axis]))

    def index_select(self) -> Any:
        x = self.any(lambda t: t.ndim > 0 and t.size > 0)
        axis = int(self.rng.integers(x.spec.ndim))
        return bind(IndexSelect(axis), x, self.positions((int(self.pick((0, 1, 3, 9))),), x.spec.shape[axis]))

    def gather_nd(self) -> Any:
        x = self.any(lambda t: t.ndim > 0 and 0 < t.size < 3000)
        return bind(GatherNd(), x, *self.leading_positions(x))

    def leading_positions(self, x: Any) -> list[Any]:
        count = int(self.rng.integers(1, x.spec.ndim + 1))
        shape = self.pick(((3,), (2, 3), (1, 2)))
        return [self.positions(self._stretched(shape), x.spec.shape[k]) for k in range(count)]

    def scatter(self) -> Any:
        base = self.any(lambda t: t.ndim > 0 and t.size > 0)
        axis = int(self.rng.integers(base.spec.ndim))
        shape = tuple(int(self.rng.integers(0, n + 1)) for n in base.spec.shape)
        src = self.like(base, shape)
        return bind(Scatter(axis, "add"), base, src, self.positions(shape, base.spec.shape[axis]))

    def index_update(self) -> Any:
        base = self.any(lambda t: t.ndim > 0 and t.size > 0)
        axis = int(self.rng.integers(base.spec.ndim))
        count = int(self.pick((0, 1, 3, 6)))
        shape = (*base.spec.shape[:axis], count, *base.spec.shape[axis + 1 :])
        combine = "add" if count > 1 else "set"
        return bind(
            IndexUpdate(axis, combine), base, self.like(base, shape), self.positions((count,), base.spec.shape[axis])
        )

    def index_put(self) -> Any:
        base = self.any(lambda t: t.ndim > 0 and 0 < t.size < 3000)
        indices = self.leading_positions(base)
        shape = GatherNd().result_type(base.spec, *(i.spec for i in indices)).shape
        return bind(IndexPut("add"), base, self.like(base, shape), *indices)

    def matmul(self) -> Any:
        x = self.any(lambda t: t.ndim >= 2 and t.size * 8 < MAX_ELEMENTS and t.dtype is not bool_)
        *batch, _, k = x.spec.shape
        return self.apply("matmul", x, self.like(x, (*batch, k, int(self.pick((1, 2, 5, 17))))))

    def cumulative(self) -> Any:
        x = self.any(lambda t: t.ndim > 0 and t.dtype is not bool_)
        axis, reverse = int(self.rng.integers(x.spec.ndim)), self.chance(0.4)
        which = self.rng.random()
        if which < 0.5:
            return self.apply("cumulative", x, kind="sum", axis=axis, reverse=reverse)
        if which < 0.75:
            values, places = self.apply("cumulative_extreme", x, kind=self.pick(("max", "min")), axis=axis)
            return values if self.chance(0.5) else places
        half = self.like(x, x.spec.shape)
        return self.apply("linear_recurrence", half, x, axis=axis, reverse=reverse)

    def iota(self) -> Any:
        x = self.any(lambda t: t.ndim > 0 and t.dtype is not bool_)
        source = self.builder.apply(
            Op.registry["iota"](x.spec.shape, int(self.rng.integers(x.spec.ndim)), x.spec.dtype), ()
        )  # type: ignore[call-arg]
        return self.apply(self.pick(BINARY), x, self.builder.tracer(source[0]))

    def diagonal(self) -> Any:
        x = self.any(lambda t: t.ndim >= 2)
        return ops.diagonal(x, int(self.rng.integers(-2, 3)))

    def unfold(self) -> Any:
        x = self.any(lambda t: 0 < t.ndim < 4 and t.size < 3000 and max(t.shape) > 1)
        axis = int(np.argmax(x.spec.shape))
        size = int(self.rng.integers(1, min(x.spec.shape[axis], 4) + 1))
        return ops.unfold(x, axis, size, int(self.rng.integers(1, 4)))

    def strided(self) -> Any:
        """The operand's shape or another, by any steps that stay within it."""
        x = self.any(lambda t: 0 < t.ndim < 4 and 0 < t.size < 3000)
        shape = list(x.spec.shape) if self.chance(0.5) else [int(n) for n in self.rng.integers(1, 5, 2)]
        room, strides = x.spec.size - 1, []
        for n in shape:
            most = room // max(n - 1, 1)
            strides.append(int(self.rng.integers(0, min(most, 40) + 1)))
            room -= (n - 1) * strides[-1]
        if room < 0:
            return x
        return bind(AsStrided(tuple(shape), tuple(strides), int(self.rng.integers(0, room + 1)), x.spec.size), x)

    def sort(self) -> Any:
        x = self.any(lambda t: t.ndim > 0 and t.size < 3000)
        if not self.chance(0.3):
            return self.apply("square", x) if x.spec.dtype is not bool_ else x
        return ops.sort(x, int(self.rng.integers(x.spec.ndim)))[0]

    # -- the graph

    def run(self) -> Graph:
        self.input()
        made: list[Any] = []
        for _ in range(int(self.rng.integers(5, 21))):
            y = self.pick(self.rules)()
            self.pool.append(y)
            made.append(y)
        chosen = {id(made[-1]): made[-1], **{id(y): y for y in made if self.chance(0.25)}}
        outputs = [y.value for y in chosen.values()]
        if self.chance(0.1):
            outputs.append(outputs[0])
        if self.chance(0.1):
            outputs.append(self.builder.inputs[0])
        return verify(self.builder.finish(outputs))


def draw_inputs(graph: Graph, seed: int) -> list[NDArray[Any]]:
    """Arrays for the graph: small numbers, integers in [-3, 3], indices within their extents."""
    rng = np.random.default_rng(seed + 1)
    arrays: list[NDArray[Any]] = []
    for value in graph.inputs:
        t = value.type
        if value.name.startswith("index"):
            extent = int(value.name.rpartition("_")[2])
            arrays.append(rng.integers(-extent, extent, t.shape))
        elif t.dtype.kind == "float":
            arrays.append(np.asarray(rng.normal(size=t.shape)).astype(t.dtype.numpy))
        else:
            low = 0 if t.dtype.kind in ("uint", "bool") else -3
            arrays.append(np.asarray(rng.integers(low, 2 if t.dtype is bool_ else 4, t.shape)).astype(t.dtype.numpy))
    return arrays


def is_stable(graph: Graph, inputs: list[NDArray[Any]]) -> bool:
    """Whether a change in the last bits stays small: discontinuous ops on rounded values would hide real errors."""
    rng = np.random.default_rng(7)
    reference = evaluate(graph, inputs)

    def nudged(x: NDArray[Any], scale: float) -> NDArray[Any]:
        return (x * (1 + scale * rng.choice([-1.0, 1.0], x.shape))).astype(x.dtype) if x.dtype.kind == "f" else x

    for _ in range(3):
        moved = evaluate(
            graph, [nudged(x, 4 * float(np.finfo(x.dtype).eps)) if x.dtype.kind == "f" else x for x in inputs]
        )
        for y, z in zip(reference, moved, strict=True):
            if y.dtype.kind in "biu":
                if not np.array_equal(y, z):
                    return False
                continue
            finite = np.isfinite(y)
            if not np.array_equal(finite, np.isfinite(z)):
                return False
            eps = float(np.finfo(y.dtype).eps)
            scale = np.max(np.abs(y.astype(np.float64)), initial=1e-30, where=finite)
            with np.errstate(all="ignore"):
                error = np.abs(y.astype(np.float64) - z.astype(np.float64))
            if np.max(error, initial=0.0, where=finite) > ULPS * eps * float(scale):
                return False
    return True


def graph_case(seed: int) -> tuple[Graph, list[NDArray[Any]]]:
    """The graph of a seed and inputs for it."""
    graph = Drawer(seed).run()
    return graph, draw_inputs(graph, seed)


FINE = {
    "autojit.codegen.cpu.chunks": {"CHUNK_NS": 40.0, "INNER_ALIGN": 16, "SUM_BLOCK": 16},
    "autojit.codegen.cpu.product_words": {"CHUNK_NS": 40.0},
    "autojit.codegen.cpu.loops.kernel": {"SUM_BLOCK": 16},
}
FINE_BANDS = {"least_bytes": 1, "slice_bytes": 256, "least_slices": 2}
"""Thresholds that make small graphs take the paths of large ones: chunks, partial results, blocks, bands."""


@contextmanager
def cut(how: str) -> Iterator[None]:
    """Compile ``fine`` (see ``FINE``), ``checked`` (every access tested) or ``usual``ly."""
    saved = {(module, name): getattr(import_module(module), name) for module, names in FINE.items() for name in names}
    was_checked = config.check
    try:
        if "fine" in how:
            for module, name in saved:
                setattr(import_module(module), name, FINE[module][name])
        config.check = "checked" in how
        with compiling_with(**FINE_BANDS) if "fine" in how else nullcontext():
            yield
    finally:
        config.check = was_checked
        for (module, name), value in saved.items():
            setattr(import_module(module), name, value)


def check_seed(seed: int, how: str = "usual") -> bool:
    """Check one case; False when its numbers are too sensitive to judge. AssertionError or CompileError on failure.

    ``how`` may also name ``donated`` (in place) and ``fenced`` (nothing around an input may be read).
    """
    graph, inputs = graph_case(seed)
    with np.errstate(all="ignore"):
        if not is_stable(graph, inputs):
            return False
    with cut(how):
        check = check_donated if "donated" in how else check_fenced if "fenced" in how else check_compiled
        check(graph, inputs, ULPS)
    return True


def campaign(count: int, first: int = 0, how: str = "usual") -> list[int]:
    """Seeds of ``count`` cases that fail; each is printed as it happens."""
    failed: list[int] = []
    judged = 0
    start = time.perf_counter()
    for seed in range(first, first + count):
        try:
            judged += check_seed(seed, how)
        except Exception as error:
            failed.append(seed)
            print(f"seed {seed}: {type(error).__name__}: {str(error)[:160]!r}", flush=True)
    elapsed_s = time.perf_counter() - start
    print(f"{count} cases, {judged} judged, {len(failed)} failed, {elapsed_s:.1f} s; pid {os.getpid()}")
    return failed


if __name__ == "__main__":
    numbers = [int(a) for a in sys.argv[1:] if a.isdigit()] or [200]
    chosen = next((a for a in sys.argv[1:] if not a.isdigit()), "usual")
    sys.exit(1 if campaign(*numbers, how=chosen) else 0)
