"""Comparing runs: do they agree, was the step refused, or is it a finding?

A difference within the dtype's tolerance is rounding. A larger one is explained by rounding when the eager run itself
moves about as far once its inputs are changed in their last digits (an ill-conditioned program, a branch on the brink).
"""

from __future__ import annotations

import re
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from autojit.core.errors import TraceError
from autojit.testing.fuzz.inputs import set_shake_size, shaken
from autojit.testing.fuzz.running import ProgramFunction, Seen, run
from autojit.testing.fuzz.watching import Fact

EPSILON = {
    "float64": 2.2e-16, "complex128": 2.2e-16, "float32": 1.2e-7, "complex64": 1.2e-7, "float16": 9.8e-4,
    "bfloat16": 7.8e-3,
}  # fmt: skip
UNITS = 1000.0  # rounding errors of a chain of some tens of ops and short sums, in units of the largest magnitude
SMALLEST = 0.1  # magnitude below which a number is taken for the rest of a cancellation between numbers around 1
SHAKES = 5
LOOPS = {"cond", "scan", "while_loop"}  # gradients through them are in row-major order
MORE_SHAKES = 25  # before a difference is a finding: five equal signs of what only rounding decides are not rare
EXPLAINED = 100.0  # times the movement of the shaken eager run that a difference may reach
MINOR = ("strides", "version moved", "is_leaf", "requires_grad", "memory", "identity")  # told when nothing else differs
BROKEN = ("NameError", "UnboundLocalError", "SyntaxError")  # of a program that lost a statement while it was shrunk


class Verdict(NamedTuple):
    """What comparing the modes of a program gave."""

    kind: str  # "agrees", "eager error", "refused", "rounding", "broken", or the class of a finding
    place: str = ""
    mode: str = ""
    eager: str = ""
    compiled: str = ""
    is_finding: bool = False


def judge(program: ProgramFunction, dtype: str, passes_off: bool = False) -> Verdict:
    """Run a program in its modes and compare."""
    eager = run(program, "eager")
    if type(eager.broken or eager.error).__name__ in BROKEN:
        return Verdict("broken", eager=_error_text(eager.broken or eager.error))
    modes = ("compiled", "passes off") if passes_off else ("compiled",)
    rounding = _Rounding(program, eager, dtype)
    for mode in modes:
        verdict = _compare_runs(eager, run(program, mode), mode, rounding)
        if verdict.kind != "agrees":
            return verdict
    if eager.broken is not None:
        return Verdict("broken", eager=_error_text(eager.broken))
    if eager.error is not None:
        return Verdict("eager error", eager.failed_at, eager=_error_text(eager.error))
    return Verdict("agrees")


def _names(function: Any) -> set[str]:
    """The names that code uses, with the code in it."""
    code = getattr(function, "__code__", function)
    found = set(code.co_names)
    return found.union(*(_names(part) for part in code.co_consts if isinstance(part, CodeType)))


def _compare_runs(eager: Seen, compiled: Seen, mode: str, rounding: _Rounding) -> Verdict:
    minor: Verdict | None = None
    rounded: Verdict | None = None
    for k, (a, b) in enumerate(zip(eager.facts, compiled.facts, strict=False)):
        if (a.place, a.aspect) != (b.place, b.aspect):
            if rounded is not None and rounding.explains(k, None):
                return rounded
            return Verdict("structure", a.place, mode, f"{a.aspect} at {a.place}", f"{b.aspect} at {b.place}", True)
        if not _equal(a, b, rounding.dtype):
            found = Verdict(a.aspect, a.place, mode, _text(a.value), _text(b.value), True)
            if (a.aspect in ("value", "shape") or rounded is not None) and rounding.explains(k, b, rounded is not None):
                rounded = rounded or found._replace(kind="rounding", is_finding=False)
            elif a.aspect not in MINOR:
                return found
            elif not _is_open(a, eager, compiled, rounding.program):
                minor = minor or found
    if compiled.torn is not None and not _left_alike(eager, compiled, rounding.dtype):
        before, after = compiled.torn
        kind = f"a failed call changed {before.aspect}"
        return Verdict(kind, before.place, mode, f"before: {_text(before.value)}", f"after: {_text(after.value)}", True)
    ending = _compare_endings(eager, compiled, mode)
    if rounded is not None and (not ending.is_finding or rounding.explains_ending()):
        ending = rounded
    return ending if minor is None or ending.is_finding else minor


def _is_open(found: Fact, eager: Seen, compiled: Seen, program: ProgramFunction) -> bool:
    """What docs/jit.md leaves open: strides of gradients of loops and of returned views beside what was computed; and
    whether gradients of nothing have a history.
    """
    if "grad" not in found.place:
        return False
    if found.aspect in ("requires_grad", "is_leaf"):
        values = [fact.value for seen in (eager, compiled) for fact in seen.facts if fact[:2] == (found.place, "value")]
        return all(not np.any(value) for value in values)
    return found.aspect == "strides" and (bool(_names(program) & LOOPS) or _returns_a_view_and_more(eager))


def _returns_a_view_and_more(eager: Seen) -> bool:
    """Whether a call gave several tensors of which one shows memory of an argument: its gradient is added outside."""
    shared = [fact for fact in eager.facts if fact.aspect == "memory"]
    several = {fact.place.partition(":")[0] for fact in shared if fact.place.endswith("result tensor 1")}
    return any(fact.value and fact.place.partition(":")[0] in several for fact in shared)


def _left_alike(eager: Seen, compiled: Seen, dtype: str) -> bool:
    """Whether a failed call that ran line by line has left what the eager one has left."""
    return len(eager.left) == len(compiled.left) and all(
        a[:2] == b[:2] and _equal(a, b, dtype) for a, b in zip(eager.left, compiled.left, strict=True)
    )


def _compare_endings(eager: Seen, compiled: Seen, mode: str) -> Verdict:
    """What is left when all facts that both runs have agree."""
    shorter = min(len(eager.facts), len(compiled.facts))
    left, right = eager.error or eager.broken, compiled.error or compiled.broken
    if left is None and right is None and len(eager.facts) != len(compiled.facts):
        more = (eager.facts if len(eager.facts) > shorter else compiled.facts)[shorter]
        return Verdict("structure", more.place, mode, f"{len(eager.facts)} facts", f"{len(compiled.facts)} facts", True)
    if left is right is None or (left is not None and right is not None and _same_error(left, right)):
        return Verdict("agrees")
    if right is not None and _is_refusal(right):
        given = "" if left is None else _error_text(left)
        return Verdict("refused", compiled.failed_at, mode, given, refusal(right))
    if left is None and re.search(r"needed by +CondBackward", str(right)):  # docs/control_flow.md
        return Verdict("refused", compiled.failed_at, mode, compiled="cond: keeps what either branch needs")
    names = " against ".join("no error" if e is None else type(e).__name__ for e in (left, right))
    place = eager.failed_at or compiled.failed_at
    return Verdict(f"error: {names}", place, mode, _error_text(left), _error_text(right), True)


def _is_refusal(error: Exception) -> bool:
    """An error that says what a capture cannot hold, and what to write instead."""
    text = str(error)
    names_fix = "\n  fix" in text and re.search(r"compiled step|captur|trac(ed|ing)|inside a step", text) is not None
    return isinstance(error, TraceError) or (isinstance(error, RuntimeError) and names_fix)


def _same_error(left: Exception, right: Exception) -> bool:
    """Of one type, or both of the types that torch's errors derive from (a ``ShapeError`` is a ``RuntimeError``)."""
    return isinstance(left, type(right)) or isinstance(right, type(left)) or bool(_roots(left) & _roots(right))


def _roots(error: Exception) -> set[type]:
    return {base for base in type(error).__mro__ if base.__module__ == "builtins"} - {Exception, BaseException, object}


def _equal(a: Fact, b: Fact, dtype: str) -> bool:
    if isinstance(a.value, np.ndarray) and isinstance(b.value, np.ndarray):
        return _close(a.value, b.value, dtype)
    if isinstance(a.value, float | complex) and isinstance(b.value, float | complex):
        return _close(np.asarray(a.value), np.asarray(b.value), dtype)
    if a.aspect == "output":
        return _reads_alike(a.value, b.value, dtype)
    return bool(a.value == b.value)


_NUMBER = re.compile(r"[+-]?\d+\.(\d*)(?:e([+-]?\d+))?")


def _reads_alike(left: str, right: str, dtype: str) -> bool:
    """Whether two printed texts are the same except for numbers that rounding tells apart.

    Numbers that differ by no more than rounding are printed with at most one unit of the last digit between them.
    """
    # columns are as wide as the widest number
    texts = [re.sub(r"(?<=[\[(]) ", "", " ".join(text.split())) for text in (left, right)]
    if _NUMBER.sub("#", texts[0]) != _NUMBER.sub("#", texts[1]):
        return False
    pairs = zip(*(_NUMBER.finditer(text) for text in texts), strict=True)
    return all(_is_printed_alike(a, b, dtype) for a, b in pairs)


def _is_printed_alike(a: re.Match[str], b: re.Match[str], dtype: str) -> bool:
    x, y = float(a[0]), float(b[0])
    units = [10.0 ** (int(m[2] or 0) - len(m[1])) for m in (a, b) if m[1]]  # "3." is all digits that there are
    rounding = UNITS * EPSILON.get(dtype, 0.0) * (abs(x) + SMALLEST)
    return abs(x - y) <= max(units, default=0.0) * (1 + 1e-9) + rounding


def _close(a: Any, b: Any, dtype: str) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind in "biuSUO":
        return bool(np.array_equal(a, b))
    if a.tobytes() == b.tobytes():  # nearly always; the rest takes 50 us
        return True
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    left, right = a.astype(wide), b.astype(wide)
    with np.errstate(all="ignore"):
        return bool(np.allclose(right, left, rtol=0, atol=_tolerances(a, dtype), equal_nan=True))


def _tolerances(value: Any, dtype: str) -> Any:
    """How far each number may be off: some rounding errors of itself and of the largest beside it."""
    array = np.asarray(value)
    unit = max(EPSILON.get(dtype, 0.0), EPSILON.get(str(array.dtype), 0.0))
    with np.errstate(all="ignore"):
        size = np.abs(array.astype(np.complex128))
    size = np.where(np.isfinite(size), size, 0.0)
    return UNITS * unit * (size + max(float(size.max(initial=0.0)), SMALLEST))


class _Rounding:
    """What rounding explains of a program's differences: the eager run moves as far when it is shaken."""

    def __init__(self, program: ProgramFunction, eager: Seen, dtype: str) -> None:
        self.program, self.eager, self.dtype = program, eager, dtype
        self._others: list[Seen] = []

    def explains(self, index: int, compiled: Fact | None, is_amplified: bool = False) -> bool:
        """Whether the eager run's fact differs as much by itself; ``compiled``: the compiled run's in its place.

        Where rounding has been ``is_amplified`` before (the sign of a gradient that is nothing but rounding decided a
        step), what follows is one of more outcomes than are drawn: a number may be off as far as any beside it moves.
        """
        return any(self._explains(index, compiled, shakes, is_amplified) for shakes in (SHAKES, MORE_SHAKES))

    def _explains(self, index: int, compiled: Fact | None, shakes: int, is_amplified: bool) -> bool:
        fact = self.eager.facts[index]
        others = [seen.facts[index] if index < len(seen.facts) else None for seen in self._shaken(shakes)]
        kept = [other for other in others if other is not None and other[:2] == fact[:2]]
        if len(kept) < len(others):
            return True  # a branch on the brink
        if compiled is None:
            return False
        if not _is_float(fact) or not _is_float(compiled):
            return any(not _equal(fact, other, self.dtype) for other in kept)
        if np.shape(fact.value) != np.shape(compiled.value):  # of as many as a comparison lets through
            return any(np.shape(other.value) != np.shape(fact.value) for other in kept)
        moved = np.max([_distances(fact, other) for other in kept], axis=0)
        most = EXPLAINED * moved
        if is_amplified:
            most = np.maximum(most, 2 * moved.max(initial=0.0, where=np.isfinite(moved)))
        is_near = _distances(fact, compiled) <= most + _tolerances(fact.value, self.dtype)
        if self.dtype == "float16" or np.asarray(fact.value).dtype == np.float16:
            # whose products overflow: where one in between did, eager mode knows no number
            is_near |= ~np.isfinite(fact.value)
            is_on_the_brink = np.abs(fact.value) >= np.finfo(np.float16).max / 8
            is_near |= is_on_the_brink & ~np.isfinite(compiled.value)
        return bool(np.all(is_near))

    def explains_ending(self) -> bool:
        """Whether the eager run ends otherwise by itself."""
        ends = {(type(seen.error or seen.broken), len(seen.facts)) for seen in (self.eager, *self._shaken(SHAKES))}
        return len(ends) > 1

    def _shaken(self, shakes: int) -> list[Seen]:
        set_shake_size(EPSILON[self.dtype])
        for seed in range(len(self._others), shakes):
            with shaken(seed):
                self._others.append(run(self.program, "eager"))
        return self._others[:shakes]


def _is_float(fact: Fact) -> bool:
    return isinstance(fact.value, np.ndarray | float | complex) and np.asarray(fact.value).dtype.kind not in "biuSUO"


def _distances(a: Fact, b: Fact) -> Any:
    """How far each number is from the other run's: infinitely where only one is a number."""
    x, y = (np.asarray(f.value) for f in (a, b))
    if x.shape != y.shape:
        return np.full(x.shape, np.inf)
    with np.errstate(all="ignore"):
        x, y = x.astype(np.complex128), y.astype(np.complex128)
        gaps = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y))
    return np.where(np.isnan(gaps), np.inf, gaps)


def refusal(error: Exception) -> str:
    """The kind of a refusal: its first line without what belongs to one program."""
    first = str(error).split("\n", 1)[0]
    return re.sub(r"\d+", "N", re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`", "...", first))[:120]


def _error_text(error: Exception | None) -> str:
    return "no error" if error is None else f"{type(error).__name__}: {str(error)[:600]}"


def _text(value: Any) -> str:
    return np.array2string(value, threshold=40, precision=8) if isinstance(value, np.ndarray) else repr(value)
