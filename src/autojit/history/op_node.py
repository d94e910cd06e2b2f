"""OpNode: the node of the history that one op of ``autojit.ops`` leaves, and what users see of it.

It runs the op's own VJP rule on what the rule reads, which ``recording`` kept for it. Its class carries torch's name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar

from autojit.core.errors import DifferentiationError
from autojit.core.ports import ports
from autojit.core.rule_places import in_rule
from autojit.core.types import TensorType
from autojit.history.node_arguments import argument_of, extents_of, is_saved
from autojit.history.saved import (
    Packed,
    SavedTensor,
    TypeOnly,
    accumulator_of,
    changed_error,
    changed_unseen_error,
    connected,
    freed_error,
    saved_places,
    type_only,
)
from autojit.ir.op import Op
from autojit.tensor.node import FREED, ZERO, AccumulateGrad, Edge, Node, next_sequence, node_type, type_of_meta
from autojit.tensor.state import carry, state
from autojit.tensor.tensor import Tensor, alias, type_of
from autojit.transforms.adjoint import accumulate

Rule = Callable[..., list[Any]]  # as ``transforms.adjoint.accumulate``
_UNSAVED = ("parameter", "constant")  # what a node shows without having saved a tensor


class OpNode(Node):
    """One op of ``autojit.ops``: runs the op's own VJP rule on what the rule reads.

    ``primals`` holds, per operand, the tensor itself where the rule reads it, else only its meta; ``results`` holds
    detached shells of the results the rule reads. ``versions`` are the storages' versions at recording.
    """

    __slots__ = ("arguments", "mask", "op", "primals", "results", "rules", "versions")
    arguments: dict[str, Any]  # of the function that users called, where ``rename_node`` was given them
    op: Op
    mask: int
    primals: list[Any]
    results: list[Any]
    versions: Sequence[int]
    rules: dict[Any, Any] | None  # what the engine knows of the rule, for all nodes of this op and these types
    # of a captured function
    changes: Sequence[int] = ()  # the storages' changes, as ``versions``
    taken: tuple[int, ...] = ()  # the outputs that the last pass came through
    spent: frozenset[int] = frozenset()  # those that eager mode could not differentiate any more
    renamed_kind: ClassVar[type[OpNode]]  # what it is under another name

    def __init__(self, sequence: int | None = None) -> None:
        self.sequence = next_sequence() if sequence is None else sequence
        self.rules = None

    def run(self, grads: list[Any], wanted: tuple[bool, ...], accumulate: Rule = accumulate) -> Sequence[Any]:
        is_call = self.op.is_call  # which tells what has a gradient of zeros from what has none, and what has a history
        if is_call:
            grads = [self._zeros(k) if g is ZERO else g for k, g in enumerate(grads)]
        bars = [None if g is ZERO else g for g in grads]
        if not any([g is not None for g in bars]):  # noqa: C419  (a list is faster than a generator)
            nothing = ZERO if any(g is ZERO for g in grads) else None
            return [nothing] * len(self.edges)
        read = self._read_by_call(bars) if is_call else None
        if is_call:
            self.taken = tuple([k for k, bar in enumerate(bars) if bar is not None])
            if self.spent and not self.spent.isdisjoint(self.taken):
                raise freed_error(self)
        place = 0
        primals = []
        for entry in self.primals:
            is_read = read is None or place in read
            primals.append(type_only(entry) if type(entry) is tuple else self._unpack(entry, place, is_read=is_read))
            place += 1
        results = []
        for number, entry in enumerate(self.results):
            is_read = read is None or place + number in read
            is_type = type(entry) is tuple
            results.append(type_only(entry) if is_type else self._unpack(entry, place + number, number, is_read))
        if state.grad_enabled and not (is_call or self.op.calls_out):
            in_rule.place = in_rule.of_pass
        try:
            found = accumulate(self.op, primals, results, bars, wanted)
        finally:
            in_rule.place = None
        for place, want in enumerate(wanted):
            if want and found[place] is None and not is_call:
                found[place] = ZERO
        if state.grad_enabled and not is_call:
            connect_constants(found, (*primals, *results))
        return found

    def backward_alone(self, number: int, gradient: Any, keep: bool) -> bool:
        return gradient is None and _has_come_often(self) and ports.passes.backward(self, number, keep)

    def grad_alone(self, number: int, gradient: Any, inputs: Any, keep: bool) -> tuple[Tensor, ...] | None:
        if gradient is not None or not _has_come_often(self):
            return None
        return ports.passes.asked(self, number, inputs, keep)

    def _read_by_call(self, bars: Sequence[Any]) -> Collection[int]:
        """Which operands, and then results, a captured function's derivative reads, or eager mode keeps for it.

        Raises:
            RuntimeError: the memory of one was changed in a way that its version does not count.
        """
        read: Collection[int] = self.op.operands_read(bars)
        for place in read if self.changes else ():
            entry = self.primals[place] if place < len(self.primals) else self.results[place - len(self.primals)]
            storage = entry._storage if isinstance(entry, Tensor) else None
            if storage is None or storage.version != self.versions[place]:
                continue  # which is said where it is read
            if storage.changes != self.changes[place]:
                raise changed_unseen_error(self, entry)
        return read

    def _zeros(self, number: int) -> Tensor:
        found: Tensor = Tensor._literal_of(0, type_of_meta(self.out_metas[number]))
        return found

    def _unpack(self, entry: Any, place: int, result: int = -1, is_read: bool = True) -> Any:
        kind = type(entry)
        if kind is tuple or kind is TensorType:
            return type_only(entry)
        if entry is FREED:
            raise freed_error(self)
        if kind is Packed:
            return entry.unpack(self, result)
        if is_read and entry._storage is not None and entry._storage.version != self.versions[place]:
            raise changed_error(self, entry, self.versions[place], result)
        if result >= 0:
            return connected(entry, (self, result)) if state.grad_enabled else entry  # for a graph of the derivative
        if entry._grad_fn is None and not entry._requires_grad:
            self.check_not_detached(entry, place)
        return entry

    def name_of(self, number: int) -> str:
        return self.op.node_name(number) or self.name()

    def check_not_detached(self, t: Tensor, place: int) -> None:
        """Raise torch's error for a saved operand without history if it had one when it was saved."""
        edge = self.edges[place]
        if edge is not None and type(edge[0]) is not AccumulateGrad:
            raise DifferentiationError(
                "Trying to use a saved tensor that has been detached in-place, i.e. with .detach_(). This is not "
                "supported, please use out-of-place `.detach()` instead",
                {"tensor": t, "needed by": f"{self.name()}  {self.source}"},
            )

    def release(self) -> None:
        if self.taken:  # other outputs of a captured function have a history of their own in eager mode
            self.spent |= self.op.spent_with(self.taken)
            if not self.op.last_of(self.spent):
                return
        for kept in (self.primals, self.results):
            for i, entry in enumerate(kept):
                kind = type(entry)
                if kind is not tuple and kind is not TensorType:
                    kept[i] = FREED

    def _kept(self) -> Any:
        return self.primals[:], self.results[:], self.spent

    def _keep_again(self, kept: Any) -> None:
        self.primals[:], self.results[:], self.spent = kept

    def __getattr__(self, attribute: str) -> Any:
        is_raw = attribute.startswith("_raw_saved_")
        if is_raw or attribute.startswith("_saved_"):
            name = attribute[11 if is_raw else 7 :]
            shown = getattr(self, "arguments", {})
            if name in shown and (is_saved(shown[name]) or not is_raw):
                return argument_of(self, name, is_raw)
            found = saved_places(self.op, len(self.primals), len(self.results)).get(name)
            if found is not None and not (is_raw and found[0] in _UNSAVED):
                return self._raw(*found) if is_raw else self._saved(*found)
            extents = None if is_raw else extents_of(self, name)
            if extents is not None:
                return extents
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {attribute!r}")

    def __dir__(self) -> list[str]:
        places = saved_places(self.op, len(self.primals), len(self.results))
        shown = getattr(self, "arguments", {})
        raw = [f"_raw_saved_{name}" for name, (kind, _) in places.items() if kind not in _UNSAVED]
        raw += [f"_raw_saved_{name}" for name, value in shown.items() if is_saved(value)]
        return [*super().__dir__(), *(f"_saved_{name}" for name in {**places, **shown}), *raw]

    def _saved(self, kind: str, place: Any) -> Any:
        if kind == "parameter":
            return getattr(self.op, place)
        if kind == "constant":
            return place
        if kind == "primal":
            found = self._unpack(self.primals[place], place)
        else:
            found = self._unpack(self.results[place], len(self.primals) + place, place)
        return None if type(found) is TypeOnly else found

    def _raw(self, kind: str, place: int) -> SavedTensor:
        kept = self.primals if kind == "primal" else self.results
        result = -1 if kind == "primal" else place
        return SavedTensor.of(
            lambda: kept[place],
            lambda packed: kept.__setitem__(place, packed),
            lambda: self._saved(kind, place),
            result,
        )


OpNode.renamed_kind = OpNode


def _has_come_often(node: Node) -> bool:
    """Whether it may pay to look at the pass that begins at a line: enough have, and some of them were known."""
    line = _line_of(node)
    times = _PASSES.get(line, 0)
    if times >= OFTEN:
        return times < OFTEN + _UNKNOWN
    if len(_PASSES) >= _MOST_LINES:
        _PASSES.clear()
    _PASSES[line] = times + 1
    return False


def looked_at(node: Node, is_known: bool) -> None:
    """Say of a pass that was looked at whether such a one has come before; unknown ones in a row are counted."""
    line = _line_of(node)
    _PASSES[line] = OFTEN if is_known else _PASSES.get(line, OFTEN) + 1


def _line_of(node: Node) -> tuple[int, int]:
    source = node.source
    return id(source.code), source.instruction


OFTEN = 16
_UNKNOWN = 64  # passes in a row, until those of a line are not looked at any more
_MOST_LINES = 4096
_PASSES: dict[tuple[int, int], int] = {}  # by code and instruction: how many have begun, then how many were unknown


class ZeroDerivative(Node):
    """Behind a gradient that was computed from values but does not change with them, such as the mask of ``relu``.

    Its first edge leads to the gradient's own history, if it has one; the others to these values.
    """

    def run(self, grads: list[Any], wanted: tuple[bool, ...]) -> Sequence[Any]:
        return [grads[0], *[ZERO] * (len(self.edges) - 1)]


def connected_to(grad: Tensor, edges: Sequence[Edge | None]) -> Tensor:
    """A gradient that also depends, with derivative zero, on what edges lead to."""
    node = ZeroDerivative()
    node.edges = [_edge_of(grad) if grad._requires_grad else None, *edges]
    node.out_metas = [type_of(grad)]
    made = alias(grad)
    carry(grad, made)
    made._requires_grad, made._grad_fn = True, node
    return made


def connect_constants(grads: list[Any], read: Sequence[Any]) -> None:
    """Let gradients that no history leads to depend on the saved values they were computed from, with derivative zero:
    they can be differentiated again, like all others.
    """
    saved = [t for t in read if type(t) is not TypeOnly and t._requires_grad]
    if not saved:
        return
    for place, grad in enumerate(grads):
        if grad is not None and grad is not ZERO and not grad._requires_grad:
            grads[place] = connected_to(grad, [_edge_of(t) for t in saved])


def _edge_of(t: Tensor) -> Edge:
    return accumulator_of(t) if t._grad_fn is None else t._grad_fn, t._output_nr


class NotImplementedNode(OpNode):
    """An op whose derivative nobody has written down: reaching it in backward is an error."""

    __slots__ = ()

    def name(self) -> str:
        return "NotImplemented"

    def run(self, grads: list[Any], wanted: tuple[bool, ...], accumulate: Rule = accumulate) -> Sequence[Any]:
        rule: Any = type(self.op).vjp
        raise NotImplementedError(
            f"the derivative for '{self.op.name}' is not implemented: {rule.not_differentiable}\n"
            f"  recorded  {self.source}\n  fix       detach() the result, or write a custom Function"
        )


def rename_node(t: Tensor, name: str, **arguments: object) -> Tensor:
    """Let the node of a fresh result be called after the function that the user called; returns ``t``.

    ``arguments`` are what the node shows as ``_saved_<name>``: plain values, a tensor, ``KeptBy`` or a tuple of them.
    """
    node = t._grad_fn
    if isinstance(node, OpNode):
        node.__class__ = node_type(node.renamed_kind, name)
        if arguments:
            node.arguments = arguments
    elif node is not None:
        node.rename(name)
    return t
