"""Small composites: one program of NumPy calls for whatever goes by rows, with the bits and layouts of the parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autojit.ops.fused import Fused
from autojit.ops.graph_op import GraphOp
from autojit.ops.loop_orders import as_loops, goes_by_rows

X = np.random.default_rng(1).uniform(0.5, 2.0, (4, 6)).astype(np.float32)
FORMS: dict[str, Callable[[], Any]] = {
    "whole": lambda: X,
    "with gaps": lambda: np.repeat(X, 2, 1)[:, ::2],
    "one row": lambda: X[:1],
    "one column": lambda: X[:, :1],
    "a vector": lambda: X[0],
    "one number": lambda: X[0, 0:1].reshape(()),
    "one number everywhere": lambda: np.broadcast_to(X[0, 0:1], X.shape),
    "columns": lambda: np.asfortranarray(X),
    "backwards": lambda: X[:, ::-1],
}
BY_ROWS = FORMS.keys() - {"columns", "backwards"}
OPS = {
    "addcmul": Fused("addcmul", (2.0,)),
    "lerp": Fused("lerp", ()),
    "adjoint": Fused("silu", (), None, (((0,), False),)),
}


def test_what_goes_by_rows_is_known_by_its_steps() -> None:
    assert {name for name, make in FORMS.items() if goes_by_rows(make())} == BY_ROWS


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("first", FORMS)
@pytest.mark.parametrize("second", FORMS)
def test_programs_give_bits_and_layouts_of_the_parts(
    name: str, first: str, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    op = OPS[name]
    count = 2 if name == "adjoint" else 3
    given = [FORMS[first](), FORMS[second](), X][:count]
    if np.broadcast_shapes(*[a.shape for a in given]) == ():
        return
    spread = [np.broadcast_to(a, np.broadcast_shapes(*[b.shape for b in given])) for a in given]
    expected = as_loops(op.line_by_line(*spread), spread)
    walks: list[int] = []
    walk = GraphOp.line_by_line
    monkeypatch.setattr(Fused, "line_by_line", lambda self, *arrays: walks.append(1) or walk(self, *arrays))
    found = op.eager(*given)
    np.testing.assert_array_equal(found, expected)
    assert found.strides == expected.strides
    assert bool(walks) == (not {first, second} <= BY_ROWS)
