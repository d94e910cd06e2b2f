"""What may notice a planted error: laws over the samples of ops, random graphs, random programs.

Each killer raises, or names what differs from the unmutated product. They run in the mutant's own process;
their seconds are of processor time, so that a busy machine sees as much as an idle one.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import autojit.ops  # noqa: F401 - fills the registry
from autojit.compiler import compile
from autojit.core.dtypes import complex128, dtype_of_numpy, float32, float64, int64
from autojit.core.types import TensorType
from autojit.ir import Graph, GraphBuilder, Op, evaluate, verify
from autojit.testing.fuzz.campaign import judge_seed
from autojit.transforms.adjoint import adjoint
from autojit.transforms.batch import vmap
from autojit.transforms.jvp import jvp

Arrays = Sequence[NDArray[Any]]
STEP = 1e-3  # of the five-point difference: its error is STEP**4 times the fifth derivative
PROMISED = 2e-6  # relative: what such a difference of float64 numbers is good for
CHECKOUT = Path(__file__).resolve().parents[4]  # where the tests are, if this is a source checkout


class Killed(Exception):
    """A killer saw the mutant."""


def ops_of(module: str, seconds: float) -> None:
    """Every law on every sample of the ops that a module defines (of all ops, where it defines none)."""
    until = time.process_time() + seconds
    every = [
        op for op in Op.registry.load().values() if op.__module__.startswith("autojit.ops.") and hasattr(op, "samples")
    ]
    own = [op for op in every if op.__module__ == module]
    laws = _laws()
    for op_class in own or every:
        for op, inputs in _samples(op_class):
            if time.process_time() > until and not own:
                return
            for law in laws:
                _attempt(law, op, inputs)


def _samples(op_class: Any) -> Iterator[tuple[Op, Arrays]]:
    for dtype in (float64, complex128, float32, int64):
        yield from op_class.samples(dtype)


def _laws() -> list[Callable[[Op, Arrays], None]]:
    """The checkout's own laws where there is one, and that compiled code computes what NumPy does."""
    if (CHECKOUT / "tests" / "ops" / "laws.py").is_file():
        sys.path.insert(0, str(CHECKOUT))
        found = list(importlib.import_module("tests.ops.laws").LAWS)
    else:
        found = [derivative_is_right, batching_is_a_loop]
    return [*found, compiled_is_eager]


def _attempt(law: Callable[[Op, Arrays], None], op: Op, inputs: Arrays) -> None:
    try:
        law(op, inputs)
    except Exception as error:
        raise Killed(f"{law.__name__} of {op}: {type(error).__name__}") from error


def _type_of(array: NDArray[Any]) -> TensorType:
    return TensorType(array.shape, dtype_of_numpy(array.dtype))


def _graph_of(op: Op, inputs: Arrays) -> Graph:
    builder = GraphBuilder()
    return verify(builder.finish(builder.apply(op, [builder.input(_type_of(x)) for x in inputs])))


def _close(found: Arrays, expected: Arrays, relative: float) -> None:
    for a, b in zip(found, expected, strict=True):
        scale = float(np.max(np.abs(b), initial=1e-3, where=np.isfinite(b))) if b.dtype.kind in "fc" else 0.0
        np.testing.assert_allclose(a, b, rtol=relative, atol=relative * scale)


def compiled_is_eager(op: Op, inputs: Arrays) -> None:
    """The graph and its adjoint, compiled, against the interpreter."""
    graph = _graph_of(op, inputs)
    graphs = [(graph, list(inputs))]
    if op.is_differentiable and inputs and all(x.dtype == np.float64 for x in inputs):
        results = evaluate(graph, inputs)
        if all(y.dtype == np.float64 for y in results):
            graphs.append((adjoint(graph), [*inputs, *results]))
    for one, given in graphs:
        expected = evaluate(one, given)
        contiguous = [np.ascontiguousarray(x).reshape(x.shape) for x in given]
        found = compile(one).executable.run(contiguous)
        unit = max((float(np.finfo(x.dtype).eps) for x in (*given, *expected) if x.dtype.kind in "fc"), default=0.0)
        _close(found, expected, 1000 * unit)


def _difference(graph: Graph, inputs: Arrays, directions: Mapping[int, NDArray[Any]]) -> list[NDArray[Any]]:
    def at(step: float) -> list[NDArray[Any]]:
        return evaluate(graph, [x + step * directions[k] if k in directions else x for k, x in enumerate(inputs)])

    samples = zip(at(-2 * STEP), at(-STEP), at(STEP), at(2 * STEP), strict=True)
    return [(a - 8 * b + 8 * c - d) / (12 * STEP) for a, b, c, d in samples]


def derivative_is_right(op: Op, inputs: Arrays) -> None:
    """Forward mode against differences, reverse mode against forward mode, of first and second order."""
    outputs = evaluate(_graph_of(op, inputs), inputs)
    floats = [x for x in (*inputs, *outputs) if x.dtype.kind in "fc"]
    if not op.is_differentiable or not floats or any(x.dtype not in (np.float64, np.complex128) for x in floats):
        return
    graph = _smooth(_graph_of(op, inputs))
    _check(graph, list(inputs))
    cotangents = [_random(y, 3) for y in evaluate(graph, inputs)]
    _check(adjoint(graph), [*inputs, *cotangents])


def _smooth(graph: Graph) -> Graph:
    return Graph(graph.inputs, graph.nodes, tuple(v for v in graph.outputs if v.type.dtype.is_differentiable))


def _random(like: NDArray[Any], seed: int) -> NDArray[Any]:
    draws = np.random.default_rng(seed)
    made = draws.standard_normal(like.shape)
    return np.asarray(made + 1j * draws.standard_normal(like.shape) if like.dtype.kind == "c" else made).astype(
        like.dtype
    )


def _check(graph: Graph, inputs: list[NDArray[Any]]) -> None:
    graph = _smooth(graph)
    where = [k for k, v in enumerate(graph.inputs) if v.type.dtype.is_differentiable]
    directions = {k: 0.5 * _random(inputs[k], k) for k in where}
    results = evaluate(graph, inputs)
    pushed = evaluate(jvp(graph), [*inputs, *directions.values()])[len(results) :]
    _close(pushed, _difference(graph, inputs, directions), PROMISED)
    weights = [_random(y, 2) for y in results]
    pulled = evaluate(adjoint(graph), [*inputs, *weights])
    left, right = _inner(weights, pushed), _inner(pulled, list(directions.values()))
    if abs(left - right) > 1e-10 * max(1.0, abs(left), abs(right)):
        raise Killed(f"reverse mode {left} against forward mode {right}")


def _inner(a: Arrays, b: Arrays) -> float:
    return float(sum(np.sum(np.real(np.conj(x) * y)) for x, y in zip(a, b, strict=True)))


def batching_is_a_loop(op: Op, inputs: Arrays) -> None:
    """A batch of two equals two calls."""
    if not inputs:
        return
    graph = _graph_of(op, inputs)
    found = evaluate(vmap(graph, (True,) * len(inputs), 2), [np.stack([x, x]) for x in inputs])
    single = evaluate(graph, inputs)
    _close([y[1] for y in found], single, PROMISED)


def graphs(seconds: float) -> None:
    """Random graphs, compiled against the interpreter (in a source checkout)."""
    if not (CHECKOUT / "tests" / "fuzz_graphs.py").is_file():
        return
    sys.path.insert(0, str(CHECKOUT))
    check = importlib.import_module("tests.fuzz_graphs").check_seed
    until = time.process_time() + seconds
    seed = 0
    while time.process_time() < until:
        try:
            check(seed)
        except Exception as error:
            raise Killed(f"graph {seed}: {type(error).__name__}") from error
        seed += 1


def programs(baseline: Mapping[int, str], seconds: float) -> None:
    """Random programs, against the verdicts that the unmutated product gets."""
    until = time.process_time() + seconds
    for seed, kind in baseline.items():
        if time.process_time() > until:
            return
        verdict = judge_seed(seed)
        if verdict.kind != kind:
            raise Killed(f"program {seed}: {verdict.kind} instead of {kind}")
