"""Ranges: the sink that tells a timeline tool (nsys, nvprof, VTune) instead of measuring itself.

A forward op's range is ``mul, seq = N``: N is the number the op's node will get. A node's range is
``MulBackward0, stashed seq=M, seq = N``: M is the number it was made with, N the number of the first node that its own
ops would make. Where nothing is recorded (without ``create_graph``, under ``no_grad``) ``seq = 0``; what is never
recorded (filling and copying memory) has no number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from autojit.autograd.profiler.block import ObservedBlock
from autojit.autograd.profiler.observer import NODE, OP
from autojit.autograd.profiler.recorder import Operands, Places, shapes_of
from autojit.cuda import nvtx
from autojit.tensor.node import next_number
from autojit.tensor.state import state


class RangeLibrary(Protocol):
    """Opens and closes nested ranges of the running thread."""

    def range_push(self, name: str) -> object: ...

    def range_pop(self) -> object: ...


class Ranges:
    """Opens a range per call."""

    tells_engine = False

    def __init__(self, library: RangeLibrary, record_shapes: bool) -> None:
        self.library = library
        self.record_shapes = record_shapes
        self.depth = 0

    def push(
        self, name: str, kind: str, number: int, operands: Operands = (), places: Places = (), ops: Sequence[str] = ()
    ) -> None:
        self.library.range_push(self._text(name, kind, number, operands))
        self.depth += 1

    def pop(self, result: Any = None) -> None:
        self.depth -= 1
        self.library.range_pop()

    def quick_run(self, compute: Callable[..., Any]) -> Callable[..., Any] | None:
        return None

    def close(self) -> None:
        """Close what is still open."""
        while self.depth:
            self.pop()

    def _text(self, name: str, kind: str, number: int, operands: Operands) -> str:
        if kind == OP and (number >= 0 or not state.grad_enabled):
            text = f"{name}, seq = {max(number, 0)}"
        elif kind == NODE and number >= 0:
            text = f"{name}, stashed seq={number}, seq = {next_number() if state.grad_enabled else 0}"
        else:
            text = name
        return f"{text}, sizes = {shapes_of(operands)}" if self.record_shapes and operands else text


class emit_nvtx(ObservedBlock):
    """Context manager: every op, derivative and kernel of this thread opens an NVTX range, for nsys and nvprof.

    Args:
        enabled: False makes the block do nothing.
        record_shapes: append the shapes of operands to the names.

    Raises:
        UsageError: at entry, when there is no NVTX library, a profiler runs in this thread already, or a step is being
            captured.

    Example:
        >>> import autojit as aj
        >>> with aj.autograd.profiler.emit_nvtx(enabled=False):
        ...     y = aj.ones(2) + 1
    """

    what = "emit_nvtx"

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled = bool(enabled)
        self.record_shapes = bool(record_shapes)

    def library(self) -> RangeLibrary:
        """The library that ranges go to."""
        return nvtx.library()

    def _open(self) -> Ranges:
        self._ranges = Ranges(self.library(), self.record_shapes)
        return self._ranges

    def _close(self) -> None:
        self._ranges.close()
