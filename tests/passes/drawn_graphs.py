"""Random graphs in which the passes find work: each kind is what some of them are about.

``drawn(kind, seed)`` gives graphs of one kind: the one that was drawn and its first two derivatives, where the kind is
about loops or products (what passes look for there comes from derivatives). ``large`` ones, on both sides of the
passes' limits, are there to be measured, not to be computed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import autojit.ops as ops
from autojit.control_flow.captured_call import CapturedCall
from autojit.core.dtypes import DType, bool_, float16, float32, float64, int64
from autojit.core.types import TensorType
from autojit.ir import Graph, GraphBuilder, Op, verify
from autojit.ir.op import bind
from autojit.ops.control_flow import Cond
from autojit.ops.matmul import Matmul
from autojit.ops.scan_steps import Scan
from autojit.ops.scattering import Scatter
from autojit.ops.while_sweeps import WhileLoop
from autojit.transforms.adjoint import adjoint

UNARY = ("sin", "tanh", "exp", "neg", "square", "sigmoid")
BINARY = ("add", "sub", "mul")
NUMBERS = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.0, -0.25, 8.0)


class Body:
    """Draws nodes of one graph or body; ``pool`` holds what may be read."""

    def __init__(self, draw: random.Random, dtype: DType = float64) -> None:
        self.draw, self.dtype = draw, dtype
        self.builder = GraphBuilder()
        self.pool: list[Any] = []

    def input(self, shape: Sequence[int], dtype: DType | None = None, name: str = "") -> Any:
        value = self.builder.input(TensorType(tuple(shape), dtype or self.dtype), name)
        self.pool.append(self.builder.tracer(value))
        return self.pool[-1]

    def apply(self, name: str, *operands: Any, **parameters: Any) -> Any:
        made = bind(Op.registry[name](**parameters), *operands)  # type: ignore[call-arg]
        self.pool.append(made)
        return made

    def number(self, value: float, shape: tuple[int, ...] = ()) -> Any:
        (made,) = self.builder.apply(Op.registry["full"](value, self.dtype, shape), ())  # type: ignore[call-arg]
        return self.builder.tracer(made)

    def of(self, shape: tuple[int, ...]) -> Any:
        """A value of a shape: a late one of the pool, or one that is made from another."""
        found = [x for x in self.pool if x.spec.shape == shape and x.spec.dtype is self.dtype]
        if found:
            return found[-1 - min(int(self.draw.expovariate(0.6)), len(found) - 1)]
        return self.number(self.draw.choice(NUMBERS), shape)

    def step(self, shape: tuple[int, ...]) -> Any:
        """One more value of a shape."""
        kind = self.draw.random()
        if kind < 0.35:
            return self.apply(self.draw.choice(UNARY), self.of(shape))
        if kind < 0.7:
            other = self.number(self.draw.choice(NUMBERS)) if self.draw.random() < 0.25 else self.of(shape)
            return self.apply(self.draw.choice(BINARY), self.of(shape), other)
        if kind < 0.8:
            return self.apply("permute", self.apply("permute", self.of(shape), axes=(1, 0)), axes=(1, 0))
        return self.product(shape)

    def product(self, shape: tuple[int, ...]) -> Any:
        """A matrix product with a square matrix, turned or computed at times."""
        rows, columns = shape
        matrix = self.of((columns, columns))
        if self.draw.random() < 0.4:
            matrix = self.apply("permute", matrix, axes=(1, 0))
        if self.draw.random() < 0.3:
            matrix = self.apply("tanh", matrix)
        return self.apply("matmul", self.of((rows, columns)), matrix)

    def finish(self, outputs: Sequence[Any]) -> Graph:
        return verify(self.builder.finish([y.value for y in outputs]))


class Shapes(NamedTuple):
    """What a loop carries and slices, its matrices, its steps."""

    h: tuple[int, int] = (2, 3)
    w: tuple[int, int] = (3, 3)
    length: int = 3


def shapes_of(draw: random.Random, large: bool) -> Shapes:
    """Small ones to be computed; large ones, whose costs alone are looked at, on both sides of the passes' limits."""
    if not large:
        return Shapes(length=draw.choice((0, 1, 2, 3, 5, 17)))
    width = draw.choice((40, 256, 362, 363, 700, 3000))
    return Shapes((draw.choice((1, 8, 500)), width), (width, width), draw.choice((15, 16, 17, 400)))


def scan_body(draw: random.Random, shapes: Shapes, carries: int, stacks: int, results: int) -> Graph:
    """A cell: some carries go through the recurrence, some add up, some never change, some nobody needs."""
    body = Body(draw)
    starts = [body.input(draw.choice((shapes.h, shapes.h, shapes.w))) for _ in range(carries)]
    for _ in range(stacks):
        body.input(shapes.h)
    body.input(shapes.w)
    body.input(shapes.w)
    for _ in range(draw.randrange(3, 8)):
        body.step(shapes.h)
    body.step(shapes.w)
    lasts = [_last(body, start, shapes) for start in starts]
    return body.finish([*lasts, *[draw.choice(body.pool) for _ in range(results)]])


def _last(body: Body, start: Any, shapes: Shapes) -> Any:
    kind, shape = body.draw.choice(("flows", "flows", "adds", "stays", "sums", "turned")), start.spec.shape
    if kind == "stays":
        return start
    if kind == "adds":
        return body.apply("add", start, body.of(shape))
    if kind == "flows" or shape != shapes.w:
        return body.apply("tanh", body.of(shape))
    a, b = body.of(shapes.h), body.of(shapes.h)
    outer = body.apply("matmul", body.apply("permute", a, axes=(1, 0)), b)
    if kind == "turned":
        outer = body.apply("permute", outer, axes=(1, 0))
    return body.apply("add", *((start, outer) if body.draw.random() < 0.5 else (outer, start)))


def _called(draw: random.Random, graph: Graph) -> Graph:
    """The graph, or one call of it: what a capture of a body leaves."""
    if draw.random() < 0.6:
        return graph
    outer = Body(draw)
    operands = [outer.input(v.type.shape, v.type.dtype) for v in graph.inputs]
    return outer.finish(_results(bind(CapturedCall(graph), *operands)))


def scans(seed: int, large: bool) -> list[Graph]:
    draw = random.Random(seed)
    carries, stacks, results = draw.randrange(1, 4), draw.randrange(0, 3), draw.randrange(0, 4)
    shapes = shapes_of(draw, large)
    inner, length = _called(draw, scan_body(draw, shapes, carries, stacks, results)), shapes.length
    outer = Body(draw)
    operands = [outer.input(v.type.shape) for v in inner.inputs[:carries]]
    operands += [outer.input((length, *shapes.h)) for _ in range(stacks)]
    operands += [outer.input(shapes.w), outer.input(shapes.w)]
    if draw.random() < 0.3:
        operands[0] = outer.number(0.0, operands[0].spec.shape)
    scan = Scan(inner, carries, stacks, length, draw.random() < 0.3)
    found = _results(bind(scan, *operands))
    if draw.random() < 0.3:  # the same steps with other results: they are merged
        fewer = Graph(inner.inputs, inner.nodes, inner.outputs[: carries + 1])
        found += _results(bind(Scan(fewer, carries, stacks, length, scan.reverse), *operands))
    kept = [y for y in found if draw.random() < 0.7] or found[:1]
    return _with_derivatives(outer.finish(kept))


def _results(found: Any) -> list[Any]:
    return list(found) if isinstance(found, tuple) else [found]


def _with_derivatives(graph: Graph) -> list[Graph]:
    smooth = [v for v in graph.outputs if v.type.dtype.is_differentiable]
    if not smooth:
        return [graph]
    first = adjoint(Graph(graph.inputs, graph.nodes, tuple(smooth)))
    return [graph, first, adjoint(Graph(first.inputs, first.nodes, first.outputs[:2]))]


def whiles(seed: int, large: bool) -> list[Graph]:
    draw = random.Random(seed)
    h, w, _ = shapes_of(draw, large)
    body = Body(draw)
    body.input((), bool_)
    count, shapes = body.input((), int64), [h] * draw.randrange(1, 4)
    starts = [body.input(shape) for shape in shapes]
    body.input(w)
    body.input(w)
    for _ in range(draw.randrange(2, 6)):
        body.step(h)
    one, last = (body.builder.apply(Op.registry["full"](k, int64, ()), ())[0] for k in (1, draw.randrange(1, 5)))  # type: ignore[call-arg]
    more = bind(Op.registry["add"](), count, body.builder.tracer(one))
    going = bind(Op.registry["lt"](), more, body.builder.tracer(last))
    lasts = [body.apply("tanh", body.of(h)) if draw.random() < 0.75 else start for start in starts]
    inner = _called(draw, body.finish([going, more, *lasts]))
    outer = Body(draw)
    operands = [outer.number(1.0), outer.number(0.0), *[outer.input(shape) for shape in shapes]]
    operands += [outer.input(w), outer.input(w)]
    (go,) = outer.builder.apply(Op.registry["full"](True, bool_, ()), ())  # type: ignore[call-arg]
    (zero,) = outer.builder.apply(Op.registry["full"](0, int64, ()), ())  # type: ignore[call-arg]
    operands[:2] = [outer.builder.tracer(go), outer.builder.tracer(zero)]
    loop = WhileLoop((inner,), (2 + len(shapes),), ((),), (False,))
    found = list(bind(loop, *operands))[2:]
    if draw.random() < 0.3:
        found += list(bind(loop, *operands[:2], *found, *operands[-2:]))[2:]
    kept = [y for y in found if draw.random() < 0.7] or found[:1]
    outputs = [outer.apply("square", y) for y in kept]
    return _with_derivatives(outer.finish(outputs))


def branches(seed: int, large: bool) -> list[Graph]:
    draw = random.Random(seed)
    h, w, _ = shapes_of(draw, large)

    def branch() -> Graph:
        body = Body(draw)
        for shape in (h, h, w):
            body.input(shape)
        for _ in range(draw.randrange(0, 4)):
            body.step(h)
        return _called(draw, body.finish([body.of(h), body.of(h), body.of(w)]))

    outer = Body(draw)
    question = outer.input((), bool_)
    operands = [outer.input(shape) for shape in (h, h, w)]
    found = list(bind(Cond(branch(), branch()), question, *operands))
    kept = [y for y in found if draw.random() < 0.6] or found[:1]
    return _with_derivatives(outer.finish([outer.apply("square", y) for y in kept]))


def products(seed: int, large: bool) -> list[Graph]:
    """Sums of products and of padded slices: what the gradient of an unrolled loop over slices is made of."""
    draw = random.Random(seed)
    graph = Body(draw, draw.choice((float32, float64)))
    steps, rows, size = draw.randrange(2, 9), draw.choice((1, 2, 3)), draw.choice((4, 5, 8))
    if large:
        steps, rows, size = draw.randrange(2, 6), draw.choice((1, 200)), 132  # large enough to be accumulated
    w = graph.input((size, size))
    xs = graph.input((steps, rows, size))
    h = graph.input((rows, size))
    of_inputs = graph.input((size, size)) if draw.random() < 0.5 else None
    bias = graph.input((size,)) if draw.random() < 0.5 else None
    outputs = []
    for k in range(steps):
        x = ops.reshape(ops.strided_slice(xs, (k, 0, 0), (k + 1, rows, size), (1, 1, 1)), (rows, size))
        x = x if of_inputs is None else bind(Matmul(), x, of_inputs)
        x = x if bias is None else graph.apply("add", x, bias)
        if draw.random() < 0.8:
            h = bind(Matmul(), h, w)
        h = graph.apply("tanh", graph.apply(draw.choice(BINARY), h, x))
        outputs.append(ops.reshape(h, (1, rows, size)))
    if draw.random() < 0.6:
        last = bind(Op.registry["concatenate"](0), *outputs)  # type: ignore[call-arg]
        return _with_derivatives(graph.finish([last, h] if draw.random() < 0.5 else [last]))[:2]
    return _with_derivatives(graph.finish([h]))[:2]


def layouts(seed: int, large: bool) -> list[Graph]:
    """Products whose results are turned, joined, added up, or read in part."""
    draw = random.Random(seed)
    graph = Body(draw, draw.choice((float32, float64, float16)))
    batch = draw.choice(((), (2,), (2, 3)))
    m, k, n = (draw.choice((1, 2, 3, 5)) for _ in range(3))
    if large:
        batch, m, k, n = (), 144, draw.choice((1, 130)), 144
    a, b = graph.input((*batch, m, k)), graph.input((*batch, k, n))
    c, d = graph.input((*batch, m, k)), graph.input((*batch, k, n))
    first, second = bind(Matmul(), a, b), bind(Matmul(), c, d)
    ndim = len(batch) + 2
    axes = [*range(ndim)]
    if draw.random() < 0.6:
        axes[-1], axes[-2] = axes[-2], axes[-1]
    if draw.random() < 0.4:
        draw.shuffle(axes)
    total = bind(Op.registry["add"](), first, second) if draw.random() < 0.5 else first
    if draw.random() < 0.4:
        total = bind(Op.registry["add"](), total, bind(Matmul(), a, d))
    outputs = [ops.permute(total, tuple(axes))]
    if draw.random() < 0.3:
        outputs.append(first)
    if draw.random() < 0.3:
        outputs.append(ops.permute(second, tuple(axes)))
    if n > 1 and draw.random() < 0.5:
        ends = (*batch, m, n // 2)
        outputs.append(ops.strided_slice(bind(Matmul(), c, b), (0,) * ndim, ends, (1,) * ndim))
    return [graph.finish(outputs)]


def literals(seed: int, large: bool) -> list[Graph]:
    """Arithmetic with numbers, and what a number in every element is rearranged into."""
    draw = random.Random(seed)
    dtype = draw.choice((float64, float32, float32, float16, int64))
    graph = Body(draw, dtype)
    shape = draw.choice(((3,), (2, 3), (1, 3), (0, 3)))
    graph.input(shape)
    graph.input(shape)
    numbers = NUMBERS if dtype is not int64 else (0, 1, -1, 2, 3)
    for _ in range(draw.randrange(4, 12)):
        kind = draw.choice(
            ("number", "number", "number", "binary", "neg", "where", "cast", "view", "divided", "scatter")
        )
        x = draw.choice([x for x in graph.pool if x.spec.dtype is dtype])
        if kind in ("number", "divided"):
            y = graph.number(draw.choice(numbers), draw.choice(((), x.spec.shape)))
            name = draw.choice((*BINARY, "guarded_mul", "maximum"))
            if kind == "divided" and dtype is not int64:
                name, y = draw.choice(("div", "guarded_div")), graph.number(draw.choice(NUMBERS[2:]))
            if dtype is int64 and name == "guarded_mul":
                name = "mul"
            graph.apply(name, *((x, y) if draw.random() < 0.7 or name.startswith("div") else (y, x)))
        elif kind == "binary":
            graph.apply(draw.choice(BINARY), x, graph.of(x.spec.shape))
        elif kind == "neg":
            graph.apply("neg", x)
        elif kind == "where":
            (flag,) = graph.builder.apply(Op.registry["full"](draw.random() < 0.5, bool_, ()), ())  # type: ignore[call-arg]
            y = graph.number(draw.choice(numbers)) if draw.random() < 0.5 else graph.of(x.spec.shape)
            graph.apply("where", graph.builder.tracer(flag), *((x, y) if draw.random() < 0.5 else (y, x)))
        elif kind == "cast":
            graph.apply("cast", x, dtype=draw.choice((dtype, dtype, float64)))
        elif kind == "scatter" and x.spec.ndim == 2 and x.spec.shape[0] and dtype is not float16:
            rows = x.spec.shape[0]
            index = graph.builder.tracer(graph.builder.input(TensorType((rows, 1), int64), "index"))
            base = graph.number(draw.choice((0, 0, 0, 1)), (rows, 4))
            column = ops.strided_slice(x, (0, 0), (rows, 1), (1, 1))
            graph.pool.append(bind(Scatter(draw.choice((1, 1, 1, 0)), "add"), base, column, index))
        elif kind == "view":
            _view(graph, graph.number(draw.choice(numbers), (2, 1, 3)) if draw.random() < 0.4 else x)
    made = [x for x in graph.pool if x.spec.dtype.kind == "float" or dtype is int64]
    return [graph.finish([made[-1], *[x for x in made[2:-1] if draw.random() < 0.2]])]


def _view(graph: Body, x: Any) -> None:
    draw, shape = graph.draw, x.spec.shape
    kind = draw.choice(("permute", "flip", "pad", "reshape", "slice", "sum", "broadcast_to"))
    if kind == "permute":
        axes = list(range(len(shape)))
        draw.shuffle(axes)
        graph.pool.append(ops.permute(ops.permute(x, tuple(axes)), tuple(axes)))
    elif kind == "flip":
        graph.apply("flip", x, axes=(draw.randrange(len(shape)),))
    elif kind == "pad":
        widths = tuple(draw.choice((0, 0, 1)) for _ in shape)
        graph.pool.append(ops.pad(x, widths, widths, draw.choice((0, 0, 1))))
    elif kind == "reshape":
        graph.pool.append(ops.reshape(ops.reshape(x, (*shape, 1)), draw.choice((shape, shape[::-1]))))
    elif kind == "slice":
        starts = tuple(min(n, draw.choice((0, 0, 1))) for n in shape)
        graph.pool.append(ops.strided_slice(x, starts, shape, [1] * len(shape)))
    elif kind == "sum" and x.spec.dtype is not float16:
        graph.apply("sum", x, axes=(draw.randrange(len(shape)),))
    elif kind == "broadcast_to":
        graph.pool.append(ops.broadcast_to(x, (2, *shape)))


KINDS: dict[str, Callable[[int, bool], list[Graph]]] = {
    "scans": scans,
    "whiles": whiles,
    "branches": branches,
    "products": products,
    "layouts": layouts,
    "literals": literals,
}


def drawn(kind: str, seed: int, large: bool = False) -> list[Graph]:
    """The graphs of a kind and a seed."""
    return KINDS[kind](seed, large)


def arrays_for(graph: Graph) -> list[NDArray[Any]]:
    """Small numbers; positions are valid in every graph that has some."""
    draws = np.random.default_rng(0)
    made: list[NDArray[Any]] = []
    for value in graph.inputs:
        shape, dtype = value.type.shape, value.type.dtype
        if value.name.startswith("index"):
            made.append(draws.integers(-1, 1, shape))
        elif dtype.kind == "float":
            made.append(np.asarray(draws.uniform(-1, 1, shape)).astype(dtype.numpy))
        else:
            made.append(np.asarray(draws.integers(0 if dtype is bool_ else -3, 2, shape)).astype(dtype.numpy))
    return made
