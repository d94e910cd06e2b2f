"""Users' code that runs in backward passes outside of a step, through the histories of its results.

Hooks, ``Function.backward``, unpack hooks and checkpointed functions run when a derivative is recorded, which is done
once for many passes. So they are observed while they run: a derivative holds as long as what they have read holds, and
is recorded again where it does not. What they change outside would happen once, and with tensors that have no values.
So the derivative is recorded once when the step is captured, and where users' code does such a thing, calls run line by
line. Where it does so in a later pass only, which no capture can foresee, that pass is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from types import CellType
from typing import Any

from autojit.autograd.function_context import BackwardCFunction
from autojit.core.epoch import switches_since
from autojit.core.errors import AutojitError, SpecializeSize, TraceError, UndecidedSizeError
from autojit.core.user_warnings import trying
from autojit.core.wrapping import own
from autojit.history.op_node import OpNode
from autojit.history.saved import Packed
from autojit.jit.call import CompiledCall
from autojit.jit.contents import CONTAINERS
from autojit.jit.eager_mode import set_modes
from autojit.jit.followed_tensors import root_array
from autojit.jit.guards import Guard, WordsGuard
from autojit.jit.histories import nodes_from
from autojit.jit.line_by_line import GivenUp, LineByLine
from autojit.jit.observed_functions import is_user_class
from autojit.jit.observer import Observer
from autojit.jit.outcomes import Turned
from autojit.jit.places import is_a
from autojit.jit.read_hooks import PLAIN
from autojit.jit.replaced_code import note_class, watch
from autojit.jit.snapshots import Snapshot
from autojit.jit.step import Capture
from autojit.jit.trace import Trace
from autojit.jit.trace_entries import StateEntry
from autojit.tensor.node import AccumulateGrad, Edge, Node
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor

RECORDINGS = 8  # of derivatives of one capture, after what users' code had read changed


class InBackward(LineByLine):
    """Users' code does in backward what would happen once, when the derivative is recorded."""

    text = "backward outside the step runs {0}, which {1}: ran line by line (call backward inside the step)"


def foresee_backward(capture: Capture) -> None:
    """Record the derivatives that callers may ask for, if users' code has a part in them.

    Raises:
        LineByLine: that does what no derivative that is recorded once can do at every pass.
        SpecializeSize: it cannot be done with sizes open.
    """
    if not capture.is_differentiable:
        return
    trace = capture.trace
    ops = [stage.op for stage in capture.as_op().stages]
    found = [users_code(*op.ends()) for op in ops]
    if not any(found):
        return
    before = () if trace.met_outside is None else tuple(trace.met_outside())
    watching = Watching(trace, [part for parts in found for part in parts], before)
    for op, parts in zip(ops, found, strict=True):
        if parts and op.wanted():
            op.watch = watching
            try:
                with trying():
                    op.adjoint_call(op.wanted())
            except _Outside as error:
                raise error.reason.always() from None
            except (LineByLine, SpecializeSize, UndecidedSizeError):
                raise
            except AutojitError as error:  # eager mode does it, or says so itself
                told = str(error).partition("\n")[0]
                raise InBackward(watching.name, f"no step can do ({told})").always() from None
            except Exception:  # of the user's: said to whoever asks for the derivative
                continue
    is_fickle = lambda: watching.recordings > RECORDINGS
    name = f"what {watching.name} reads in backward has changed {RECORDINGS} times"
    capture.guards.append(Guard(name, is_fickle, False))


def users_code(starts: Iterable[Edge | None], ends: Collection[Node]) -> list[Any]:
    """What runs users' functions in a backward pass from ``starts`` as far as ``ends``: hooks, nodes of Functions."""
    found: list[Any] = []
    for node in nodes_from([edge[0] for edge in starts if edge is not None], ends):
        if isinstance(node, AccumulateGrad):
            continue
        found += [hook for table in node.hook_tables() if table for hook in table.values()]
        found += [part.unpack_hook for part in _saved_by(node) if type(part) is Packed]
        if isinstance(node, BackwardCFunction):
            found.append(node)
    return found


def _saved_by(node: Node) -> Iterator[Any]:
    if isinstance(node, OpNode):
        yield from (*node.primals, *node.results)
    elif isinstance(node, BackwardCFunction):
        yield from (entry[0] for entry in node._saved if type(entry) is tuple)


class _Outside(TraceError):
    """Users' code has changed something outside while a derivative was recorded."""

    def __init__(self, reason: InBackward) -> None:
        self.reason = reason
        super().__init__(
            "users' code that runs in backward changes what is outside a compiled step, which it has not done when the "
            "step was captured",
            {"because": str(reason).partition(": ran line by line")[0]},
            "call backward inside the step, or do not compile the function",
        )


class Watching:
    """What observes the users' code in the derivatives of one capture, of every order.

    ``parts``: where it begins; ``before``: what the capture has met outside.
    """

    def __init__(self, trace: Trace, parts: Sequence[Any], before: Iterable[Any]) -> None:
        self.trace = trace
        self.parts = parts
        self.before = {id(value): value for value in before}
        self.name = ", ".join(dict.fromkeys(map(_name_of, parts)))
        self.recordings = -1  # except for the first

    def record(self, make: Callable[[], CompiledCall]) -> CompiledCall:
        """The derivative that ``make`` records, with guards of what users' code has read.

        Raises:
            _Outside: it has done something that it would have to do at every pass.
        """
        observer = _OfBackward(self.before)
        outer, snapshot = state.hook_changes, Snapshot(observer)
        state.hook_changes = snapshot.hook_changes
        marks = _Marks(self.trace)
        try:
            watch(observer)
            note_class(observer, Tensor)
            try:
                with observer.observing():
                    for part in self.parts:
                        observer.enter_part(part)
                    made = make()
            except GivenUp as error:
                raise _Outside(InBackward(self.name, _told(error.reason))) from None
            except LineByLine as error:
                raise _Outside(InBackward(self.name, _told(error))) from None
            except Turned:
                raise _Outside(InBackward(self.name, "decides on values")) from None
            except Exception:
                self._refuse(self._effect(observer, snapshot) or marks.effect())  # what came before is done, too
                raise
            self._refuse(self._effect(observer, snapshot) or marks.effect())
            made.reads = Reads([*observer.all_guards(), *map(_memory_guard, made.extra)])
            self.recordings += 1
        finally:
            marks.take_back()
            _leave(observer, snapshot)
            state.hook_changes = outer
        made.watch = self
        return made

    def _refuse(self, what: str | None) -> None:
        if what is not None:
            raise _Outside(InBackward(self.name, what)) from None

    def _effect(self, observer: _OfBackward, snapshot: Snapshot) -> str | None:
        """What users' code has done outside that would have to be done at every pass, or cannot be compared."""
        changed = [place.name for place, _ in (*observer.written.values(), *snapshot._changes())]
        if changed:
            return f"changes {changed[0]}"
        if observer.contents._before:
            container = next(iter(observer.contents._before.values()))[0]
            return f"changes {observer.name_of(container)}"
        if observer.deferred:
            called = observer.deferred[0].function
            return f"calls {own(called, '__qualname__', type(called).__name__)}"
        if observer.unguarded:
            return f"reads {observer.unguarded[0]}"
        if observer.told_apart or observer.is_torn:
            return "asks which tensor one is, or what another thread changes"
        if switches_since(snapshot._switches) or snapshot.modes_left() is not None:
            return "sets switches"
        if snapshot.hook_changes.removed or any(True for _ in snapshot._registered()):
            return "registers or removes hooks on what exists outside"
        if observer.counted.put_layers_back():
            return "gives a module other parts"
        return None


class _Drawn(LineByLine):
    """Users' code fetches what every pass has to fetch for itself."""


def _told(reason: LineByLine) -> str:
    return str(reason) if isinstance(reason, _Drawn) else f"no step can do ({reason})"


class _OfBackward(Observer):
    """The observer of a derivative: the step's own objects are outside, too, for they are made once for all passes."""

    def __init__(self, before: dict[int, Any]) -> None:
        super().__init__()
        self.before = before
        self.outside.update((key, value) for key, value in before.items() if is_a(value, (*CONTAINERS, CellType)))

    def enter_part(self, part: object) -> None:
        """A hook, or the node of a custom function, from which users' code is reached."""
        self.enter(part, _name_of(part))
        if isinstance(part, BackwardCFunction):
            self.enter(part._forward_cls)
            self.enter(part._forward_cls.user_backward())

    def is_made_inside(self, function: object) -> bool:
        """No function: those that the step has made serve for all passes."""
        return False

    def meet(self, *values: object) -> None:
        """Objects are used which may be known from the step's capture alone."""
        for value in values:
            if id(value) not in self.outside and id(value) in self.before and type(value) not in PLAIN:
                self.enter(value)

    def attribute(self, obj: object, name: str, read: Callable[[Any, str], Any] = getattr) -> Any:
        self.meet(obj)
        return super().attribute(obj, name, read)

    def draw(self, function: Callable[..., Any], *args: object, **kwargs: object) -> Any:
        """What is drawn is another value at every pass: nothing is fetched for one that is given up."""
        raise GivenUp(_Drawn(f"reads what {own(function, '__qualname__', type(function).__name__)} gives"))

    draw_unless_of_tensors = draw

    def changing_attribute(self, obj: object, name: str, change: Callable[[], None]) -> None:
        self.meet(obj)
        super().changing_attribute(obj, name, change)

    def replacement(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Callable[..., Any] | None:
        self.meet(function, *arguments)
        return super().replacement(function, arguments)


class Reads:
    """What users' code has read outside: as the native entry does it, classes and functions are compared by words of
    memory, and by meaning only where these have changed.
    """

    def __init__(self, guards: Sequence[Guard]) -> None:
        words = [g.native.words() if isinstance(g.native, WordsGuard) else [] for g in guards]
        self._read = [guard for guard, found in zip(guards, words, strict=True) if not found]
        self._by_words = [(guard, found) for guard, found in zip(guards, words, strict=True) if found]

    def hold(self) -> bool:
        """Whether everything is as it was."""
        for guard, words in self._by_words:
            if any([word.counter[0] != word.expected for word in words]) and not guard.holds():  # noqa: C419  (faster)
                return False
        return all([guard.holds() for guard in self._read])  # noqa: C419


class _Marks:
    """What a trace knew of changes before a derivative was recorded in it."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.state = {id(entry): entry.value for entry in trace.state.values()}
        self.grads = {id(entry): (entry.is_written, entry.current) for entry in trace.grads.values()}
        self.holders = set(trace.holders)
        self.counts = len(trace.splits), len(trace.taken), trace.uncompiled

    def effect(self) -> str | None:
        """What the users' code did to tensors."""
        trace = self.trace
        for entry in trace.state.values():
            before = self.state.get(id(entry), entry.input)
            if trace.copied_from(entry.value) is not trace.copied_from(before):
                return f"changes a tensor {entry.input.type} in place"
        for grad in trace.grads.values():
            if (grad.is_written, grad.current) != self.grads.get(id(grad), (False, grad.current)):
                return "changes a .grad"
        if set(trace.holders) != self.holders:
            return "runs an optimiser"
        if (len(trace.splits), len(trace.taken), trace.uncompiled) != self.counts:
            return "decides on values"
        return None

    def take_back(self) -> None:
        """Let the trace show memory as the step left it."""
        trace = self.trace
        for entry in trace.state.values():
            entry.value = self.state.get(id(entry), entry.input)
        del trace.splits[self.counts[0] :]


def _memory_guard(entry: StateEntry) -> Guard:
    """A tensor that users' code has read shows the memory that it showed (``x.data = y`` gives it other memory)."""
    owner, array = entry.root_owner(), entry.array
    return Guard(f"memory of a tensor {entry.input.type}", lambda: root_array(owner) is array, True)


def _leave(observer: Observer, snapshot: Snapshot) -> None:
    try:
        snapshot.take_back()
        snapshot._put_switches()
        observer.contents.put_back()
        observer.counted.put_layers_back()
    finally:
        set_modes(snapshot.modes)
        snapshot.restore_hooks()


def _name_of(part: object) -> str:
    if isinstance(part, BackwardCFunction):
        cls = part._forward_cls
        return f"{cls.__qualname__}.backward" if is_user_class(cls) else f"the backward of {cls.__name__}"
    return f"a hook ({own(part, '__qualname__', type(part).__name__)})"
