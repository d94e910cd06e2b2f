"""Which extents of a jitted function's arguments its steps leave open.

The first call is captured for its sizes. When a later call differs from one captured before in nothing but extents,
those become open: the same capture then serves all their values from 2 on (0 and 1, on which broadcasting hangs, have
steps of their own). Axes whose extents have agreed in every call so far share one symbol. What cannot stay open is
fixed again, with the reason, and every value gets its own step. Where several axes share the symbol it cannot be told
which of them it was: they are fixed as long as they agree, and tried again when a call has told them apart.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from autojit.core.errors import CompileError
from autojit.core.size_expressions import LEAST
from autojit.core.sizes import is_symbolic, named_size, surely_less
from autojit.core.types import Shape, TensorType
from autojit.jit.outcomes import BeginsAgain
from autojit.jit.pytree import TreeSpec
from autojit.jit.trace import Trace
from autojit.tensor.tensor import Tensor, type_of

Axis = tuple[TreeSpec, int, int]  # (structure of the arguments, leaf, axis)

_DIGITS = "Python has asked for them, as a loop or a text does (aj.scan and layers such as nn.LSTM keep a size open)"


class OpenSizes:
    """The open extents of one jitted function.

    Args:
        dynamic: None opens what changes, True everything from the first call on, False nothing.
    """

    def __init__(self, dynamic: bool | None = None) -> None:
        self.dynamic = dynamic
        self.symbols: dict[Axis, int] = {}  # the numbers of their symbols
        self.fixed: dict[Axis, str] = {}  # given up: why
        self.held: dict[int, str] = {}  # symbols of several axes that are given up while these agree: why
        self.values: dict[str, int] = {}  # of the symbols in the last call
        self._numbers = itertools.count()
        self.are_counts_fixed = False  # whether what a step counts is a number that Python decides on
        self.specialised = 0  # symbols given up

    def shapes(
        self, tree: TreeSpec, leaves: Sequence[Any], bound: Collection[int]
    ) -> tuple[dict[int, Shape], dict[str, int]]:
        """(shapes of the leaves that have open extents, values of the symbols) for a call."""
        found = {k: shape for k, shape in _shapes(leaves) if k not in bound}
        if self.dynamic:
            self._open((tree, k, a) for k, shape in found.items() for a, n in enumerate(shape) if n >= LEAST)
        sizes = self.values = self._values(tree, found)
        for symbol in self.held:
            sizes.pop(_name(symbol), None)
        opened: dict[int, Shape] = {}
        for k, shape in found.items():
            wanted = tuple(self._size((tree, k, a), n) for a, n in enumerate(shape))
            if any(map(is_symbolic, wanted)):
                opened[k] = wanted
        return opened, sizes

    def _size(self, axis: Axis, extent: int) -> int:
        symbol = self.symbols.get(axis)
        is_fixed = symbol is None or symbol in self.held or extent < LEAST
        return extent if is_fixed else named_size(_name(symbol), extent)  # type: ignore[arg-type]

    def _values(self, tree: TreeSpec, shapes: Mapping[int, Shape]) -> dict[str, int]:
        """The symbols' values; axes that differ for the first time get symbols of their own."""
        values: dict[str, int] = {}
        parted: dict[tuple[int, int], int] = {}
        for (of, k, a), symbol in list(self.symbols.items()):
            extents = shapes.get(k, ()) if of == tree else ()
            if a >= len(extents) or (extent := extents[a]) < LEAST:
                continue
            if values.setdefault(_name(symbol), extent) != extent:
                if (symbol, extent) not in parted:
                    parted[symbol, extent] = next(self._numbers)
                    self.held.pop(symbol, None)
                self.symbols[tree, k, a] = parted[symbol, extent]
                values[_name(parted[symbol, extent])] = extent
        return values

    def _open(self, axes: Iterable[Axis], extent: int | None = None) -> bool:
        """Open axes that are not; they get one symbol until they differ, an open one of the same ``extent`` if any."""
        fresh = [axis for axis in axes if axis not in self.symbols and axis not in self.fixed]
        if fresh:
            known = next((int(name[1:]) for name, value in self.values.items() if value == extent), None)
            self.symbols.update(dict.fromkeys(fresh, next(self._numbers) if known is None else known))
        return bool(fresh)

    def open(self, tree: TreeSpec, places: Sequence[tuple[int, int]]) -> None:
        """Open axes of arguments of a structure, (leaf, axis), which share one symbol."""
        self.symbols.update(dict.fromkeys([(tree, k, a) for k, a in places], next(self._numbers)))

    def notice(self, known: Iterable[tuple[Any, ...]], new: tuple[Any, ...]) -> bool:
        """Open the extents in which a call's signature differs from the most similar one known, if that is all."""
        if self.dynamic is not None:
            return False
        found = [self._may_open(changed) for old in known if (changed := _changed(old, new))]
        if not found:
            return False
        groups: dict[tuple[int, int], list[Axis]] = {}
        for axis, pair in min(found, key=len).items():
            groups.setdefault(pair, []).append(axis)
        opened = [self._open(axes, pair[1]) for pair, axes in groups.items()]
        return any(opened)

    def _may_open(self, changed: Mapping[Axis, tuple[int, int]]) -> dict[Axis, tuple[int, int]]:
        """Those of the changed axes that are not open or given up."""
        return {axis: pair for axis, pair in changed.items() if axis not in self.fixed and axis not in self.symbols}

    def pin(self, trace: Trace, note: Callable[[str], None]) -> BeginsAgain:
        """Fix the sizes whose digits a capture has seen; the others stay open."""
        for expression, source in trace.pinned.items():
            names = set(expression.symbols())
            if not names.isdisjoint(map(_name, self.symbols.values())):
                reason = f"the digits of {expression} are used at {source}"
                self._fix(names, f"{reason}: {_DIGITS}", note)
        return BeginsAgain()

    def give_up(self, trace: Trace, names: Collection[str], reason: str, note: Callable[[str], None]) -> BeginsAgain:
        """Fix some of a capture's open sizes again (all, if it does not say which), and what it counts itself."""
        names = names or (*trace.sizes.keys() - trace.counted.keys(), *trace.counted)
        if not names:
            raise CompileError("a step without open sizes cannot be compiled", {"reason": reason})
        self.are_counts_fixed = self.are_counts_fixed or not trace.counted.keys().isdisjoint(names)
        self._fix(names, reason, note)
        return BeginsAgain(is_fixed=True)

    def _fix(self, names: Collection[str], reason: str, note: Callable[[str], None]) -> None:
        for symbol in [symbol for symbol in dict.fromkeys(self.symbols.values()) if _name(symbol) in names]:
            axes = [axis for axis, known in self.symbols.items() if known == symbol]
            if len(axes) > 1:
                self.held[symbol] = reason
                continue
            del self.symbols[axes[0]]
            self.fixed[axes[0]] = reason
        self.specialised += len(names)
        note(f"sizes were fixed: {reason}")


def _name(symbol: int) -> str:
    return f"s{symbol}"


def _shapes(leaves: Sequence[Any]) -> Iterator[tuple[int, Shape]]:
    for k, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor):
            yield k, type_of(leaf).shape
        elif isinstance(leaf, np.ndarray):
            yield k, leaf.shape


def _changed(old: tuple[Any, ...], new: tuple[Any, ...]) -> dict[Axis, tuple[int, int]] | None:
    """Axis -> (old, new extent) where two signatures differ; None if they differ otherwise, or in extents of 0 or 1."""
    if old[0] != new[0]:
        return None
    found: dict[Axis, tuple[int, int]] = {}
    for k, (a, b) in enumerate(zip(old[1], new[1], strict=True)):
        (shape, rest), (new_shape, new_rest) = _parted(a), _parted(b)
        if rest != new_rest or len(shape) != len(new_shape):
            return None
        for axis, (n, m) in enumerate(zip(shape, new_shape, strict=True)):
            if (surely_less(n, LEAST) or surely_less(m, LEAST)) and n != m:
                return None
            if n != m and not is_symbolic(n):
                found[new[0], k, axis] = n, m
    return found


def _parted(part: object) -> tuple[Shape, Any]:
    """A leaf's part of a signature as (shape, everything else)."""
    if isinstance(part, tuple) and part and isinstance(part[0], TensorType):
        return part[0].shape, (part[0].with_shape(()), *part[1:])
    if isinstance(part, tuple) and part and part[0] == "array":
        return part[1], (part[0], *part[2:])
    return (), part
