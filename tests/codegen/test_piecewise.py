"""Joined, padded and overwritten pieces in loop kernels: right wherever they lie, and read without masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autojit.ops  # noqa: F401
from autojit.codegen.piecewise import cuts, outcome, shared_walk
from autojit.codegen.target import host_target
from autojit.compiler import Compiled
from autojit.core.config import config
from autojit.core.dtypes import float32
from autojit.core.sizes import named_size
from autojit.ir import parse_graph
from autojit.ir.graph import Graph
from autojit.ir.index import Index, LoopVariable
from autojit.runtime.llvm import optimised_ir
from autojit.schedule.expressions import FIRST, LAST, Expr, Expressions, Guarded, Load, Number
from tests.codegen.agreement import check_compiled

PAD = "pad[low={}, high={}, interior=(0, 0), value=2.5]"


def agrees(text: str) -> Compiled:
    graph = parse_graph(text)
    return check_compiled(graph, drawn(graph))


def drawn(graph: Graph) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    return [np.asarray(3 * rng.standard_normal(v.type.shape)).astype(v.type.dtype.numpy) for v in graph.inputs]


def kernel_text(compiled: Compiled) -> str:
    return optimised_ir(compiled.lowered.entries[0].body, host_target())  # type: ignore[arg-type, union-attr]


def joined(axis: int, extents: list[int], others: int, ending: str, result: str) -> str:
    """Operands joined along an axis of a matrix, and what is done with the whole."""
    shapes = [(n, others) if axis == 0 else (others, n) for n in extents]
    whole = [sum(extents), others] if axis == 0 else [others, sum(extents)]
    inputs = ", ".join(f"x{k}: f32{list(shape)}" for k, shape in enumerate(shapes))
    names = ", ".join(f"x{k}" for k in range(len(extents)))
    return f"({inputs}) {{ c: f32{whole} = concatenate[axis={axis}]({names}); y: f32{result} = {ending}; return y, c }}"


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("extents", [[32, 32], [64, 16, 48, 64], [1, 63], [40, 3, 5], [30, 2, 30, 2, 30, 2, 32]])
@pytest.mark.parametrize("is_checked", [False, True])
def test_joined_pieces_agree(axis: int, extents: list[int], is_checked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "check", is_checked)
    total = sum(extents)
    whole = [total, 24] if axis == 0 else [24, total]
    agrees(joined(axis, extents, 24, "tanh(c)", str(whole)))
    agrees(joined(axis, extents, 24, "sum[axes=(0,)](c)", str(whole[1:])))
    agrees(joined(axis, extents, 24, "sum[axes=(1,)](c)", str(whole[:1])))


def test_what_is_computed_in_a_piece_is_computed_in_its_place_only() -> None:
    agrees(
        "(a: f32[6, 32], b: f32[5, 32], r: f32[32]) { s: f32[5, 32] = broadcast_to[shape=(5, 32)](r); "
        "c: f32[16, 32] = concatenate[axis=0](a, s, b); d: f32[18, 32] = " + PAD.format((1, 0), (1, 0)) + "(c); "
        "e: f32[36, 32] = concatenate[axis=0](d, d); y: f32[36, 32] = exp(e); return y }"
    )


def test_pieces_within_pieces_agree_on_both_axes() -> None:
    agrees(
        "(a: f32[6, 40], b: f32[4, 40]) { c: f32[10, 40] = concatenate[axis=0](a, b); d: f32[14, 48] = "
        + PAD.format((2, 4), (2, 4))
        + "(c); e: f32[14, 96] = concatenate[axis=1](d, d); y: f32[14, 96] = square(e); z: f32[96] = sum[axes=(0,)](y);"
        " return y, z }"
    )


@pytest.mark.parametrize("axis", [0, 1])
def test_a_written_slice_agrees_and_may_be_written_in_place(axis: int) -> None:
    starts, shape = ((2, 0), [4, 64]) if axis == 0 else ((0, 16), [8, 32])
    agrees(
        f"(x: f32[8, 64], p: f32{shape}) {{ b: f32[8, 64] = exp(x); c: f32[8, 64] = slice_update[starts={starts}, "
        f"steps=(1, 1)](b, p); d: f32[8, 64] = add(c, b); return c, d }}"
    )


def test_pieces_of_open_extents_agree() -> None:
    graph = parse_graph(
        "(a: f32[s0, 32], b: f32[s1, 32], c: f32[32, s0], d: f32[32, s1]) "
        "{ y: f32[s0+s1, 32] = concatenate[axis=0](a, b); e: f32[s0+s1, 32] = exp(y); "
        "z: f32[32, s0+s1] = concatenate[axis=1](c, d); g: f32[32, s0+s1] = exp(z); return e, g }"
    )
    rng = np.random.default_rng(3)
    for m, n in ((2, 3), (64, 2), (17, 200)):
        shapes = ((m, 32), (n, 32), (32, m), (32, n))
        check_compiled(graph, [rng.standard_normal(shape).astype(np.float32) for shape in shapes])


@pytest.mark.parametrize("axis", [0, 1])
def test_pieces_are_read_by_plain_vector_loads(axis: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "check", False)  # checked kernels test each access
    whole = [64, 64] if axis == 0 else [16, 256]
    shape = [16, 64]
    inputs = ", ".join(f"x{k}: f32{shape}" for k in range(4))
    body = f"c: f32{whole} = concatenate[axis={axis}](x0, x1, x2, x3); y: f32{whole} = mul(c, c); return y"
    compiled = agrees(f"({inputs}) {{ {body} }}")
    found = kernel_text(compiled)
    assert "masked.load" not in found
    assert " x float>" in found


def test_a_short_loop_of_fixed_length_is_vectorised() -> None:
    slices = "slice[starts=(0, 16), stops=(64, 32), steps=(1, 1)]"
    compiled = agrees(f"(x: f32[64, 32]) {{ a: f32[64, 16] = {slices}(x); y: f32[64, 16] = neg(a); return y }}")
    assert "fneg <" in kernel_text(compiled)


# -- the parts


def position(variable: LoopVariable, offset: int = 0) -> Index:
    return Index(((variable, 1),), offset)


NOTHING = Expressions().make(Number, float32, digits=Number.digits_of(0))


def guard(index: Index, low: int, high: int, inside: Expr = NOTHING, rest: Expr = NOTHING, end: Any = None) -> Guarded:
    return Expressions().make(Guarded, float32, (inside, rest), guards=((index, low, high),), end=end)


def load(index: Index, buffer: int = 0) -> Expr:
    return Expressions().make(Load, float32, positions=(index,), buffer=buffer)


def test_loops_are_cut_where_answers_change() -> None:
    i = LoopVariable("i", 256)
    assert cuts([guard(position(i), 64, 128), guard(position(i, -128), 0, 64)], i) == [64, 128, 192]
    assert cuts([guard(position(i), 0, 256)], i) == []
    short = LoopVariable("i", 24)
    assert cuts([guard(position(short), 0, 12)], short) == []  # parts shorter than a vector
    s, t = named_size("s0", 64), named_size("s1", 64)
    open_ = LoopVariable("i", s + t)
    assert cuts([guard(position(open_), 0, s)], open_) == [s]
    assert cuts([guard(position(open_), s, t)], open_) == []  # which of them comes first depends on the call


def test_whole_digits_are_asked_for_by_the_outer_loop_alone() -> None:
    """Columns of heads joined: four heads of 32 in each of three pieces."""
    inputs = ", ".join(f"x{k}: f32[2, 4, 9, 32]" for k in range(3))
    lines = [f"p{k}: f32[2, 9, 4, 32] = permute[axes=(0, 2, 1, 3)](x{k})" for k in range(3)]
    lines += [f"r{k}: f32[2, 9, 128] = reshape[shape=(2, 9, 128)](p{k})" for k in range(3)]
    lines.append("c: f32[2, 9, 384] = concatenate[axis=2](r0, r1, r2)")
    compiled = agrees(f"({inputs}) {{ {'; '.join(lines)}; y: f32[384] = sum[axes=(0, 1)](c); return c, y }}")
    assert "masked.load" not in kernel_text(compiled)
    assert "gather" not in kernel_text(compiled)


def test_a_part_knows_what_its_guards_say() -> None:
    i = LoopVariable("i", 256)
    inside = (position(i, -64), 0, 64)
    assert outcome(inside, i, 64, 128) is True
    assert outcome(inside, i, 0, 64) is False
    assert outcome(inside, i, 128, 256) is False
    assert outcome(inside, i, 0, 256) is None
    assert outcome((position(LoopVariable("j", 4)), 0, 2), i, 0, 64) is None


def test_only_arms_that_walk_alike_share_an_address() -> None:
    row, i = LoopVariable("r", 8), LoopVariable("i", 32)
    along, across = Index(((row, 32), (i, 1))), Index(((row, 1), (i, 8)))

    def chain(second: Index) -> Guarded:
        last = guard(position(row), 4, 8, load(second, 1), end=LAST)
        return guard(position(row), 0, 4, load(along), last, FIRST)

    assert shared_walk(chain(along + -128), [i], ()) == position(i)
    assert shared_walk(chain(along + -128), [i], [1]) is None  # buffer 1 is overwritten
    assert shared_walk(chain(across), [i], ()) is None
