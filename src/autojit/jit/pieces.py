"""Pieces: what a call that runs line by line has called as often as its values say, compiled by itself.

A step that calls ``LBFGS.step(closure)`` is no single program, but its closure, where the time goes, is one. Every call
of the step makes the closure anew; so one function with cells of its own stands in for all that have its code. What
their cells hold is put into its cells, where tensors that change become arguments (``changing_values``).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from autojit.core.locks import new_lock
from autojit.jit.eager_mode import line_by_line
from autojit.jit.instrumented_code import as_written
from autojit.jit.line_by_line import InPieces
from autojit.jit.module_pieces import ModulePieces
from autojit.jit.places import cell_content
from autojit.runtime.entry_spec import MISSING
from autojit.tensor.state import state

if TYPE_CHECKING:
    from autojit.jit.function import JitFunction

PIECES_LIMIT = 16  # of one function; those used last are kept
CAPTURES_LIMIT = 8  # of a piece: one that is captured more often (its closure appends to a list made anew) is let be


class StandIn:
    """A function with the code of those that it stands in for, and with what the last of them held in its cells.

    So do others for the functions in its cells that are made anew as it is: those found to be others of the same code.
    """

    def __init__(self, code: CodeType, like: FunctionType) -> None:
        self.cells = tuple([CellType() for _ in like.__closure__ or ()])
        self.function = FunctionType(code, like.__globals__, like.__name__, None, self.cells)
        self.function.__qualname__, self.function.__module__ = like.__qualname__, like.__module__
        self._within: dict[int, StandIn] = {}
        self._held: list[Any] = [MISSING] * len(self.cells)  # what the function holds
        self._placed = self._held[:]  # what the cells were given for it

    def take(self, function: FunctionType, taken: dict[int, StandIn] | None = None) -> None:
        """Hold what a function holds; ``taken``: stand-ins of the functions that lead here, by their ids."""
        taken = {**(taken or {}), id(function): self}
        self.function.__defaults__, self.function.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
        self.function.__dict__.clear()
        self.function.__dict__.update(function.__dict__)
        for k, cell in enumerate(function.__closure__ or ()):
            before, self._held[k] = self._held[k], cell_content(cell)
            self._placed[k] = self._within_cell(k, before, self._held[k], taken)
            _fill(self.cells[k], self._placed[k])

    def give_back(self, function: FunctionType) -> None:
        """Let a function whose place was taken hold what was assigned meanwhile; hold nothing that is not needed."""
        for k, cell in enumerate(function.__closure__ or ()):
            now, held, within = cell_content(self.cells[k]), self._held[k], self._within.get(k)
            placed, self._placed[k] = self._placed[k], MISSING
            _fill(self.cells[k], MISSING)
            self._held[k] = held if type(held) is FunctionType else MISSING
            if now is not placed:
                _fill(cell, now)
            if within is not None and placed is within.function:
                within.give_back(held)

    def _within_cell(self, k: int, before: Any, now: Any, taken: dict[int, StandIn]) -> Any:
        """What a cell is given: what it would hold, or the stand-in for it."""
        if type(now) is not FunctionType or not now.__closure__:
            return now
        if id(now) in taken:
            return taken[id(now)].function
        code, known = as_written(now.__code__), self._within.get(k)
        if known is None and type(before) is FunctionType and before is not now and as_written(before.__code__) is code:
            known = self._within[k] = StandIn(code, now)
        if known is None or as_written(known.function.__code__) is not code:
            return now
        known.take(now, taken)
        return known.function


class Pieces:
    """The pieces of one function: closures that are given to optimisers, and modules.

    ``has_closures`` is known when a capture has been given up because of one.
    """

    def __init__(self, owner: JitFunction) -> None:
        self.owner = owner
        self.has_closures = False
        self.modules: ModulePieces | None = ModulePieces(owner)
        self.steps: OrderedDict[CodeType, tuple[StandIn, JitFunction]] = OrderedDict()
        self._used: set[CodeType] = set()
        self._lock = new_lock()  # of the two above

    @contextmanager
    def inside(self) -> Iterator[None]:
        """A call of the function runs line by line (this thread)."""
        modules = None if self.modules is None else self.modules.begun()
        if not self.has_closures:
            with line_by_line(modules):
                yield
            return
        before, _running.pieces = (_running.pieces, state.pieces), self
        state.pieces = modules
        try:
            yield
        finally:
            _running.pieces, state.pieces = before

    def explain(self, verbose: bool) -> list[str]:
        """What came of each, and how often it ran."""
        lines = [] if self.modules is None else list(self.modules.explain(verbose))
        for _, step in list(self.steps.values()):
            page = str(step.explain(verbose)).splitlines()
            lines += [f"  {line}" for line in (page if verbose else page[:2])]
            if step.counts.captures > CAPTURES_LIMIT:
                lines.append(f"  {step.name} is captured too often: it runs line by line, too")
        return lines

    def run(self, function: FunctionType) -> Any:
        """The function's result, by native code; line by line while another call of the step is using it."""
        code = as_written(function.__code__)
        known = self._begun(code, function)
        if known is None:
            return function()
        stand_in, step = known
        try:
            stand_in.take(function)
            return step()
        finally:
            stand_in.give_back(function)
            self._used.discard(code)

    def _begun(self, code: CodeType, function: FunctionType) -> tuple[StandIn, JitFunction] | None:
        """What stands in for a function from now on; None: another call uses it, or it is let be."""
        with self._lock:
            if code in self._used:
                return None
            known = self.steps.pop(code, None)
            if known is None:
                stand_in = StandIn(code, function)
                known = stand_in, self.owner._beside(stand_in.function)
            self.steps[code] = known
            if len(self.steps) > PIECES_LIMIT:
                self.steps.popitem(last=False)
            if known[1].counts.captures > CAPTURES_LIMIT:
                return None
            self._used.add(code)
            return known


class _Running(threading.local):
    pieces: Pieces | None = None


_running = _Running()


def in_pieces(what: str) -> None:
    """The function being captured, if there is one, calls ``what``, which has a `piece` run as its values say."""
    trace: Any = state.trace
    if trace is not None:
        trace.give_up(InPieces(what))


def piece(function: Callable[[], Any]) -> Callable[[], Any]:
    """``function``, compiled where a jitted function runs line by line that was given up because of it."""
    pieces = _running.pieces
    if pieces is None or type(function) is not FunctionType:
        return function
    return lambda: pieces.run(function)


def _fill(cell: CellType, value: Any) -> None:
    if value is not MISSING:
        cell.cell_contents = value
    elif cell_content(cell) is not MISSING:
        del cell.cell_contents
