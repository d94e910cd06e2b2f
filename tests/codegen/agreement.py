"""Whether compiled results agree with the reference, shared by the compiled-code tests and the fuzzer.

Integers, bools and non-finite values must be equal; finite floats may differ by ``ulps`` units in the last place of the
dtype, measured at the largest magnitude of the array (a sum of terms of that size rounds no better).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from autojit.compiler import Compiled, compile
from autojit.core.device import CPU, default_device, space_at, with_index
from autojit.core.device_array import host_copy
from autojit.ir import Graph, evaluate
from autojit.ir.placed import graph_on
from tests.fences import Fence

Arrays = Sequence[NDArray[Any]]


def disagreement(found: NDArray[Any], expected: NDArray[Any], ulps: float) -> str:
    """What differs, or an empty text."""
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        return f"type {found.dtype}{found.shape}, expected {expected.dtype}{expected.shape}"
    if expected.dtype.kind in "biu":
        wrong = found != expected
    else:
        wrong = ~_close(found, expected, ulps)
    if not np.any(wrong):
        return ""
    where = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"{np.count_nonzero(wrong)} of {found.size} differ, first at {where}: {found[where]!r} != {expected[where]!r}"
    )


def _close(found: NDArray[Any], expected: NDArray[Any], ulps: float) -> NDArray[np.bool_]:
    epsilon = float(ml_dtypes.finfo(expected.dtype).eps)
    if expected.dtype.kind == "c":  # a part may be small beside the other one, whose digits it is computed from
        finite = np.isfinite(expected)
        scale = np.max(np.abs(expected), initial=1e-30, where=finite)
        with np.errstate(all="ignore"):
            near = np.abs(found - expected) <= ulps * epsilon * scale
        parts = _close(found.real, expected.real, ulps) & _close(found.imag, expected.imag, ulps)
        return np.where(finite, near, parts)
    wide, reference = found.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(reference)
    scale = np.max(np.abs(reference), initial=1e-30, where=finite)
    with np.errstate(all="ignore"):
        near = np.abs(wide - reference) <= ulps * epsilon * scale
    same = (wide == reference) | (np.isnan(wide) & np.isnan(reference))
    return np.where(finite, near, same)


def check_fenced(graph: Graph, inputs: Arrays, ulps: float = 8.0) -> None:
    """Likewise where unreadable memory begins behind each input, then where it ends before each."""
    for is_first in (False, True):
        fenced = [Fence(x.nbytes).array(np.ascontiguousarray(x), is_first=is_first).reshape(x.shape) for x in inputs]
        check_compiled(graph, fenced, ulps)


def check_compiled(graph: Graph, inputs: Arrays, ulps: float = 8.0) -> Compiled:
    """Compile, run twice, compare both runs with the interpreter; AssertionError shows graph and schedule."""
    contiguous = [np.ascontiguousarray(x).reshape(x.shape) for x in inputs]
    before = [x.copy() for x in contiguous]
    expected = evaluate(graph, contiguous)
    place = with_index(default_device())
    compiled = compile(graph if place == CPU else graph_on(graph, place))
    given = contiguous if place == CPU else [space_at(place).copied_in(x) for x in contiguous]
    for attempt in ("first", "second"):
        for position, (y, reference) in enumerate(zip(compiled.executable.run(given), expected, strict=True)):
            wrong = disagreement(host_copy(y), reference, ulps)
            assert not wrong, f"output {position}, {attempt} run: {wrong}\n{graph}\n{compiled.schedule}"
    for position, (x, kept) in enumerate(zip(map(host_copy, given), before, strict=True)):
        assert x.tobytes() == kept.tobytes(), f"input {position} was overwritten\n{graph}\n{compiled.schedule}"
    return compiled


def donations(graph: Graph) -> dict[int, int]:
    """Outputs that could overwrite an input of their type: output position -> input position, each at most once."""
    found: dict[int, int] = {}
    taken = {position for position, v in enumerate(graph.inputs) if v in graph.outputs}
    for position, output in enumerate(graph.outputs):
        if output in graph.inputs or graph.outputs.count(output) > 1:
            continue
        same = [k for k, v in enumerate(graph.inputs) if v.type == output.type and k not in taken and v.type.size]
        if same:
            found[position] = same[0]
            taken.add(same[0])
    return found


def check_donated(graph: Graph, inputs: Arrays, ulps: float = 8.0) -> Compiled:
    """Compile with every possible donation, run in place, compare with the interpreter."""
    arrays = [np.array(x, order="C", copy=True) for x in inputs]
    expected = [y.copy() for y in evaluate(graph, arrays)]  # views would see what is written in place
    donated = donations(graph)
    compiled = compile(graph, donated)
    outputs = [np.empty(y.shape, y.dtype) for y in expected]
    for position, source in donated.items():
        outputs[position] = arrays[source]
    compiled.executable.run(arrays, outputs)
    for position, (y, reference) in enumerate(zip(outputs, expected, strict=True)):
        wrong = disagreement(y, reference, ulps)
        assert not wrong, f"output {position} of donation {donated}: {wrong}\n{graph}\n{compiled.schedule}"
    return compiled
