"""Backward passes through the node of one native call, which are compiled steps as well.

``loss.backward()`` of a result of a compiled function is a function like any other: it reads the operands of the call
and adds to ``.grad`` of the leaves. So it is captured and called as one (`accumulated`), and native code does what the
engine would: the derivative, and the sums in memory that is used again. Where something else is on the way (hooks,
histories of arguments, several results), the engine walks, and only the node's rule is a step (`pulled`). What neither
can do for a call is left to the node's own rule, which computes the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.autograd.accumulation import accumulate
from autojit.core.config import config
from autojit.history.saved import accumulator_of
from autojit.ir.concrete import concrete, take_sizes
from autojit.ir.inline import inline
from autojit.jit.call import CompiledCall
from autojit.jit.eager_mode import by_steps_of_their_own
from autojit.ops.cotangent_masks import masking
from autojit.tensor.memory_orders import LayoutKind, kind_of
from autojit.tensor.node import FREED, AccumulateGrad
from autojit.tensor.state import LINE_BY_LINE, grad_mode, guard_epoch, state
from autojit.tensor.tensor import LIKE_LEAF, Tensor, layout_of, type_of, wrap

if TYPE_CHECKING:
    from autojit.jit.call_node import CallNode

_numbers = itertools.count(1)
_UNKNOWN: Any = object()  # what is not made yet; None: there is no such step
Jitted = Callable[[Callable[..., Any]], Callable[..., Any]]
_MOST_BYTES = 1 << 18
"""Of gradients, which the engine copies, as a step's results stay its own: above, a rule's fresh arrays are faster."""


class OutsidePasses:
    """Passes of the calls of one native step.

    Args:
        op: the captured function.
        leaves: the leaves among its operands that are the step's state, by place.
        owners: all tensors of the state; they come after the arguments.
        n_given: how many arguments there are.
        jitted: makes a compiled function.
    """

    def __init__(
        self, op: CompiledCall, leaves: Mapping[int, Tensor], owners: Sequence[Tensor], n_given: int, jitted: Jitted
    ) -> None:
        self.op, self.leaves, self.owners, self.n_given, self.jitted = op, leaves, owners, n_given, jitted
        self.kept: Sequence[int] = ()  # places of state that each call keeps as it was
        self.is_single = len(op._with_history()) == 1
        self.number = next(_numbers)  # which no others have, when these are gone either
        self.places = {id(leaf): place for place, leaf in leaves.items()}
        self.epoch = -1  # the guard epoch for which leaves are known to be plain
        self._accumulating: dict[tuple[int, bool], Any] = {}  # steps by output, and whether a cotangent is given
        self._asking: dict[tuple[int, bool], Any] = {}
        self._pulling: dict[Any, Any] = {}  # by outputs, and which of their cotangents are behind masks

    # -- passes from one result alone

    def backward(self, node: CallNode, number: int, gradient: Any, keep: bool) -> bool:
        """Add the gradients to ``.grad`` of the leaves; False where that is for the engine to do."""
        if node.given or not self._is_direct(node):
            return False
        given = self._seeded(node, number, gradient)
        if given is None:
            return False
        key = number, gradient is not None
        step = self._accumulating.get(key, _UNKNOWN)
        if step is _UNKNOWN:
            call = self._derivative_of(*key)
            is_whole = call is not None and all(place in self.leaves for place in call.reached)
            step = self.jitted(_Accumulated(self, call, key[1]).run) if call is not None and is_whole else None
            self._accumulating[key] = step
        if step is None:
            return False
        _run(step, given)
        if not keep:
            node.taken = (number,)
            node.release()
        return True

    def asked(
        self, node: CallNode, number: int, gradient: Any, inputs: Sequence[Any], keep: bool
    ) -> tuple[Tensor, ...] | None:
        """The gradients by some leaves; None where that is for the engine to do."""
        if not self._is_direct(node):
            return None
        places = [self._place_of(node, x) for x in inputs]
        given = self._seeded(node, number, gradient)
        if given is None or None in places or len(set(places)) < len(places):
            return None
        key = number, gradient is not None
        found = self._asking.get(key, _UNKNOWN)
        if found is _UNKNOWN:
            call = self._derivative_of(*key)
            found = None if call is None else (self.jitted(_Pulled(self, call, not key[1]).run), call.reached)
            self._asking[key] = found
        if found is None or not set(places) <= set(found[1]):
            return None
        made = dict(zip(found[1], _run(found[0], [_plain(t) for t in given]), strict=True))
        if not keep:
            node.taken = (number,)
            node.release()
        return tuple([made[place] for place in places])

    def _is_direct(self, node: CallNode) -> bool:
        """Whether nothing but sums happens between a node and the leaves of its state, whatever the pass is."""
        if _is_hooked(node) or not is_plain_now():
            return False
        if int(guard_epoch[0]) != self.epoch:
            return self._has_plain_leaves()
        return all([leaf._requires_grad for leaf in self.leaves.values()])  # noqa: C419 (steps set flags, uncounted)

    def _has_plain_leaves(self) -> bool:
        """Hooks and flags that change are counted in the epoch."""
        now = int(guard_epoch[0])
        if not all(map(is_plain_leaf, self.leaves.values())):
            return False
        self.epoch = now
        return True

    def _given(self, node: CallNode) -> list[Any]:
        """What a call's derivatives are computed from besides state that is still there."""
        given: list[Any] = node.primals[: self.n_given]
        return given + [node.primals[place] for place in self.kept] if self.kept else given

    def is_graph_of(self, node: CallNode) -> bool:
        """Whether nothing but the derivative happens at a node, of operands that are there and as they were."""
        return self.op.watch is None and not _is_hooked(node) and self._is_unchanged(node)

    def derivative_of(self, operands: Sequence[Tensor], bars: Mapping[int, Any]) -> dict[int, Any]:
        """The cotangents of operands, by place, of those of some results; in a capture, of operands in it.

        Raises:
            NotImplementedError: more happens than is recorded.
        """
        call = self._derivative(tuple(bars), [kind_of(layout_of(bar)) for bar in bars.values()])
        if call is None:
            raise NotImplementedError("the derivative of a native call is more than a graph")
        return dict(zip(call.reached, _inlined(call, [*operands, *bars.values()]), strict=True))

    def _place_of(self, node: CallNode, x: Any) -> int | None:
        """Which operand a tensor is; None where gradients reach it in another way as well, or more happens there."""
        given = node.given or {}
        if any(type(edge[0]) is not AccumulateGrad or id(edge[0].variable) in self.places for edge in given.values()):
            return None
        place = self.places.get(id(x))
        if place is None and given:
            place = next((k for k in given if node.primals[k] is x and is_plain_leaf(x)), None)
        return place

    def _seeded(self, node: CallNode, number: int, gradient: Any) -> list[Any] | None:
        """The arguments of the step for a pass, the cotangent with them if one is given."""
        given = self._given(node)
        if gradient is not None:
            array: Any = gradient._array if type(gradient) is Tensor else None
            if not _is_row_major(array) or (array.shape, array.dtype) != node.out_metas[number]:
                return None
            given.append(wrap(array))
        elif node.out_metas[number][0]:
            return None  # which the engine refuses, unless there is one element
        return given if number not in node.spent and self._is_unchanged(node) else None

    def _derivative_of(self, number: int, is_given: bool) -> CompiledCall | None:
        """The derivative of one result by all operands; cotangents that are given may be zeros of masked branches."""
        if not (is_given or self.op.graph.outputs[number].type.dtype.is_floating_point):
            return None
        before = masking.is_on, masking.outputs
        try:
            masking.is_on, masking.outputs = is_given, None
            return self._derivative((number,))
        finally:
            masking.is_on, masking.outputs = before

    # -- the rule of the node

    def pulled(self, node: CallNode, grads: Sequence[Any]) -> list[Any] | None:
        """The cotangents of the operands, from those of the results; None where the node's own rule is to run."""
        if state.__dict__["grad_enabled"] or not is_plain_now():
            return None
        taken = tuple([k for k, grad in enumerate(grads) if grad is not None])
        bars = [grads[k] for k in taken]
        if not taken or not all([type(bar) is Tensor and _is_row_major(bar._array) for bar in bars]):  # noqa: C419
            return None
        if not (node.spent.isdisjoint(taken) and self._is_unchanged(node)):
            return None
        masked = masking.outputs
        key = taken, tuple([masking.is_on and (masked is None or k in masked) for k in taken])
        step = self._pulling.get(key, _UNKNOWN)
        if step is _UNKNOWN:
            if not all([leaf._requires_grad for leaf in self.leaves.values()]):  # noqa: C419
                return None  # some do not for now
            call = self._derivative(taken)
            reached = () if call is None else call.reached
            is_small = sum([node.primals[place]._array.nbytes for place in reached]) <= _MOST_BYTES
            step = (self.jitted(_Pulled(self, call).run), call.reached) if call is not None and is_small else None
            self._pulling[key] = step
        if step is None:
            return None
        node.taken = taken
        found: list[Any] = [None] * len(node.primals)
        made = _run(step[0], [_plain(t) for t in (*self._given(node), *bars)])
        for place, t in zip(step[1], made, strict=True):
            found[place] = t
        return found

    def _derivative(self, taken: tuple[int, ...], kinds: Sequence[LayoutKind] = ()) -> CompiledCall | None:
        """The derivative by all operands, from cotangents laid out so, else in row-major order; None if it is more than
        its graph.
        """
        op = self.op
        wanted = op.wanted()
        if op.watch is not None or not set(taken) <= set(op._with_history()) or not wanted:
            return None
        call = op.adjoint_call(wanted, kinds, taken)
        if call.reads is not None or call.extra or not call.reached:
            return None
        return call

    def _is_unchanged(self, node: CallNode) -> bool:
        """Whether the operands and results that a node keeps are there, and as they were."""
        primals, versions, changes = node.primals, node.versions, node.changes
        if primals[0] is FREED:
            return False
        place = 0
        for t in primals:
            storage = t._storage
            if storage is not None and (storage.version != versions[place] or storage.changes != changes[place]):
                return False
            place += 1
        for k in self.op.shown:
            storage = node.results[k]._storage
            if storage.version != versions[place + k] or storage.changes != changes[place + k]:
                return False
        return True


def _inlined(call: CompiledCall, operands: Sequence[Tensor]) -> list[Any]:
    """The results of a derivative, laid out as they are in eager mode."""
    layouts, sizes = call.layouts, dict[str, Any]()
    graph = call.graph if layouts is None else layouts.graph
    for value, t in zip(graph.inputs, operands, strict=True):
        take_sizes(value.type, type_of(t).shape, sizes)
    made = inline(concrete(graph, sizes) if sizes else graph, operands, operands[0])
    return made if layouts is None else layouts.seen(made, operands, sizes)


class _Derivative:
    """A derivative as a function of the arguments of a call and of cotangents; the state is outside of it."""

    def __init__(self, passes: OutsidePasses, call: CompiledCall) -> None:
        self.owners, self.n_given, self.leaves, self.call = passes.owners, passes.n_given, passes.leaves, call
        self.kept = passes.kept
        self.count = self.n_given + len(self.kept)  # of what it is given before the cotangents

    def _of(self, given: Sequence[Tensor], bars: Sequence[Tensor]) -> list[Any]:
        operands = [*given[: self.n_given], *self.owners]
        for place, t in zip(self.kept, given[self.n_given :], strict=True):
            operands[place] = t
        return _inlined(self.call, [t.detach() for t in (*operands, *bars)])

    def _one(self) -> Tensor:
        """The cotangent of a result that is a number."""
        made: Tensor = Tensor._literal_of(1, self.call.graph.inputs[-1].type)
        return made


class _Accumulated(_Derivative):
    """The derivative of one result, added to ``.grad`` of the leaves."""

    def __init__(self, passes: OutsidePasses, call: CompiledCall, given: bool) -> None:
        super().__init__(passes, call)
        self.given = given

    def run(self, *given: Tensor) -> None:
        """The arguments of the call; then the cotangent, unless it is 1."""
        with grad_mode(False):
            found = self._of(given[: self.count], given[self.count :] if self.given else [self._one()])
            found.reverse()
            for place in self.call.reached:
                accumulate(accumulator_of(self.leaves[place]), [found.pop()])  # type: ignore[arg-type]


class _Pulled(_Derivative):
    """The derivatives of some results, as results."""

    def __init__(self, passes: OutsidePasses, call: CompiledCall, is_one: bool = False) -> None:
        super().__init__(passes, call)
        self.is_one = is_one

    def run(self, *given: Tensor) -> tuple[Any, ...]:
        """The arguments of the call, and the cotangents, unless there is one, which is 1."""
        with grad_mode(False):
            return tuple(self._of(given[: self.count], [self._one()] if self.is_one else given[self.count :]))


def _run(step: Any, given: Sequence[Any]) -> Any:
    """A call of a step; what it would ask first has been asked (`is_plain_now`)."""
    now = state.__dict__
    native = step._entries[now["grad_enabled"] + 2 * now["inference"]]
    if native is not None:
        return native(*given)
    with by_steps_of_their_own():
        return step(*given)


def _plain(t: Tensor) -> Tensor:
    """The tensor without its history."""
    return t if not t._requires_grad else wrap(t._array)


def is_plain_now() -> bool:
    """Whether nothing watches what the thread does, or does it in another way."""
    now = state.__dict__
    return (
        now["trace"] is None
        and not now["layers"]
        and now["observer"] is None
        and not now["anomaly"]
        and now["detour"] in (None, LINE_BY_LINE)
        and now["autocast"] is None
        and now["recording_hooks"] is None
        and not config.disable
        and not config.check
    )


def _is_hooked(node: CallNode) -> bool:
    """Whether something else than its rule happens at a node."""
    return not (
        node.tensor_hooks is None and node.retained is None and node.pre_hooks is None and node.post_hooks is None
    )


def is_plain_leaf(leaf: Tensor) -> bool:
    """Whether a gradient that arrives at a leaf is added to ``.grad``, and that is all."""
    if not leaf._requires_grad or leaf._grad_fn is not None or leaf._grad_dtype is not LIKE_LEAF:
        return False
    node = None if leaf._accumulator is None else leaf._accumulator()
    tables = (*(leaf._leaf_hooks or ()), *(() if node is None else node.hook_tables()))
    return not any(tables)


def _is_row_major(array: Any) -> bool:
    return type(array) is np.ndarray and array.flags.c_contiguous
