"""TracePart: what the parts of a trace know of each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autojit.tensor.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from autojit.core.source import SourceLocation
    from autojit.ir.builder import GraphBuilder
    from autojit.ir.graph import Node, Value
    from autojit.ir.op import Op
    from autojit.jit.line_by_line import LineByLine
    from autojit.jit.trace_entries import GradEntry, Split, StateEntry
    from autojit.tensor.node import Node as HistoryNode
    from autojit.tensor.storage import Storage


class TracePart:
    """Base of the classes that ``Trace`` is made of."""

    builder: GraphBuilder
    state: dict[int, StateEntry]
    grads: dict[int, GradEntry]
    known: dict[Value, Any]
    definition: dict[Value, Node]
    splits: list[Split]
    indexed: int
    reached: list[Tensor]
    arguments: list[Tensor]
    gradients_given: list[Tensor]
    uncompiled: str
    runs_often: bool  # whether it is of a body, in ``outer``
    outer: Any = None
    _before: dict[int, Any]

    if TYPE_CHECKING:

        def apply(self, op: Op, values: Sequence[Value], place: SourceLocation | None = None) -> tuple[Value, ...]: ...
        def evaluate(self, value: Value) -> Any: ...
        def concretize(self, value: Value) -> Any: ...
        def lift(self, storage: Storage, owner: Tensor | None = None) -> Value: ...
        def has_begun(self, tensor: Tensor) -> bool: ...
        def note_flag(self, t: Tensor, flag: bool, wanted: bool) -> None: ...
        def note_shown(self, array: object) -> None: ...
        def note_used(self, nodes: Iterable[HistoryNode]) -> None: ...
        def give_up(self, reason: LineByLine) -> None: ...
        def cannot(self, why: str) -> None: ...
        def _index(self) -> None: ...
