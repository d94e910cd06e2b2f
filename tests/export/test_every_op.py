"""Every op on its own samples: a library computes the bits of the process, or says why there is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.core.dtypes import ALL_DTYPES
from autojit.dispatch.dispatch import apply
from autojit.ir.op import Op
from tests.export.agreement import bits

MOST = 3  # samples of a dtype


def _samples(name: str) -> Iterator[tuple[Op, list[Any]]]:
    make = getattr(Op.registry[name], "samples", None)
    for dtype in ALL_DTYPES if make is not None else ():
        try:
            found = list(make(dtype))
        except Exception:  # not for this dtype
            continue
        for op, inputs in [(s[0], s[1]) for s in found][:MOST]:
            yield op, [np.ascontiguousarray(x) if np.ndim(x) else np.asarray(x) for x in inputs]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(Op.registry))
def test_an_op_in_a_library_has_the_bits_of_the_process(name: str, tmp_path: Path) -> None:
    cases = []
    for op, inputs in _samples(name):
        try:
            with np.errstate(all="ignore"):
                apply(op, *[aj.tensor(x) for x in inputs])
        except Exception:  # refused, with the reason for these operands
            continue
        cases.append((op, inputs))
    if not cases:
        pytest.skip("it has no samples that it takes")
    given = [x for _, inputs in cases for x in inputs]

    @aj.jit
    def step(*operands: aj.Tensor) -> tuple[Any, ...]:
        results: list[Any] = []
        at = 0
        for op, inputs in cases:
            found = apply(op, *operands[at : at + len(inputs)])
            results += [y.clone() for y in (found if isinstance(found, tuple) else (found,))]
            at += len(inputs)
        return tuple(results)

    with np.errstate(all="ignore"):
        expected = step(*map(aj.tensor, given))
    try:
        step.export(tmp_path / "step")
    except aj.export.ExportError as error:
        pytest.skip(str(error).splitlines()[0])
    assert bits(aj.export.load(tmp_path / "step")(*given)) == bits(expected)
