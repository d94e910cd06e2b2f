"""Calls in which Python decides, natively: an entry for each decision on the way, and that of the step it leads to.

A call through Python looks every guard up and follows what was replaced, which takes ten times as long as small parts
run. Once a way has been gone a few times, its parts get native entries, as whole steps have one; between them Python
only looks for what follows an outcome. Decisions write nothing that anybody sees before a step has run: wherever
something is not as it was, the call begins again through Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from autojit.core.device_array import host_copy
from autojit.core.locks import without_waiting
from autojit.ir.calls_out import calls_out
from autojit.jit.decision import Decision
from autojit.jit.guards import broken_guard
from autojit.jit.native import GIL_RELEASE_NS, REFUSED
from autojit.jit.native_arguments import arguments_of
from autojit.jit.native_guards import CaptureGuards
from autojit.jit.number_guards import broken_number
from autojit.jit.other_steps import by_another, finishing
from autojit.jit.pytree import Args, Kwargs, flatten
from autojit.runtime.entry import Entry, make_entry
from autojit.runtime.entry_spec import Constant, EntrySizes, EntrySpec, Refusal
from autojit.runtime.gate import UNLESS_REENTERED
from autojit.tensor.state import guard_epoch

if TYPE_CHECKING:
    from autojit.jit.captures import Captures
    from autojit.jit.function import JitFunction
    from autojit.jit.native import NativeStep
    from autojit.jit.step import CompiledStep
    from autojit.runtime.executable import Executable

AGAIN = 3  # runs of a part through Python, before it gets an entry: a way may not come again
AT_ONCE = 16  # calls of a signature that may go through Python in the end, though they were tried here
REST = 64  # calls that go there at once after these, twice as many each time


def is_able(decision: Decision) -> bool:
    """Whether native code can compute what Python decides on: it reads memory that it knows, and calls nobody back."""
    capture, segment = decision.capture, decision.segment
    numbers = [leaf.number_class for leaf in capture.arguments if leaf.number_class]
    return not (
        segment.copies_in
        or segment.copies_out
        or segment.compiled.lowered.computed_back
        or capture.strided
        or any(leaf.grad_value is not None for leaf in capture.arguments)
        or any(not known.is_native for known in numbers)
    )


class NativeDecision:
    """A decision's native entry."""

    def __init__(self, decision: Decision, epoch: int) -> None:
        self.decision = decision
        self.guards = CaptureGuards(decision.capture, decision.segment, epoch)
        with decision.segment.gate.held():
            self._made_for = self.guards.made_for
            self.entry: Entry = make_entry(self._spec())

    @property
    def is_present(self) -> bool:
        """Whether it is for the present memory, and the tensors that its capture follows."""
        return self._made_for == self.guards.made_for

    def runs(self, leaves: Sequence[Any]) -> bool:
        """Whether it is for a call with these arguments; it has computed its outcome then."""
        capture = self.decision.capture
        if not all(guard.holds() for guard in self.guards.listed):
            return False
        if capture.trace.number_guards and broken_number(capture, leaves):
            return False
        return type(self.entry.call(*leaves)) is not Refusal

    def holds_again(self) -> bool:
        """Whether the guard epoch alone was another one, and all that the capture has read is as it was."""
        epoch, capture = int(guard_epoch[0]), self.decision.capture
        if not self.guards.asks_epoch or self.guards.epoch == epoch or broken_guard(capture.guards) is not None:
            return False
        if capture.following.failure(self.decision.segment, is_decision=True) is not None or not self.is_present:
            return False
        self.refresh(epoch)
        return True

    def refresh(self, epoch: int) -> None:
        """Python has verified every guard since the guard epoch was ``epoch``."""
        self.guards.refresh(self.entry, epoch, are_listed=True)

    def expect_change(self, epoch: int) -> None:
        """The guard epoch has counted one change up to here, of a place that is an argument of the decision."""
        self.guards.expect_change(self.entry, epoch)

    def _spec(self) -> EntrySpec:
        decision, segment = self.decision, self.decision.segment
        executable: Executable = segment.executable
        guards = self.guards.of_memory()
        self.guards.add_reads(guards)
        estimate_ns = sum(e.estimate_ns for e in segment.compiled.lowered.entries)
        return EntrySpec(
            step_address=executable.step_address,
            table_address=executable.table_address,
            gate=executable.gate,
            arguments=arguments_of(decision.capture.arguments, executable, ()),  # the step looks at what they share
            guards=tuple(guards),
            results=(Constant(None),),
            releases_gil=bool(executable.symbols) or calls_out(segment.compiled.graph) or estimate_ns > GIL_RELEASE_NS,
            error_address=executable.error_address,
            on_error=partial(_refused, executable),
            keep=(executable, segment),
            sizes=EntrySizes(executable.symbols, executable.sizes_table) if executable.symbols else None,
        )


def _refused(executable: Executable) -> Refusal:
    """What a decision has failed of, the call meets again through Python, which tells it."""
    with suppress(Exception):
        executable.raise_errors()
    return REFUSED


class DecidedCalls:
    """The calls of one signature of a jitted function, of which some decide. ``call`` is what is called first."""

    def __init__(self, owner: JitFunction, root: Captures, step: CompiledStep) -> None:
        self.owner, self.root = owner, root
        self.slow: Callable[..., Any] = self._refused if owner.rebinding is None else finishing(owner, self)
        self.step = step  # one of them: their arguments are alike
        args, kwargs = step.capture.argument_tree.children
        self.is_nested = any(child.kind is not None for child in (*args.children, *kwargs.children))
        self.natives: list[NativeDecision | NativeStep] = []  # that have run
        self._turn = 0
        self._is_own = False  # whether the call that was tried last has come to a decision
        self._credit = AT_ONCE
        self._rest, self._resting = REST, 0

    def rests(self) -> bool:
        """Whether calls are not tried here; who asks is counted."""
        self._resting -= self._resting > 0
        return self._resting > 0

    def add(self, native: NativeDecision | NativeStep) -> None:
        """A part has got an entry; those of parts that are gone, or were made again, are let go."""
        self.natives = [other for other in self.natives if other.guards.segment is not native.guards.segment]
        self.natives.append(native)

    def call(self, *args: object, **kwargs: object) -> Any:
        """The call's result: natively, or else by other steps or through Python."""
        found = self.attempt(args, kwargs)
        return self.slow(*args, **kwargs) if type(found) is Refusal else found

    def attempt(self, args: Args, kwargs: Kwargs) -> Any:
        """The call's result, or a ``Refusal``."""
        found: Any = REFUSED
        with UNLESS_REENTERED, without_waiting(self.owner._lock) as is_mine:
            if is_mine:
                found = self._tried(args, kwargs)
        if type(found) is Refusal:
            self._credit -= self._is_own
            if self._credit < 0:
                self._credit, self._resting, self._rest = AT_ONCE, self._rest, 2 * self._rest
        elif self._credit < AT_ONCE:
            self._credit += 1
        return found

    def _refused(self, *args: object, **kwargs: object) -> Any:
        handed = by_another(self.owner, args, kwargs, self)
        return self.owner._slow(*args, **kwargs) if handed is None else handed.result

    def expect_change(self, epoch: int) -> None:
        """The guard epoch has counted one change up to here, of a place that is an argument of all of them."""
        for native in self.natives:
            native.expect_change(epoch)

    def _tried(self, args: Args, kwargs: Kwargs) -> Any:
        self._turn = turn = self._turn + 1
        self._is_own = False
        leaves = list(args)
        if self.is_nested or kwargs:
            leaves, tree = flatten((args, kwargs))
            if tree != self.step.capture.argument_tree:
                return REFUSED
        branch: Sequence[Decision | CompiledStep] | None = self.root.branch
        while branch:
            decision: Decision | None = None
            for node in branch:
                if not isinstance(node, Decision):
                    step: NativeStep | None = node.entry
                    found = REFUSED if step is None or self._turn != turn else step.attempt_of(leaves, args, kwargs)
                    if type(found) is not Refusal:
                        return found
                elif (native := node.entry) and (native.runs(leaves) or (native.holds_again() and native.runs(leaves))):
                    decision = node
                    break
            if decision is None:
                return REFUSED
            decision.calls += 1
            self._is_own = True
            branch = decision.children.get(host_copy(decision.outcome).tobytes())
        return REFUSED
