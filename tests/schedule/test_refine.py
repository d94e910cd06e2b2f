"""Splitting and merging loops: the same elements in the same order, by plainer addresses and fewer loops."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

import autojit.ops as ops
from autojit.core.dtypes import float32
from autojit.core.types import TensorType
from autojit.ir.graph import Value
from autojit.ir.index import Bounded, Index, LoopVariable, Opaque, Quotient, Remainder
from autojit.schedule.expressions import Applied, Expressions, Guard, Guarded, Load, Number
from autojit.schedule.kernels import LoopKernel
from autojit.schedule.loops import LoopProgram, Store
from autojit.schedule.refine import settle
from tests.schedule.shown import scheduled

# -- programs by hand


def copying(
    rows: list[LoopVariable], read: Index, write: Index, prefix: int = 0, inner: tuple[LoopVariable, ...] = ()
) -> LoopProgram:
    """Loops that copy an element from one position to another."""
    exprs = Expressions()
    value = Value(TensorType((64,), float32), "x")
    load = exprs.make(Load, float32, positions=(read,), buffer=0)
    return LoopProgram(
        rows=tuple(rows),
        inner=inner,
        prefix=prefix,
        is_flat=not inner,
        exprs=tuple(exprs.made),
        reductions=(),
        stores=(Store(value, load, write),),
        accumulators=(),
        loads=(value,),
    )


def at(index: Index, places: dict[LoopVariable, int]) -> int:
    """The number an index is at one point of the loops."""
    total = index.offset
    for term, coefficient in index.terms:
        if isinstance(term, LoopVariable):
            total += coefficient * places[term]
        else:
            assert isinstance(term, Quotient | Remainder)
            base = at(term.base, places)
            total += coefficient * (base // term.divisor if isinstance(term, Quotient) else base % term.divisor)
    return total


def accesses(program: LoopProgram) -> Iterator[tuple[int, int]]:
    """(position read, position written) at each point, in the order of the loops."""
    loops = (*program.rows, *program.inner)
    (store,) = program.stores
    for places in product(*(range(v.extent) for v in loops)):
        here = dict(zip(loops, places, strict=True))
        yield at(store.expr.positions[0], here), at(store.index, here)


i, j, k = (LoopVariable(name, extent) for name, extent in (("i", 12), ("j", 4), ("k", 3)))
I, J, K = map(Index.of, (i, j, k))


def extents(program: LoopProgram) -> list[int]:
    return [v.extent for v in program.rows]


# -- splitting and merging


def test_loops_that_every_address_walks_as_one_are_merged() -> None:
    assert extents(settle(copying([j, k], J * 3 + K, J * 3 + K))) == [12]
    assert extents(settle(copying([j, k], J + K * 4, J * 3 + K))) == [4, 3]


def test_a_loop_is_split_where_an_address_divides_it() -> None:
    settled = settle(copying([i], (I % 4) * 3 + I // 4, I))
    assert extents(settled) == [3, 4]
    assert not settled.exprs[0].positions[0].divided_variables()


def test_divisors_that_do_not_divide_each_other_are_left_to_division() -> None:
    assert extents(settle(copying([i], (I % 4) + (I % 6) * 4, I))) in ([3, 4], [2, 6])
    assert settle(copying([i], (I % 4) + (I % 6) * 4, I)).exprs[0].positions[0].divided_variables()


def test_rows_kept_by_column_sums_are_merged_among_themselves() -> None:
    settled = settle(copying([j, k], J * 3 + K, J * 3 + K, prefix=1))
    assert extents(settled) == [4, 3]
    assert settled.prefix == 1


def test_a_program_that_is_settled_stays_as_it_is() -> None:
    settled = settle(copying([j, k], J + K * 4, J * 3 + K))
    assert settle(settled) is settled


@st.composite
def programs(draw: st.DrawFn) -> LoopProgram:
    """Two or three loops that read through divisions and write through sums."""
    counts = draw(st.lists(st.sampled_from((2, 3, 4, 6, 12)), min_size=1, max_size=3))
    loops = [LoopVariable(f"i{axis}", n) for axis, n in enumerate(counts)]
    whole = Index()
    for variable in loops:
        whole = whole * variable.extent + Index.of(variable)
    divisors = draw(st.lists(st.sampled_from((2, 3, 4, 6)), min_size=1, max_size=2))
    read = Index((), draw(st.integers(0, 3)))
    for divisor in divisors:
        read = read + (whole // divisor) * draw(st.integers(0, 3)) + (whole % divisor) * draw(st.integers(0, 3))
    inner = tuple(loops[1:]) if draw(st.booleans()) else ()
    rows = loops[: len(loops) - len(inner)]
    return copying(rows, read, whole, draw(st.integers(0, len(rows))) if inner else 0, inner)


@given(programs())
def test_a_settled_program_reads_and_writes_the_same_elements_in_the_same_order(program: LoopProgram) -> None:
    settled = settle(program)
    assert list(accesses(settled)) == list(accesses(program))
    assert len(settled.rows[: settled.prefix]) == settled.prefix
    assert settle(settled) is settled


# -- guards


def guarded(guard: Guard) -> Guard:
    """What becomes of a guard in two loops of 4 and 8."""
    row, column = LoopVariable("r", 4), LoopVariable("c", 8)
    exprs = Expressions()
    value = Value(TensorType((32,), float32), "x")
    load = exprs.make(Load, float32, positions=(Index.of(row) * 8 + Index.of(column) * 3,), buffer=0)
    number = exprs.make(Number, float32, digits=Number.digits_of(0))
    chosen = exprs.make(Guarded, float32, (load, number), guards=(guard,), end=None)
    program = LoopProgram(
        (row, column), (), 0, True, tuple(exprs.made), (), (Store(value, chosen, Index.of(row) * 8),), (), (value,)
    )
    (found,) = settle(program).exprs[-1].guards
    return found


def test_only_the_outer_digits_are_asked_for_where_pieces_are_whole() -> None:
    row, column = Index.of(LoopVariable("r", 4)), Index.of(LoopVariable("c", 8))
    assert guarded((row * 8 + column, 8, 24)) == (row, 1, 3)
    assert guarded((row * 8 + column, 8, 20)) == (row * 8 + column, 8, 20)


# -- expressions


def test_of_equal_parts_there_is_one_expression_and_nothing_in_it_changes() -> None:
    exprs = Expressions()
    x, again = (exprs.make(Load, float32, positions=(I,), buffer=0) for _ in range(2))
    y = exprs.make(Load, float32, positions=(I,), buffer=1)
    total, same, other = (exprs.make(Applied, float32, args, op=ops.Add()) for args in ((x, y), (again, y), (y, x)))
    assert x is again and total is same and other is not total
    assert [e.serial for e in exprs.made] == [0, 1, 2, 3]
    for name in ("positions", "buffer"):
        with pytest.raises(AttributeError):
            setattr(x, name, ())


def test_positions_that_become_one_make_one_expression() -> None:
    """``i % 12`` is ``i`` once the loop is known to be of twelve."""
    wide = LoopVariable("w", 24)
    exprs = Expressions()
    value = Value(TensorType((24,), float32), "x")
    base = Index.of(wide)
    direct, around = (
        exprs.make(Load, float32, positions=(p,), buffer=0) for p in (base, base % 12 + (base // 12) * 12)
    )
    total = exprs.make(Applied, float32, (direct, around), op=ops.Add())
    assert direct is around
    assert len(exprs.made) == 2
    program = LoopProgram((wide,), (), 0, True, tuple(exprs.made), (), (Store(value, total, base),), (), (value,))
    assert settle(program) is program


def test_an_expression_is_of_the_phase_after_the_row_results_it_reads() -> None:
    (kernel,) = scheduled("""(x: f32[4, 6]) {
        m: f32[4] = amax[axes=(1,)](x); a: f32[4, 1] = reshape[shape=(4, 1)](m); d: f32[4, 6] = sub(x, a);
        e: f32[4, 6] = exp(d); s: f32[4] = sum[axes=(1,)](e); b: f32[4, 1] = reshape[shape=(4, 1)](s);
        y: f32[4, 6] = div(e, b); return y
    }""").kernels
    assert isinstance(kernel, LoopKernel)
    names = [getattr(e.op, "name", "") if isinstance(e, Applied) else type(e).__name__ for e in kernel.program.exprs]
    phases = dict(zip(names, [e.phase for e in kernel.program.exprs], strict=True))
    assert phases == {"Load": 0, "RowResult": 2, "sub": 1, "exp": 1, "div": 2}
    assert [r.expr.phase for r in kernel.program.reductions] == [0, 1]


# -- what slices may cut


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("(x: f32[4, 6]) { y: f32[4, 6] = exp(x); return y }", [24]),
        ("(x: f32[4, 6]) { p: f32[6, 4] = permute[axes=(1, 0)](x); y: f32[6, 4] = exp(p); return y }", [6]),
        ("(x: f32[4, 6]) { y: f32[4] = sum[axes=(1,)](x); return y }", [4]),
        ("(x: f32[6]) { y: f32[] = sum[axes=(0,)](x); return y }", [6]),
        ("(x: f32[6]) { y: i64[] = argmax[axes=(0,)](x); return y }", []),
        ("(x: f32[3, 4, 6]) { y: f32[3, 6] = sum[axes=(1,)](x); return y }", [3]),
        ("(x: f32[]) { y: f32[] = exp(x); return y }", []),
    ],
)
def test_slices_cut_rows_and_leave_the_innermost_loop_whole(text: str, cut: list[int]) -> None:
    (kernel,) = scheduled(text).kernels
    assert isinstance(kernel, LoopKernel)
    assert [v.extent for v in kernel.program.sliced] == cut


# -- the walker of indices


def test_a_walk_visits_every_term_and_what_it_is_made_of() -> None:
    inside = Index.of(Opaque("g", 5)) + J
    rest = Remainder(inside, 3)
    outer = Quotient(Index.of(rest) + K * 7, 2)
    index = Index.of(outer) + I + Index.of(Bounded(K * 2, 4))
    found = index.walk()
    assert set(found) == {outer, i, rest, k, Opaque("g", 5), j, Bounded(K * 2, 4)}
    assert found.index(outer) < found.index(rest) < found.index(j)  # a term before what it is made of
    assert index.divided_variables() == {j, k}


def test_terms_are_replaced_inside_divisions_as_well() -> None:
    index = Index.of(Quotient(Index.of(Opaque("g", 9)) + J, 4)) + Index.of(Opaque("g", 9))
    found = index.replaced(lambda term: Index.of(Opaque("h", 9)) if isinstance(term, Opaque) else None)
    assert {term.text for term in found.walk() if isinstance(term, Opaque)} == {"h"}
    assert index.replaced(lambda term: None) == index
