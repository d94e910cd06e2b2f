"""What may notice a planted error: laws over the samples of ops, random graphs, random programs and what they tell.

Each killer raises, or names what differs from the unmutated product. They run in the mutant's own process. The tests of
a source checkout, which notice too, are run by ``suite.py``.
"""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import autojit as aj
from autojit.compiler import compile
from autojit.core.dtypes import complex128, dtype_of_numpy, float32, float64, int64
from autojit.core.types import TensorType
from autojit.ir import Graph, GraphBuilder, Op, evaluate, verify
from autojit.testing.fuzz.campaign import judge_seed
from autojit.testing.fuzz.generate import generate
from autojit.testing.fuzz.running import forget, load, run
from autojit.transforms.adjoint import adjoint
from autojit.transforms.jvp import jvp
from autojit.transforms.vmap import vmap

Arrays = Sequence[NDArray[Any]]
STEP = 1e-3  # of the five-point difference: its error is STEP**4 times the fifth derivative
PROMISED = 2e-6  # relative: what such a difference of float64 numbers is good for
# of what steps tell: times, addresses, numbers of hooks
_VARYING = r"[\d.]+ (ns|us|ms|s)\b|0x[0-9a-f]+|\b\d{12,}|(?<=== \(\()[\d, ]+(?=\))"
CHECKOUT = Path(__file__).resolve().parents[4]
IS_CHECKOUT = (CHECKOUT / "tests" / "ops" / "laws.py").is_file()  # the tests are there


class Killed(Exception):
    """A killer saw the mutant."""


def names_of_ops() -> list[str]:
    """The ops that have samples, by their names."""
    every = Op.registry.load().items()
    return [name for name, op in every if op.__module__.startswith("autojit.ops.") and hasattr(op, "samples")]


def check_op(name: str) -> None:
    """Every law on every sample of an op."""
    for op, inputs in _samples(Op.registry.load()[name]):
        for law in _laws():
            _attempt(law, op, inputs)


def _samples(op_class: Any) -> Iterator[tuple[Op, Arrays]]:
    for dtype in (float64, complex128, float32, int64):
        yield from op_class.samples(dtype)


@cache
def _laws() -> list[Callable[[Op, Arrays], None]]:
    """The checkout's own laws where there is one, and that compiled code computes what NumPy does."""
    if IS_CHECKOUT:
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


def check_graph(seed: int) -> None:
    """A random graph, compiled against the interpreter (in a source checkout)."""
    check = importlib.import_module("tests.fuzz_graphs").check_seed
    try:
        check(seed)
    except Exception as error:
        raise Killed(f"graph {seed}: {type(error).__name__}") from error


def check_program(seed: int, kind: str) -> None:
    """A random program, against the verdict that the unmutated product gets."""
    verdict = judge_seed(seed)
    if verdict.kind != kind:
        raise Killed(f"program {seed}: {verdict.kind} instead of {kind}")


def told_of(seed: int) -> str:
    """A digest of what the steps of a program say of themselves: captures and their causes, guards, kernels, memory.

    A guard that is lost, a capture too many or a kernel more changes it where no value does.
    """
    name = f"told {seed}"
    steps: list[Any] = []

    def noted(function: Any) -> Any:
        steps.append(aj.jit(function))
        return steps[-1]

    try:
        aj.set_default_dtype(aj.get_default_dtype())  # what somebody has set once is guarded from then on
        aj.use_deterministic_algorithms(False)
        program = load(generate(seed).script(), name)
        seen = run(lambda _, see: program(noted, see), "compiled")
    finally:
        forget(name)
    texts = [step.explain(verbose=True) for step in steps]
    texts += [f"{type(error).__name__}: {error}" for error in (seen.error, seen.broken) if error is not None]
    return hashlib.sha256(re.sub(_VARYING, "", "\n".join(texts)).encode()).hexdigest()[:16]


def check_told(seed: int, digest: str) -> None:
    """What a program's steps tell, against what the unmutated product's tell."""
    if told_of(seed) != digest:
        raise Killed(f"steps of program {seed} tell something else")


def check(kind: str, name: str, verdict: str) -> None:
    """One check of the kinds that need no pytest."""
    if kind == "op":
        check_op(name)
    elif kind == "graph":
        check_graph(int(name))
    elif kind == "told":
        check_told(int(name), verdict)
    else:
        check_program(int(name), verdict)
