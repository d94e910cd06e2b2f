"""Which numbers among a jitted function's arguments are inputs of its steps, since they change from call to call.

A number is baked in at first. The second value of a float opens it, the fifth of an int: ints are often choices
(an axis, a count of layers), and a step that knows them is faster. An int that counts, by one more than in a call that
was the same otherwise, is open from then on (the position of a cache), unless Python decides on it together with a
tensor. What it decides on numbers alone guards the capture (`number_guards.py`): an int that begins as counters do is
therefore open in a trial capture, and stays so if nothing but decisions looks at it (`if i % 4 == 3`). Ints that a step
computes have 64 bits: what may not fit, by the known ranges of the numbers it is made of, Python computes
(`exact_numbers.py`). What a function takes the digits of (``range(n)``) cannot stay open: it is fixed again, with the
reason, and every value gets its own step.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from autojit.core.dtypes import bool_
from autojit.core.source import SourceLocation
from autojit.ir.graph import Value
from autojit.jit.number_ranges import ANY, INT64, POSITIVE, SMALL, Range
from autojit.jit.pytree import TreeSpec
from autojit.jit.segment import needed_nodes
from autojit.runtime.entry_spec import INT64_LEAST, INT64_MOST

if TYPE_CHECKING:
    from autojit.jit.arguments import Key
    from autojit.jit.captures import Captures
    from autojit.jit.step import Capture

FIXED = "numbers were fixed"  # how the reason begins for which numbers do not stay open
MOST_WAYS = 16  # captures for what Python decides on a number, until each of its values gets its own
BEGINNINGS = (0, 1)  # where counters begin
INTS_BEFORE = 4  # values of an int argument that get steps of their own, until it counts as changing


def number_kind(leaf: object) -> type | None:
    """float or int for a number of Python or NumPy that a step can take in; None for others, bools among them."""
    if isinstance(leaf, np.generic):
        return (float if leaf.dtype.kind == "f" else int) if leaf.dtype.char in _OF_NUMPY else None
    if type(leaf) is float:
        return float
    return int if type(leaf) is int and INT64_LEAST <= leaf <= INT64_MOST else None


_OF_NUMPY = "fdbhilB"  # the dtypes of scalars that are inputs


class NumberClass(NamedTuple):
    """What all values of an open number share that one step serves: steps are the simpler for what they know of it."""

    name: str
    kind: type
    span: Range
    least: int = INT64_LEAST  # of the number's 64 bits, as the entry point looks at them
    most: int = INT64_MOST
    of_type: type = float

    def takes(self, leaf: object) -> bool:
        """Whether a value is of this class."""
        if type(leaf) is not self.of_type or number_kind(leaf) is None:
            return False
        value: Any = leaf
        if self.kind is float:
            return self.span == ANY or 0.0 < float(value) <= sys.float_info.max
        return self.least <= int(value) <= self.most

    def with_all_of(self, other: NumberClass) -> NumberClass:
        """The class of the values of both, which are numbers of one type."""
        wider = FLOAT if self.kind is float else LARGE if LARGE.span in (self.span, other.span) else INT
        return self if self.span == wider.span else other if other.span == wider.span else _of_type(wider, self.of_type)

    @property
    def is_native(self) -> bool:
        """Whether the entry point takes numbers of this class."""
        return self.of_type in (float, int, np.float64, np.int64)


_BITS_OF_GREATEST = int(np.float64(sys.float_info.max).view(np.int64))
FLOAT = NumberClass("float", float, ANY)
POSITIVE_FLOAT = NumberClass("float > 0", float, POSITIVE, 1, _BITS_OF_GREATEST)
INT = NumberClass("int", int, SMALL, -(2**31), 2**31)
COUNT = NumberClass("int >= 0", int, Range(0.0, SMALL.high), 0, 2**31)
LARGE = NumberClass("large int", int, INT64)


def number_class(leaf: object) -> NumberClass:
    """The class of an open number's value."""
    return _of_type(_by_value(leaf), type(leaf))


def _of_type(found: NumberClass, kind: type) -> NumberClass:
    name = f"{found.name} of {kind.__name__}" if issubclass(kind, np.generic) else found.name
    return found._replace(name=name, of_type=kind)


def _by_value(leaf: Any) -> NumberClass:
    if number_kind(leaf) is int:
        return LARGE if not INT.least <= leaf <= INT.most else COUNT if leaf >= 0 else INT
    return POSITIVE_FLOAT if 0.0 < float(leaf) <= sys.float_info.max else FLOAT


class OpenLeaves:
    """The open numbers among arguments of one structure; ``classes``: of those that have been of several."""

    def __init__(self, leaves: Collection[int], classes: Mapping[int, NumberClass]) -> None:
        self._leaves, self._classes = leaves, classes

    def class_of(self, k: int, leaf: object) -> NumberClass | None:
        """The class that a step takes a number for; None where the number is not open."""
        if k not in self._leaves or number_kind(leaf) is None:
            return None
        known = self._classes.get(k)
        return known if known is not None and known.takes(leaf) else number_class(leaf)


class OpenNumbers:
    """The open numbers of one jitted function: leaves by the structure of the arguments."""

    def __init__(self) -> None:
        self._classes: dict[TreeSpec, dict[int, NumberClass]] = {}  # of all values that open numbers have had
        self._widened: dict[TreeSpec, set[int]] = {}  # those that have been of several
        self._open: dict[TreeSpec, frozenset[int]] = {}
        self._fixed: set[tuple[TreeSpec, int]] = set()
        self._counting: set[tuple[TreeSpec, int]] = set()  # open because they count
        self._chosen: set[tuple[TreeSpec, int]] = set()  # counting ones on which Python decides: like other ints
        self._trials: dict[
            tuple[TreeSpec, int], bool
        ] = {}  # ints tried open in a first capture; whether they still are
        self._of_user: dict[tuple[Any, ...], frozenset[int]] = {}  # open among the user's arguments of a structure
        self._is_rebound = False  # whether these come after what places hold and what is drawn
        self._ways: Counter[tuple[TreeSpec, int]] = Counter()  # captures made for the way that decisions on them went

    def of(self, tree: TreeSpec) -> Collection[int]:
        """The leaves that are open in arguments of this structure."""
        found = self._open.get(tree)
        if found is None:
            parts, first = self._users(tree)
            found = self._open[tree] = frozenset(first + k for k in self._of_user.get(parts, ()))
        return found

    def among(self, tree: TreeSpec) -> OpenLeaves:
        """The same with their classes."""
        return OpenLeaves(self.of(tree), self._classes.get(tree, {}))

    def widen(self, tree: TreeSpec, leaves: Sequence[Any]) -> bool:
        """Let open numbers be of all classes that they have been of; whether steps are to take some for another one.

        Else a list of floats would have a step for each choice of signs. Where a second one changes its class, all of
        the list are taken to.
        """
        known = self._classes.setdefault(tree, {})
        changed: dict[int, NumberClass] = {}
        for k in self.of(tree):
            if k >= len(leaves) or number_kind(leaves[k]) is None:
                continue
            now = number_class(leaves[k])
            before = known.setdefault(k, now)
            if before.of_type is not now.of_type:
                known[k] = now
            elif not before.takes(leaves[k]):
                changed[k] = before.with_all_of(now)
        if changed and len(self._widened.get(tree, set()) | changed.keys()) > 1:
            floats = {
                k: made.with_all_of(_of_type(FLOAT, made.of_type)) for k, made in known.items() if made.kind is float
            }
            changed.update((k, wide) for k, wide in floats.items() if wide != known[k])
        self._widened.setdefault(tree, set()).update(changed)
        known.update(changed)
        return bool(changed)

    def clear(self, is_rebound: bool) -> None:
        """The function has other arguments now, before the user's: of these is still known which are open."""
        for tree, leaves in self._open.items():
            parts, first = self._users(tree)
            known = (k for k in leaves if k >= first and not self._trials.get((tree, k)))  # no trial that goes on
            self._of_user[parts] = frozenset(k - first for k in known)
        self._is_rebound = is_rebound
        tables = (self._open, self._fixed, self._counting, self._chosen, self._trials, self._ways)
        for kept in (*tables, self._classes, self._widened):
            kept.clear()

    def _users(self, tree: TreeSpec) -> tuple[tuple[TreeSpec, ...], int]:
        """The user's part of a structure, and the number of its first leaf."""
        if not self._is_rebound:
            return tuple(tree.children), 0
        held, drawn, *users = tree.children[0].children
        return tuple(users), held.count + drawn.count

    def begin(self, known: Iterable[tuple[Any, ...]], new: tuple[Any, ...], leaves: Sequence[Any]) -> bool:
        """Open ints of a first call that may be counters, for a trial; each is tried once. Whether there are any."""
        tree = new[0]
        if any(old[0] == tree for old in known):
            return False
        found = {
            k
            for k, leaf in enumerate(leaves)
            if type(leaf) is int and leaf in BEGINNINGS and (tree, k) not in self._trials and k not in self.of(tree)
        }
        self._trials.update(((tree, k), True) for k in found)
        if found:
            self._open[tree] = frozenset(self.of(tree)) | found
        return bool(found)

    def notice(self, known: Iterable[tuple[Any, ...]], new: tuple[Any, ...], leaves: Sequence[Any]) -> bool:
        """Open the numbers that a call's signature shows to change, by the signatures that are known."""
        tree, parts = new
        alike = [old[1] for old in known if old[0] == tree]
        changed = {
            k
            for k, leaf in enumerate(leaves)
            if (kind := number_kind(leaf)) is not None
            and k not in self.of(tree)
            and (tree, k) not in self._fixed
            and _is_changing(kind, {old[k] for old in alike if _is_baked(old[k], kind)} | {parts[k]})
        }
        counting = self._newly_counting(tree, parts, alike, leaves) - changed
        self._counting.update((tree, k) for k in counting)
        changed |= counting
        if changed:
            self._open[tree] = frozenset(self.of(tree)) | changed
        return bool(changed)

    def end_trials(self, tree: TreeSpec, capture: Capture | None, roots: dict[Key, Captures]) -> bool:
        """Fix the ints again that a first capture has tried open and that more than decisions looks at; whether any.

        All of them, when the capture was given up. ``roots`` are the function's captures by signature: none stays that
        has come to nothing.
        """
        tried = {k for (of, k), goes_on in self._trials.items() if of == tree and goes_on}
        self._trials.update(((tree, k), False) for k in tried)
        used = tried if capture is None else tried & _computed_with(capture) if tried else set()
        self._open[tree] = frozenset(self.of(tree)) - used
        for key in [key for key, found in roots.items() if used and key[1][0] == tree and not found.branch]:
            del roots[key]
        return bool(used)

    def give_up(self, tree: TreeSpec, capture: Capture, note: Callable[[str], None]) -> bool:
        """Fix the numbers again whose digits a capture has taken; whether there are any."""
        taken, chosen = _taken(capture)
        for k, source in _decided(capture).items():
            self._ways[tree, k] += 1
            if self._ways[tree, k] > MOST_WAYS:
                taken[k] = f"Python decides on them in more than {MOST_WAYS} ways at {source}"
        counting = {k for k in chosen if (tree, k) in self._counting} - taken.keys()
        if taken or counting:
            self._open[tree] = frozenset(self.of(tree)) - taken.keys() - counting
            self._fixed.update((tree, k) for k in taken)
            self._chosen.update((tree, k) for k in counting)
            self._counting -= self._chosen
            note(f"{FIXED}: {'; '.join([*taken.values(), *(chosen[k] for k in sorted(counting))])}")
        return bool(taken or counting)

    def _newly_counting(
        self, tree: TreeSpec, parts: Sequence[Any], alike: Sequence[Any], leaves: Sequence[Any]
    ) -> set[int]:
        """Ints that are one more than in an earlier call from which this one differs in such ints alone."""
        ints = {
            k
            for k, leaf in enumerate(leaves)
            if type(leaf) is int and k not in self.of(tree) and not {(tree, k)} & (self._fixed | self._chosen)
        }
        found: set[int] = set()
        for old in alike if ints else ():
            others = {k for k, (a, b) in enumerate(zip(old, parts, strict=True)) if a != b}
            if others <= ints and all(old[k] == ("int", repr(leaves[k] - 1)) for k in others):
                found |= others
        return found


def _is_baked(part: object, kind: type) -> bool:
    return isinstance(part, tuple) and len(part) == 2 and part[0] == kind.__name__


def _is_changing(kind: type, values: Collection[Any]) -> bool:
    return len(values) > (1 if kind is float else INTS_BEFORE)


def _decided(capture: Capture) -> dict[int, SourceLocation]:
    """The open numbers that Python decides on without asking anything else, and where."""
    places = {leaf.value: k for k, leaf in enumerate(capture.arguments) if leaf.kind == "number"}
    guards = capture.trace.number_guards
    return {places[value]: guard.source for guard in guards for value in guard.inputs if value in places}


def _computed_with(capture: Capture) -> set[int]:
    """The open numbers that something else than a decision on numbers alone is computed from."""
    effects, trace = capture.effects, capture.trace
    wanted = [*capture.results.values, *effects.free, *effects.moving, *(v for _, v in effects.written)]
    wanted += [split.value for split in trace.splits]
    deciding = {node: None for guard in trace.number_guards for node in guard.nodes}
    behind = {leaf.value: {k} for k, leaf in enumerate(capture.arguments) if leaf.kind == "number"}
    for node in deciding:
        behind[node.output] = set().union(*(behind.get(v, ()) for v in node.inputs))
    others = [node for node in trace.own_nodes if node not in deciding]
    read = {v for node in needed_nodes(others, wanted, {}) for v in node.inputs}.union(wanted)
    return set().union(*(numbers for value, numbers in behind.items() if value in read))


def _taken(capture: Capture) -> tuple[dict[int, str], dict[int, str]]:
    """Leaf -> why, for the open numbers whose digits Python decided on, by splits that depend on numbers alone; and for
    those on which it decided otherwise.
    """
    open_leaves = {leaf.value: k for k, leaf in enumerate(capture.arguments) if leaf.kind == "number"}
    taken: dict[int, str] = {}
    chosen: dict[int, str] = {}
    for split in capture.trace.splits if open_leaves else ():
        sources = _sources(capture, split.value)
        if split.value.type.dtype is bool_:
            decided = sources & open_leaves.keys()
            chosen.update((open_leaves[v], f"Python decides on them at {split.source}") for v in decided)
        elif sources and sources <= open_leaves.keys():
            taken.update((open_leaves[v], f"their digits are used at {split.source}") for v in sources)
    return taken, chosen


def _sources(capture: Capture, value: Value) -> set[Value | None]:
    """The inputs that a value is computed from."""
    inputs = set(capture.trace.builder.inputs)
    found: set[Value | None] = set()
    seen: set[Value] = set()
    stack = [value]
    while stack:
        current = stack.pop()
        if current in seen:
            continue
        seen.add(current)
        if current in inputs:
            found.add(current)
        elif (node := capture.trace.definition.get(current)) is not None:
            stack.extend(node.inputs)
    return found
