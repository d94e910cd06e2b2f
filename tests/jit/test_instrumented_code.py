"""Instrumented code does what the code does: CPython's own library, rewritten, gives the same results."""

from __future__ import annotations

import _pydecimal
import ast
import calendar
import difflib
import fractions
import inspect
import statistics
import string
import textwrap
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

import pytest

from autojit.jit.instrumented_code import instrumented, is_instrumented
from autojit.jit.read_hooks import HOOKS


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    for value in vars(module).values():
        members = list(vars(value).values()) if isinstance(value, type) else [value]
        for member in members:
            plain = getattr(member, "__func__", member)
            if isinstance(plain, FunctionType) and plain.__code__.co_filename == module.__file__:
                yield plain


@contextmanager
def _rewritten(module: ModuleType) -> Iterator[int]:
    kept = {function: function.__code__ for function in _functions(module)}
    for function, code in kept.items():
        function.__code__ = instrumented(code, HOOKS)
    try:
        yield len(kept)
    finally:
        for function, code in kept.items():
            function.__code__ = code


SOURCE = """
async def f(a, /, b, *c, d=1, **e):
    async with a as x, b: return [y async for y in x if y] + [*c]
def g(n):
    try:
        match n:
            case {"k": [1, *rest], **more} if rest: yield from more
            case str() | None: raise ValueError(f"{n!r:>{8}}") from None
    except* KeyError as error: del error
    finally: global K; K = lambda q, *, z=3: q if z else (yield)
"""

PROGRAMS: dict[ModuleType, Any] = {
    ast: lambda: ast.unparse(ast.parse(SOURCE)),
    calendar: lambda: calendar.TextCalendar().formatmonth(2024, 2),
    difflib: lambda: list(difflib.ndiff(["one", "two", "three"], ["one", "tree", "four"])),
    fractions: lambda: fractions.Fraction("3.1415926535").limit_denominator(1000) ** 3 // fractions.Fraction(2, 7),
    statistics: lambda: (statistics.stdev([1, 2, 4.5]), statistics.NormalDist(1, 2).cdf(2.5), statistics.mode("aab")),
    string: lambda: string.Formatter().format("{0:>{w}} {a.real!s}", "x", w=5, a=3),
    textwrap: lambda: textwrap.dedent(textwrap.indent(textwrap.fill("lorem ipsum dolor sit " * 9, 30), "  ")),
    _pydecimal: lambda: str(_pydecimal.Decimal("1.2345678") ** _pydecimal.Decimal("2.5") % 2),
    inspect: lambda: str(inspect.signature(textwrap.TextWrapper)) + inspect.getsource(textwrap.indent),
}


@pytest.mark.parametrize("module", PROGRAMS, ids=lambda module: module.__name__)
def test_a_rewritten_module_gives_what_it_gave(module: ModuleType) -> None:
    expected = PROGRAMS[module]()
    with _rewritten(module) as count:
        assert PROGRAMS[module]() == expected
    assert count > 5


def test_lines_columns_and_tracebacks_are_as_before() -> None:
    def fails(x: Any) -> Any:
        y = (
            1
            + x.nothing
        )  # fmt: skip
        return y  # noqa: RET504

    def told() -> list[tuple[int | None, str | None]]:
        try:
            fails(3)
        except AttributeError as error:
            frames = traceback.extract_tb(error.__traceback__)
            return [(f.lineno, f.line) for f in frames if f.name == "fails"]
        raise AssertionError

    before = told()
    lines = {line for _, _, line in fails.__code__.co_lines()}
    fails.__code__ = instrumented(fails.__code__, HOOKS)
    assert told() == before and is_instrumented(fails.__code__)
    assert {line for _, _, line in fails.__code__.co_lines()} == lines


def test_jumps_that_grow_reach_their_targets() -> None:
    body = "\n".join(f"        total = total + data[{k % 3}] * k.real" for k in range(400))
    loop = "    for k in (1, 2, 3):\n        if k == 2: continue\n"
    text = f"def long(data):\n    total = 0\n{loop}{body}\n    return total\n"
    names: dict[str, Any] = {}
    exec(text, names)
    long = names["long"]
    expected = long([1, 2, 3])
    long.__code__ = instrumented(long.__code__, HOOKS)
    assert long([1, 2, 3]) == expected
