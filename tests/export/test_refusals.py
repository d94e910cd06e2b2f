"""What cannot leave the process is refused by the name of the op and the user's line."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import autojit as aj


def _decides(x: aj.Tensor) -> aj.Tensor:
    return x + 1 if x.sum() > 0 else x - 1


def _calls_python(x: aj.Tensor) -> aj.Tensor:
    aj.debug.callback(lambda value: None, x)
    return x * 2


def _lapack(x: aj.Tensor) -> aj.Tensor:
    return aj.linalg.svdvals(x)


def _draws(x: aj.Tensor) -> aj.Tensor:
    return x * random.random()


def _changes_argument(x: aj.Tensor) -> aj.Tensor:
    x.add_(1)
    return x.sum()


def _gives_a_view(x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
    y = x * 2
    return y, y[1:]


class _Kept:
    last = aj.zeros(3, 3, dtype=aj.int64)


def _assigns(x: aj.Tensor) -> aj.Tensor:
    _Kept.last = x.T * 2 if _Kept.last.ndim == 2 else x
    return x * 2


def _unbounded(x: aj.Tensor) -> aj.Tensor:
    return aj.repeat_interleave(x[0], x[0].long())


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "decision": (_decides, "Python decides on a tensor"),
    "callback": (_calls_python, "calls Python"),
    "lapack": (_lapack, "svdvals|svd"),
    "draw": (_draws, "random"),
    "argument": (_changes_argument, "changes argument 0"),
    "view": (_gives_a_view, "result 1 is a view"),
    "unbounded": (_unbounded, "counts the size of result 0, which nothing bounds"),
    "assigned": (_assigns, "assigns .*last"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_python_is_refused(name: str, tmp_path: Path) -> None:
    function, text = REFUSED[name]
    step = aj.jit(function)
    step(aj.ones(3, 3))
    step(aj.ones(3, 3))
    with pytest.raises(aj.export.ExportError, match=text) as found:
        step.export(tmp_path / "step")
    assert "fix" in str(found.value)
    if name not in ("assigned", "argument", "view"):
        assert "test_refusals.py" in str(found.value)
    assert not list(tmp_path.iterdir())


def test_what_is_no_function_or_has_not_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a function"):
        aj.export.export(3, (aj.ones(2),))  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="has not been called yet"):
        aj.jit(lambda x: x).export(tmp_path / "step")


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        ({"y": {0: aj.export.Dim("n")}}, "no such arguments"),
        (({2: aj.export.Dim("n")},), "no such axis"),
        (({0: 3},), "mapped to Dim"),
        (({0: (n := aj.export.Dim("n")), 1: n},), "two extents"),
        (({1: aj.export.Dim("n")},), "2 or more"),
    ],
)
def test_sizes_that_cannot_be_open_are_refused(shapes: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        aj.export.export(lambda x: x * 2, (aj.ones(2, 1),), dynamic_shapes=shapes)
