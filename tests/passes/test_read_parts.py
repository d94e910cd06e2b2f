"""Products of which only rows and columns are read multiply these alone: the same numbers, fewer multiplications."""

from __future__ import annotations

import numpy as np
import pytest

from autojit.ir import Graph, evaluate, parse_graph
from autojit.ir.verifier import verify
from autojit.ops.matmul import Matmul
from autojit.passes.read_parts import multiply_what_is_read
from tests.codegen.agreement import check_compiled

WHOLE = (slice(0, 16), slice(0, 24))
READ = [
    [(slice(0, 16), slice(8, 24))],
    [(slice(3, 9), slice(0, 24))],
    [(slice(2, 5), slice(4, 8)), (slice(7, 9), slice(5, 12))],
    [(slice(0, 16, 3), slice(2, 20, 5)), (slice(1, 2), slice(0, 3))],
]
LEFT_WHOLE = [[WHOLE], [(slice(0, 16), slice(0, 8)), (slice(0, 16), slice(8, 24))], [(slice(1, 16), slice(1, 24))]]


def sliced_product(places: list[tuple[slice, slice]], batch: tuple[int, ...] = (), more: str = "") -> Graph:
    """``a @ b``, of which slices are read."""
    ahead = ["0"] * len(batch), [str(n) for n in batch], ["1"] * len(batch)
    lines, names = [], []
    for k, place in enumerate(places):
        shape = [*batch, *[len(range(*s.indices(1000))) for s in place]]
        ends = [[str(getattr(s, name) or default) for s in place] for name, default in (("start", 0), ("stop", 0))]
        ends.append([str(s.step or 1) for s in place])
        starts, stops, steps = (", ".join([*first, *last]) for first, last in zip(ahead, ends, strict=True))
        names.append(f"s{k}")
        lines.append(f"s{k}: f32{shape} = slice[starts=({starts}), stops=({stops}), steps=({steps})](c);")
    shapes = [[*batch, 16, 5], [*batch, 5, 24], [*batch, 16, 24]]
    product = f"c: f32{shapes[2]} = matmul(a, b);"
    returned = ", ".join([*names, *([more] if more else [])])
    return parse_graph(f"(a: f32{shapes[0]}, b: f32{shapes[1]}) {{ {product} {' '.join(lines)} return {returned} }}")


def multiplied(graph: Graph) -> int:
    return sum(node.outputs[0].type.size for node in graph.nodes if isinstance(node.op, Matmul))


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("places", READ)
def test_what_is_read_is_the_same_and_nothing_else_is_multiplied(
    places: list[tuple[slice, slice]], batch: tuple[int, ...]
) -> None:
    before = sliced_product(places, batch)
    after = verify(multiply_what_is_read(before))
    rows, columns = (
        range(min(place[axis].start for place in places), max(place[axis].stop for place in places)) for axis in (0, 1)
    )
    assert multiplied(after) == len(rows) * len(columns) * int(np.prod(batch))
    generator = np.random.default_rng(1)
    inputs = [generator.integers(-9, 9, v.type.shape).astype(np.float32) for v in before.inputs]
    for x, y in zip(evaluate(before, inputs), evaluate(after, inputs), strict=True):
        np.testing.assert_array_equal(y, x)  # sums of whole numbers, so exact in any order
    if not batch:
        check_compiled(before, inputs)


@pytest.mark.parametrize("places", LEFT_WHOLE)
def test_products_that_are_read_as_a_whole_or_nearly_so_stay(places: list[tuple[slice, slice]]) -> None:
    graph = sliced_product(places)
    assert multiply_what_is_read(graph) is graph


def test_products_that_are_results_or_that_others_read_stay() -> None:
    graph = sliced_product(READ[0], more="c")
    assert multiply_what_is_read(graph) is graph
