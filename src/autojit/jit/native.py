"""From a compiled step to a callable that runs it without Python work, where that is possible.

The native entry point checks tensors, baked-in objects and most guards by itself. What it cannot do is done by a thin
Python layer around it, only where a step needs it: guards that must be read (contents of lists), nested arguments,
results that are not a flat tuple of tensors, and arguments that are views while the step changes state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from autojit.core.config import config
from autojit.core.device_array import has_layout, layout_in_memory, packed
from autojit.dispatch.dispatch import mark_inference
from autojit.ir.calls_out import calls_out
from autojit.ir.concrete import concrete, is_open
from autojit.jit.arguments import Packed, copied_for
from autojit.jit.effects import uninterrupted
from autojit.jit.exact_numbers import raise_or_refuse
from autojit.jit.given_gradients import given_gradients, outputs_of
from autojit.jit.given_memory import GivenMemory, count_for
from autojit.jit.guards import stand_ins
from autojit.jit.memory_check import check_memory, check_result
from autojit.jit.mended_entries import mend
from autojit.jit.native_arguments import arguments_of, identities_of
from autojit.jit.native_guards import CaptureGuards
from autojit.jit.number_guards import broken_number
from autojit.jit.pytree import Args, Kwargs, flatten
from autojit.jit.recorded_results import RecordedResults
from autojit.jit.spent_results import SpentNode
from autojit.jit.step_gradients import GradResult
from autojit.jit.versions import count_calls, count_unseen
from autojit.runtime.entry import Entry, make_entry
from autojit.runtime.entry_spec import (
    MISSING,
    Constant,
    EntrySizes,
    EntrySpec,
    LentGuard,
    Output,
    OutputRing,
    Readers,
    Refusal,
    SlotGuard,
)  # fmt: skip
from autojit.tensor.lent_gradients import UNTOUCHED_READER
from autojit.tensor.memory_orders import order_of
from autojit.tensor.storage import Storage
from autojit.tensor.tensor import Tensor, wrap

if TYPE_CHECKING:
    from autojit.jit.step import CompiledStep

NATIVE_PAIRS = 64  # of arguments whose identities native code compares, in some 20 ns; Python compares more of them
GIL_RELEASE_NS = 50_000.0  # estimated step time above which other Python threads may run meanwhile
_UNTOUCHED = (("_grad", None), ("_storage", None))


class NativeStep:
    """A step's entry point and the layer around it. ``call`` is what a jitted function calls first."""

    def __init__(
        self,
        step: CompiledStep,
        leaves: list[Any],
        epoch: int,
        slow: Callable[..., Any],
        name: str,
        jitted: Callable[[Callable[..., Any]], Any],
    ) -> None:
        self.step = step
        self.slow = slow
        capture = step.capture
        self.guards = CaptureGuards(capture, step.segment, epoch)
        args, self.kwargs_tree = capture.argument_tree.children
        self.is_nested = any(c.kind is not None for c in (*args.children, *self.kwargs_tree.children))
        self.listed = self.guards.listed
        self.identities = identities_of(capture.arguments)
        self.firsts = [  # for Python, where native code would compare too many pairs
            (k, leaf.twin if leaf.kind == "twin" else k)
            for k, leaf in enumerate(capture.arguments)
            if leaf.kind in ("tensor", "twin") and len(self.identities) > NATIVE_PAIRS
        ]
        self.note_present()
        self.views = self._view_positions(leaves)
        self.strided = capture.strided
        self.replaced = [g for g in step.effects.gradients.all if not g.is_stable and g.lent_before is None]
        self.given = given_gradients(step)
        self.recorded = RecordedResults(step, name, jitted) if step.call is not None else None
        self.onward = (
            [] if step.call else [k for k, a in enumerate(capture.arguments) if a.requires_grad and not a.is_leaf]
        )
        has_own = self.is_nested or self.listed or self.views or self.replaced or self.strided or self.firsts
        has_own = has_own or self.onward or self.given
        is_exact = step.trace.asks_exact or bool(step.trace.number_guards)
        is_plain = step.results.is_plain
        self.is_layered = bool(has_own or self.recorded or step.twins or is_exact or not is_plain or config.check)
        self.grad_places: dict[int, GradResult] = {}
        self.count_places: dict[int, GivenMemory] = {}
        self.rows_of_owners: dict[int, list[int]] = {}
        self.sizes = capture.sizes_of(leaves)  # the values of open sizes for which results are made next
        with step.segment.gate.held():
            self.entry: Entry = make_entry(self._spec(_refuse if self.is_layered else slow))
        is_alone = not (has_own or step.twins or is_exact or config.check)
        self.is_direct = is_alone and self.recorded is not None and self.recorded.is_direct
        self.call: Callable[..., Any] = self.entry.call
        if self.is_layered:
            is_finished = is_alone and self.recorded is None and step.results.are_leaves_at_hand
            self.call = self._direct if self.is_direct else self._finished if is_finished else self._layered
        for storage, changes in step.effects.counted():
            count_calls(storage, self, changes)
        for storage, changes in step.effects.changed_unseen:
            count_unseen(storage, self, changes)

    @property
    def is_present(self) -> bool:
        """Whether it is for the step's present memory, and the tensors it follows."""
        return self.made_for == self.guards.made_for

    def note_present(self) -> None:
        """It is for the memory and the tensors that the step has now."""
        self.written = {id(e.array): e for e, _ in self.step.effects.written}
        self.made_for = self.guards.made_for

    def may_copy(self, packed: Packed) -> bool:
        """Whether copies serve as well as the arguments: no result shows an argument, and no state shares memory."""
        results = self.step.results
        is_shown = results.hands_on or any(place.kind in ("argument", "alias") for place in results.places)
        if self.given or self.step.twins or is_shown:
            return False
        if any(self.step.capture.arguments[k].value in self.step.trace.relied_on for k in packed.places):
            return False
        storages = [t._storage for t in packed.originals]
        return all(s is None or id(s.array) not in self.written for s in storages)

    def fits(self, leaves: list[Any]) -> bool:
        """Whether it is for the step's present memory and sizes, and this call's arguments are no longer views."""
        is_able = self.is_layered or not stand_ins(self.step.capture.guards)
        if self.recorded is not None and not self.recorded.is_current:
            return False
        return is_able and self.is_present and set(self._view_positions(leaves)) <= set(self.views)

    def _view_positions(self, leaves: list[Any]) -> list[int]:
        """Tensor arguments that share storage with others; only a step that changes state must look at them."""
        if not self.written:
            return []
        return [k for k, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf._storage is not None]

    def _alone(self) -> set[int]:
        """Arguments that may not be views, as the step writes and was made for some that are none."""
        return {*range(len(self.step.capture.arguments))} - {*self.views} if self.step.effects.written else set()

    def attempt_of(self, leaves: list[Any] | None, args: Args, kwargs: Kwargs) -> Any:
        """A call that is not taken to ``slow`` where it is refused; ``leaves``: if its structure is known to be right.

        Raises:
            Reentered: the calling thread is in a call of the step.
        """
        return self._tried(args, kwargs, leaves) if self.is_layered else self.entry.attempt(*args, **kwargs)

    def _layered(self, *args: object, **kwargs: object) -> Any:
        found = self._tried(args, kwargs)
        return self.slow(*args, **kwargs) if found is REFUSED else found

    def _tried(self, args: Args, kwargs: Kwargs, known: list[Any] | None = None) -> Any:
        found: Any
        capture = self.step.capture
        for guard in self.listed:
            if not guard.holds():
                return REFUSED
        if self.is_nested or self.strided:
            leaves, tree = flatten((args, kwargs))
            if tree != self.step.capture.argument_tree:
                return REFUSED
            given = leaves if not self.strided else self._packed(leaves)
            if given is None or self._are_others(leaves) or broken_number(capture, leaves):
                found = REFUSED
            elif self.is_nested:
                found = self._enter(leaves, given, {})
            else:
                count = len(args)
                found = self._enter(leaves, given[:count], dict(zip(kwargs, given[count:], strict=True)))
        else:
            leaves = [*args, *kwargs.values()] if kwargs else args  # type: ignore[assignment]
            is_other = self._are_others(leaves) or bool(broken_number(capture, leaves))
            found = REFUSED if is_other else self._enter(leaves, args, kwargs)
        if found is REFUSED:
            return found
        results = self.step.results
        if self.recorded is not None:
            found = self.recorded.of(found, leaves)
        elif results.are_leaves_at_hand and not self.given:
            return found if results.is_plain else results.finish(found, (args, kwargs))
        return self.step.package(found, leaves, capture.sizes_of(leaves), (args, kwargs))

    def _direct(self, *args: object, **kwargs: object) -> Any:
        """What ``_layered`` does where native code has looked at everything, and results only need their history."""
        found = self.entry.call(*args, **kwargs) if kwargs else self.entry.call(*args)
        if found is REFUSED:
            return self.slow(*args, **kwargs)
        recorded = self.recorded
        assert recorded is not None
        return recorded.shown(found, (*args, *kwargs.values()) if kwargs else args)

    def _finished(self, *args: object, **kwargs: object) -> Any:
        """The same where results need to be put together."""
        found = self.entry.call(*args, **kwargs) if kwargs else self.entry.call(*args)
        return self.slow(*args, **kwargs) if found is REFUSED else self.step.results.finish(found, (args, kwargs))

    def _packed(self, leaves: list[Any]) -> list[Any] | None:
        """The arguments with copies in row-major order of those for whose order the step was captured; None where one
        is in another order.
        """
        given = list(leaves)
        for k, order in self.strided.items():
            array = given[k]._array if isinstance(given[k], Tensor) else given[k]
            if not has_layout(array) or order_of(layout_in_memory(array)) != order:
                return None
            copy = packed(array)
            given[k] = copied_for(given[k], copy) if isinstance(given[k], Tensor) else copy
        for k, leaf in enumerate(self.step.capture.arguments):
            if leaf.kind == "twin" and leaf.twin in self.strided:
                given[k] = given[leaf.twin] if leaves[k] is leaves[leaf.twin] else leaves[k]
        return given

    def _enter(self, leaves: Sequence[Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The native call; where the step leaves another tensor as a gradient than it finds, the leaf gets it.

        ``leaves``: the call's own arguments, of which ``args`` and ``kwargs`` may be copies.
        """
        if config.check:
            return self._enter_checked(leaves, args, kwargs)
        if not (self.replaced or self.given):
            return self.entry.call(*args, **kwargs)
        if not all(grad.is_at_hand for grad in self.replaced):
            return REFUSED
        with uninterrupted():
            found = self.entry.call(*args, **kwargs)
            if found is not REFUSED:
                self._leave_gradients(leaves, found)
        return found

    def _leave_gradients(self, leaves: Sequence[Any], found: Any) -> None:
        for grad in self.replaced:
            grad.leaf._grad = grad.shown(found)
        for k, output in self.given:
            leaves[k]._grad = found[output]

    def _enter_checked(self, own: Sequence[Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The native call in a checked build: when it was accepted, what it has written is looked at."""
        if not self.is_present or not all(grad.is_at_hand for grad in self.replaced):
            return REFUSED
        leaves = flatten((args, kwargs))[0]
        arrays = [leaf._array if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        arrays = [array for array in arrays if has_layout(array)]
        read = [grad for grad in self.grad_places.values() if grad.lent_before != "any"]  # the others are replaced
        before = [(grad.leaf._grad, grad.before) for grad in read]
        found = self.entry.call(*args, **kwargs)
        if found is not REFUSED:
            assert all(a is b for a, b in before), "a step ran natively though gradients are others"
            check_memory(self.step, arrays)
            check_result(self.step, found if isinstance(found, tuple) else (found,), arrays)
            self._leave_gradients(own, found)
        return found

    def _are_others(self, leaves: Sequence[object]) -> bool:
        """Whether arguments share memory, are leaves, or are one object, where those of the capture were otherwise."""
        if any(getattr(leaves[k], "_grad_fn", None) is None for k in self.onward):
            return True
        first: dict[int, int] = {}  # arguments that were one object are to be one, and those that were two, two
        if not all(first.setdefault(id(leaves[k]), k) == before for k, before in self.firsts):
            return True
        for k in self.views:
            storage = getattr(leaves[k], "_storage", None) if k < len(leaves) else None
            if storage is not None and id(storage.array) in self.written:
                return True
        return any(getattr(leaves[k], "_array", None) is array for k, array in self.step.twins)

    def expect_change(self, epoch: int) -> None:
        """The guard epoch has counted one change up to here, of a place that is an argument of the step."""
        self.guards.expect_change(self.entry, epoch)

    def refresh(self, epoch: int) -> None:
        """Python has verified every guard since the guard epoch was ``epoch``: the native ones get present values."""
        self.guards.refresh(self.entry, epoch, self.is_layered)
        count_for(self.entry, self.count_places)
        for place, grad in self.grad_places.items():
            lent = isinstance(self.entry._spec.guards[place], LentGuard)
            self.entry.set_expected(place, grad.tensor if lent else grad.before)

    # -- the call described

    def _spec(self, fallback: Callable[..., Any]) -> EntrySpec:
        step = self.step
        executable = step.segment.executable
        specs = [(v.type.shape, v.type.dtype.numpy, o) for v, o in outputs_of(step)]
        inference, spent = step.results.made_in_inference, step.results.spent
        rings = tuple(
            OutputRing(
                self._maker(k, spec[0], spec[2], k in inference, spent.get(k)),
                executable.n_inputs + k,
                slot_equals=(("_requires_grad", k in spent), ("_grad_fn", spent.get(k)), *_UNTOUCHED),
                is_open=is_open(spec[0]),
            )
            for k, spec in enumerate(specs)
        )
        results, returns_tuple = self._results()
        return EntrySpec(
            step_address=executable.step_address,
            table_address=executable.table_address,
            gate=executable.gate,
            arguments=arguments_of(step.capture.arguments, executable, self._alone()),
            keyword_names=() if self.is_nested else tuple(self.kwargs_tree.keys),
            identities=() if self.firsts else self.identities,
            guards=tuple(self._guards()),
            rings=rings,
            results=results,
            returns_tuple=returns_tuple,
            # estimates are those of the sizes it was captured for, later ones may be a thousand times as large; and
            # what waits for other processes is watched by a thread
            releases_gil=bool(executable.symbols)
            or calls_out(step.compiled.graph)
            or sum(e.estimate_ns for e in step.compiled.lowered.entries) > GIL_RELEASE_NS,
            fallback=fallback,
            mend=partial(mend, self),
            followed=frozenset(self.grad_places),
            error_address=executable.error_address,
            on_error=partial(raise_or_refuse, executable) if step.trace.asks_exact else executable.raise_errors,
            keep=(executable, step.segment),
            written=tuple(step.overlaps.written.ranges),
            sizes=self._entry_sizes(any(ring.is_open for ring in rings)),
        )

    def _entry_sizes(self, has_open_results: bool) -> EntrySizes | None:
        executable = self.step.segment.executable
        if not executable.symbols:
            return None
        is_asked = has_open_results or bool(self.step.trace.size_guards)
        return EntrySizes(executable.symbols, executable.sizes_table, self._accepts if is_asked else None)

    def _accepts(self, values: tuple[int, ...]) -> bool:
        """Whether the step holds for other values of its open sizes."""
        sizes = dict(zip(self.step.segment.executable.symbols, values, strict=True))
        if self.step.capture.broken_size(sizes) is not None:
            return False
        self.sizes = sizes
        return True

    def _present_sizes(self) -> dict[str, int]:
        """The values of open sizes in the call that goes on; before the first one, those of the call before."""
        found = self.step.segment.sizes()
        return found if all(n >= 0 for n in found.values()) else self.sizes

    def _maker(
        self, place: int, shape: Any, order: Any, inference: bool, spent: SpentNode | None
    ) -> Callable[[], Tensor]:
        """What makes tensors for a result."""
        allocator = self.step.segment.executable.allocator
        allocate = None if is_open(shape) else allocator(place, shape, order)
        known = _Extents(shape)

        def make() -> Tensor:
            made = wrap((allocate or allocator(place, known.of(self._present_sizes()), order))())
            if inference:
                mark_inference(made)
            if spent is not None:
                made._requires_grad, made._grad_fn = True, spent
            return made

        return make

    def _results(self) -> tuple[tuple[Output | Constant, ...], bool]:
        results = self.step.results
        if results.are_leaves_at_hand and self.recorded is None and not self.given:
            items = tuple(Constant(p.what) if p.kind == "constant" else Output(p.index) for p in results.places)
            return items, results.tree.kind is not None
        count = len(outputs_of(self.step))
        return (tuple(map(Output, range(count))), True) if count else ((Constant(()),), False)

    def _guards(self) -> list[Any]:
        guards = self.guards.of_memory()
        if self.recorded is not None and self.recorded.recording is not None:
            guards += self.recorded.recording.guards()
        for grad in self.step.effects.gradients.all:
            if grad.entry.was_read or grad.result is None:
                self.grad_places[len(guards)] = grad
                guards.append(self._gradient_guard(grad))
        for given in self.step.trace.given_memory:
            self.count_places[len(guards)] = given
            guards += given.guards()
        self.guards.add_reads(guards)
        return guards

    def _gradient_guard(self, grad: GradResult) -> SlotGuard | LentGuard:
        before = grad.lent_before
        if before is None:
            return SlotGuard(grad.leaf, "_grad", grad.before)
        executable, places = self.step.segment.executable, self.step.effects.moving
        moved = [k for k, value in enumerate(places) if grad.value is value and before != "own"]
        index = executable.n_inputs + self.step.segment.n_free + moved[0] if moved else None
        return LentGuard(grad.leaf, "_grad", grad.tensor, before, "reader", _READERS, index)


class _Extents:
    """A shape with open sizes, for the values that they had last."""

    def __init__(self, shape: Any) -> None:
        self.shape = shape
        self._last: tuple[dict[str, int], Any] | None = None

    def of(self, sizes: dict[str, int]) -> Any:
        """The shape for these sizes."""
        if self._last is None or self._last[0] != sizes:
            self._last = sizes, concrete(self.shape, sizes)
        return self._last[1]


_READERS = Readers(Tensor, "_array", "_storage", Storage, "array", (*UNTOUCHED_READER, ("__weakref__", MISSING)))
REFUSED = Refusal.SLOW


def _refuse(*args: object, **kwargs: object) -> Refusal:
    return REFUSED
