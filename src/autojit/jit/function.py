"""``@aj.jit``: a function whose calls run as compiled steps.

A call goes to the native entry point of the step that ran last in the present gradient mode. If a guard fails,
``_slow`` looks for a step with the same argument signature whose guards hold, follows its decisions, and captures what
is missing; ``explain`` says why. Such an attempt has an outcome (`jit.outcomes`);
what becomes of the others is said in `jit.attempts`.
"""

from __future__ import annotations

import copy
import functools
import inspect
import time
from collections.abc import Callable, Sequence
from types import MethodType
from typing import TYPE_CHECKING, Any

from autojit.compiler import Options
from autojit.core.collector_pause import uncollected
from autojit.core.compile_notice import noticed
from autojit.core.config import config
from autojit.core.errors import SpecializeSize, TraceError, UndecidedSizeError
from autojit.core.locks import is_mine, new_lock
from autojit.core.size_recorder import recording
from autojit.core.source import named_by_function
from autojit.core.tracebacks import trim
from autojit.core.wrapping import code_holder, names_of
from autojit.jit.answers import Answers
from autojit.jit.argument_nests import ArgumentNests
from autojit.jit.arguments import (
    Key,
    difference_from,
    given_to_function,
    leaf_names,
    make_leaves,
    signature,
    with_tensors,
)
from autojit.jit.assigned_places import Rebinding, carried, changing_values
from autojit.jit.attempts import note_reason, profiled, settled
from autojit.jit.calls import Call, alone
from autojit.jit.captures import Branch, Captures, JitStats, remove, too_many, warned
from autojit.jit.changing_lengths import Lengths
from autojit.jit.compile_options import check_mode, expect_one_part
from autojit.jit.compiled_beside import begin, eagerly, take_over
from autojit.jit.decision import Decision
from autojit.jit.eager_mode import set_modes
from autojit.jit.followed_runs import followed, with_drawn
from autojit.jit.gathering_arguments import Gathering
from autojit.jit.generality import general_capture
from autojit.jit.given_themselves import GivenThemselves, plain
from autojit.jit.guards import broken_guard, history_guards, hook_guards
from autojit.jit.kept_signatures import Forgetting, make_room, newest
from autojit.jit.line_by_line import ChangesItself, CopiedArguments, InVain, LineByLine
from autojit.jit.made_objects import let_out, with_plain_keys
from autojit.jit.memory_budget import Measured, check_budget, warn_if_missed
from autojit.jit.methods import Methods, distributed, found_by_name, is_taken_along
from autojit.jit.native import NativeStep
from autojit.jit.native_calls import NativeCalls
from autojit.jit.native_installs import install
from autojit.jit.number_guards import Decided, broken_number
from autojit.jit.numpy_arrays import OfNumPy
from autojit.jit.open_numbers import OpenNumbers
from autojit.jit.open_sizes import OpenSizes
from autojit.jit.other_steps import by_another
from autojit.jit.outcomes import BeginsAgain, Eagerly, Outcome, Ran, ToCompare, again_with
from autojit.jit.overlaps import told_apart
from autojit.jit.payoff import Payoff
from autojit.jit.pieces import Pieces
from autojit.jit.pytree import Args, Kwargs
from autojit.jit.rank_programs import require_same_program
from autojit.jit.report import memory_of
from autojit.jit.snapshots import observed
from autojit.jit.step import Capture, CompiledStep, build_path
from autojit.jit.stepped_bodies import SteppedBodies
from autojit.jit.timing import Timing
from autojit.jit.trace import Trace
from autojit.jit.verify import Comparison, check_option
from autojit.runtime.gate import UNLESS_REENTERED
from autojit.runtime.precompile import compile_ahead
from autojit.tensor.state import BY_PYTHON, guard_epoch, set_trace, state

CAPTURE_LIMIT = 64  # paths captured for one argument signature
MODES = 5  # one more than the greatest ``grad_enabled + 2 * inference``

if TYPE_CHECKING:
    from autojit.jit.decided_calls import DecidedCalls


@named_by_function
class JitFunction(Answers):
    """What ``@aj.jit`` returns: call it like the function.

    ``explain()`` tells what was captured and why; ``stats()`` counts; ``show(stage)`` prints "captured", "adjoint",
    "optimised", "schedule", "llvm", "asm" or "ptx"; ``memory()`` gives bytes.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        verify: str | int | None = None,
        dynamic: bool | None = None,
        memory_budget: int | None = None,
        background: bool = False,
        fullgraph: bool = False,
    ) -> None:
        code = code_holder(function)
        if inspect.isgeneratorfunction(code) or inspect.iscoroutinefunction(code):
            raise TraceError(
                "jit: generators and coroutines cannot be captured as one step",
                {"function": function},
                "decorate the function that the generator calls, or return a list",
            )
        plain = function.__func__ if isinstance(function, MethodType) else function  # which has the names of a method
        functools.update_wrapper(self, function, assigned=names_of(plain), updated=())
        self.function = function
        self.methods = Methods(self)
        self.name = self.__dict__.get("__name__", type(function).__name__)
        self.verify, self.memory_budget, self.background, self.fullgraph = verify, memory_budget, background, fullgraph
        self.is_measured = False  # whether the call in hand ends where its step would run
        self.roots: dict[Key, Captures] = {}
        self.open_numbers, self.open_sizes = OpenNumbers(), OpenSizes(dynamic)
        self.rebinding: Rebinding | None = None
        self.pieces = Pieces(self)
        self.gathering, self.lengths = Gathering(), Lengths()
        self.themselves = GivenThemselves()
        self.attributes: set[str] = set()  # of tensor arguments that are asked for
        self.counts = JitStats()
        self.stepped = SteppedBodies(self.counts.note)
        self.newest: CompiledStep | None = None
        self.timed: Timing | None = None  # what `timing` was asked for last
        self._installed: list[Callable[..., Any] | None] = [None] * MODES
        self.comparison = None if verify is None else Comparison(self, verify)
        self._entries: list[Callable[..., Any] | None]
        self._entries = self._installed if verify in (None, "first") else [self.comparison] * MODES
        self.natives, self.forgetting = NativeCalls(), Forgetting()
        self.payoff = Payoff(self.natives)
        self._recent: list[tuple[NativeStep, ...]] = [() for _ in self._installed]  # replaced, never changed
        self._decided: list[tuple[DecidedCalls, ...]] = [() for _ in self._installed]  # those that began last, likewise
        self._released: frozenset[tuple[int, Any]] = frozenset()  # places that were arguments and are state
        self.looks_at_arrays = False  # whether the function does something with arrays that NumPy does
        self._lock = new_lock()

    def __call__(self, *args: object, **kwargs: object) -> Any:
        now = state.__dict__
        try:
            if now["trace"] is not None or now["layers"] or now["detour"] is not None or config.disable:
                return self._slow(*args, **kwargs)
            entry = self._entries[now["grad_enabled"] + 2 * now["inference"]]
            if entry is None:
                return self._slow(*args, **kwargs)
            return entry(*args, **kwargs) if kwargs else entry(*args)  # the empty dictionary costs as much as the rest
        except BaseException as error:
            trim(error)
            raise

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        known = self.methods.kept.get(id(instance))
        return self.methods.of(instance, owner) if known is None else known[1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["function"], name)  # ``jit(model).parameters()``

    def options(self) -> dict[str, Any]:
        """What ``jit`` was given besides the function."""
        options = {"verify": self.verify, "dynamic": self.open_sizes.dynamic, "memory_budget": self.memory_budget}
        return {**options, "background": self.background, "fullgraph": self.fullgraph}

    def of(self, function: Callable[..., Any]) -> JitFunction:
        """Another function compiled with the same options."""
        return JitFunction(function, **self.options())

    def _beside(self, function: Callable[..., Any]) -> JitFunction:
        """What goes on outside of this function's calls, compiled: it is compared with nothing of the user's."""
        return JitFunction(function, **{**self.options(), "verify": None})

    def as_module(self) -> Any:
        """What the user gets: for a module that is compiled, a module."""
        made = getattr(type(self.function), "_of_jitted", None)
        return self if made is None else made(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> JitFunction:
        """Steps are bound to the state of the original; a copy captures its own."""
        return self.of(copy.deepcopy(self.function, memo))

    def __reduce__(self) -> Any:
        if isinstance(self.function, MethodType):
            return getattr, (self.function.__self__, self.name)
        module = self.__dict__.get("__module__")
        is_known = found_by_name(module, self.__dict__.get("__qualname__")) is self and not is_taken_along(module)
        return (
            self.__dict__["__qualname__"] if is_known else (functools.partial(jit, **self.options()), (self.function,))
        )

    def __repr__(self) -> str:
        return f"<jit {self.name}: {self.counts.captures} capture(s)>"

    def _refused(self, *args: object, **kwargs: object) -> Any:
        """The step of the last call does not fit; one of those before may, without Python looking at every guard."""
        handed = by_another(self, args, kwargs)
        return self._slow(*args, **kwargs) if handed is None else handed.result

    def _called(self, native: NativeStep | DecidedCalls) -> Callable[..., Any]:
        """Native steps as a function of the user's arguments."""
        around = None if self.rebinding is None else self.rebinding.around
        call = native.call if around is None else around(native, self._as_given, self._slow)
        return self.themselves.around(call)

    # -- a call through Python

    def _slow(self, *args: object, **kwargs: object) -> Any:
        now = state.__dict__
        if config.disable or now["trace"] is not None or now["detour"] in BY_PYTHON:
            return self.function(*args, **kwargs)
        if now["layers"]:
            return now["layers"][-1].around_compiled(self, args, kwargs)
        args, kwargs = self.themselves.begin(args, kwargs)
        outcome: Ran | Eagerly | None = None  # left so by a call that is made inside of a native call of the function
        with UNLESS_REENTERED, alone(self._lock, self.natives):
            outcome = settled(self, args, kwargs, carried(self.function))
        if isinstance(outcome, Ran):
            return outcome.result
        if outcome is not None:
            note_reason(self, outcome)
            args, kwargs = self._as_given(args, kwargs)
            del outcome  # it keeps alive what the attempt has made
        with self.pieces.inside():
            return self.function(*args, **kwargs)

    def _run(self, call: Call) -> Outcome:
        """Follow a call's decisions from the root to a step, capturing what is missing, and run the step."""
        assert not config.check or is_mine(self._lock), "steps are looked for without the function's lock"
        call.epoch = int(guard_epoch[0])  # before any guard is looked at: what changes from now on counts
        root = self._root(call)
        branch = root.branch
        arrays: list[Any] | None = None
        while True:
            if root.compiling and (otherwise := take_over(self, root, branch, call)) is not None:
                return otherwise
            node = self._find(branch, call)
            if node is None:
                try:
                    node = profiled(f"capture {self.name}", "capture", self._capture, call, root, branch)
                finally:
                    call.leave_unused(branch, root.compiling)
                arrays = None
            if not isinstance(node, Decision | CompiledStep):
                return node
            if arrays is None:
                arrays = (node.capture if not call.path else call.path[0].capture).arrays(call.leaves)
            if isinstance(node, CompiledStep):
                return self._finish(node, call, root, arrays)
            outcome = node.decide(arrays)
            call.path.append(node)
            call.outcomes.append(outcome)
            branch = node.children.setdefault(outcome.key, [])

    def _finish(self, step: CompiledStep, call: Call, root: Captures, arrays: Sequence[Any]) -> Ran | ToCompare:
        if self.is_measured:
            raise Measured(step, memory_of(step, arrays))
        expect_one_part(self, step)
        if self.comparison is not None and self.comparison.is_wanted(step):
            return ToCompare(self.comparison)
        result = call.run(step, arrays)
        self.payoff.by_python += 1
        self.gathering.note(step, call.leaves)
        install(self, root, step, call)
        if step.capture.modes_left is not None:
            set_modes(step.capture.modes_left)
        return Ran(result)

    def _mode(self) -> int:
        return state.grad_enabled + 2 * state.inference + MODES * state.anomaly * (1 + state.anomaly_check_nan)

    def _key(self, call: Call) -> Key:
        bound = tuple((k, id(call.leaves[k])) for k in sorted(call.bound))  # a capture keeps them alive
        return (self._mode(), state.autocast, bound), signature(
            call.leaves, call.tree, self.open_numbers.among(call.tree), call.shapes, self.attributes
        )

    def _root(self, call: Call) -> Captures:
        call.shapes, call.sizes = {}, {}
        found = self.roots.get(key := self._key(call))
        if found is None and not call.is_fixed:
            call.shapes, call.sizes = self.open_sizes.shapes(call.tree, call.leaves, call.bound)
            key = self._key(call) if call.shapes else key
            found = self.roots.get(key)
        if found is None:
            alike = [old for mode, old in newest(self.roots) if mode == key[0]]
            if self.open_numbers.begin(alike, key[1], call.leaves):
                return self._root(call)
            if self.open_numbers.widen(call.tree, call.leaves) or self.open_numbers.notice(alike, key[1], call.leaves):
                self.counts.note(self._difference(key))
                return self._root(call)
            if not call.is_fixed and self.open_sizes.notice(alike, key[1]):
                self.counts.note(self._difference(key))
                call.has_opened = True
                return self._root(call)
            if self.roots and not call.has_opened:
                self.counts.note(self._difference(key))
            found = self.roots[key] = Captures()
            make_room(self, key)
            self.payoff.kinds = len(self.roots)
        found.used_at = self.counts.calls
        return found

    def _difference(self, key: Key) -> str:
        tree = key[1][0]
        names = leaf_names(self.function, tree) if self.rebinding is None else self.rebinding.leaf_names(tree)
        return difference_from(tuple(newest(self.roots)), key, names)

    def _find(self, branch: Branch, call: Call) -> Decision | CompiledStep | BeginsAgain | None:
        """The alternative of a branch that serves the call, if there is one."""
        answers: Decided = {}
        before = call.path[-1].capture if call.path else None
        for node in branch:
            if node.capture is before:  # whose guards hold: what follows has read no more
                reason = node.failure_after_another(call.leaves)
            else:
                broken = broken_number(node.capture, call.leaves, answers)  # first: there may be many ways of these
                reason = str(broken) if broken else broken_guard(node.capture.guards)
                reason = reason or node.capture.broken_size(call.sizes) or node.failure(call.leaves)
            if reason is None:
                return (node.overlaps.check(call.leaves) if isinstance(node, CompiledStep) else None) or node
            self.counts.note(reason)
        return None

    # -- capturing

    @uncollected()
    def _capture(self, call: Call, root: Captures, branch: Branch) -> Decision | CompiledStep | Outcome:
        """Capture what follows the decisions of this call; the first new node, which fits the call by construction."""
        if id(branch) in root.compiling:
            return eagerly(self)
        is_free = self.fullgraph or self.is_measured
        if not is_free and self.payoff.waits(root, branch, call.path, call.outcomes, call.leaves):
            why: LineByLine = InVain(self.payoff.in_vain())
            return Eagerly(warned(self.name, why, root, self.counts.reasons) if call.path else why)
        if root.captures >= CAPTURE_LIMIT:
            return Eagerly(warned(self.name, too_many(self.name, root), root, self.counts.reasons))
        root.begin(call.leaves)
        self.payoff.begun += 1
        self.lengths.notice(root)
        changing = changing_values(root)
        if changing is not None:
            return changing
        start = time.perf_counter()
        compile_ahead()
        try:
            capture = general_capture(call, self._trace, self.open_sizes, self.counts.note)
        except BaseException as error:
            self._learn_from(error, call)
            otherwise = root.give_up(error, self.counts.note)
            if isinstance(error, LineByLine) and self.open_numbers.end_trials(call.tree, None, self.roots):
                return again_with(call.drawn, BeginsAgain())
            if otherwise is None:
                raise
            return otherwise
        if not isinstance(capture, Capture):
            root.captures -= 1
            return capture
        require_same_program(capture.trace)
        traced = time.perf_counter()
        numbers = self.open_numbers
        if numbers.end_trials(call.tree, capture, self.roots) or numbers.give_up(call.tree, capture, self.counts.note):
            root.captures -= 1
            capture.trace.finish()
            return BeginsAgain()
        if self.background and not self.is_measured:
            return begin(self, root, branch, capture, call, traced - start)
        try:
            with noticed(self.name):
                made = build_path(capture, branch, call.path, Options(root.forms, self.memory_budget))
        except (UndecidedSizeError, SpecializeSize) as error:
            remove(branch, capture)
            return self.open_sizes.give_up(capture.trace, getattr(error, "symbols", ()), str(error), self.counts.note)
        except BaseException:
            remove(branch, capture)
            raise
        finally:
            capture.trace.finish()
        step = made[-1]
        assert isinstance(step, CompiledStep)
        self.newest = step
        self.payoff.captured(step)
        warn_if_missed(self, step, capture.arrays(call.leaves))
        self.counts.add(made, traced - start, time.perf_counter() - traced)
        return step.overlaps.check(call.leaves) or made[0]  # the step is right for other arguments at least

    def _learn_from(self, error: BaseException, call: Call) -> None:
        """A capture was given up: what the next ones are to know."""
        self.looks_at_arrays |= isinstance(error, OfNumPy | CopiedArguments)
        if isinstance(error, ChangesItself):
            given = call.given if self.rebinding is None else call.given[0][-2:]
            if self.themselves.changed(error.places, *given):
                self.counts.forget(error.settle())

    def _as_given(self, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        """The arguments of a call that runs line by line."""
        args, kwargs = self.themselves.unwrapped(args, kwargs)
        return (args, kwargs) if self.looks_at_arrays else with_tensors(args, kwargs)

    def _trace(self, call: Call, shift: int = 0) -> Capture:
        trace = call.begin(Trace(call.outcomes, call.sizes, self.open_sizes.are_counts_fixed, shift))
        made = make_leaves(trace, call.leaves, self.open_numbers.among(call.tree), call.bound, call.shapes)
        args, kwargs = call.tree.unflatten(given := given_to_function(made, call.leaves))
        rebinding = self.rebinding
        first = 0 if rebinding is None else rebinding.first_argument(call.tree)
        baked = {
            f"argument {k - first}": plain(e.original) for k, e in enumerate(made) if e.kind in ("object", "bound")
        }
        observer, snapshot = observed(self.function, rebinding, baked, made, call.leaves, self.attributes)
        observer.nests = ArgumentNests(args, kwargs, call.tree, given, () if rebinding is None else (0,))
        trace.told, trace.met_outside = observer.deferred, lambda: (*observer.outside.values(), *trace.reached)
        trace.stepped, observer.lengths = self.stepped, self.lengths
        try:
            set_trace(trace)
            with recording(trace), with_drawn(observer, call):
                with followed(trace, observer, made, call.leaves):
                    args, kwargs = self.themselves.given(args, kwargs, 0 if rebinding is None else 2)
                    result = (rebinding or self.function)(*args, **kwargs)
                apart = told_apart(made, call.leaves, observer.told_apart)  # first: places may be named by an identity
                snapshot.check(rebinding, call, result)
                observer.nests.check()
                outputs, tree = let_out(result, observer.outside, observer.nests.paths)
                guards = observer.all_guards(outputs, () if rebinding is None else rebinding.locations)
                capture = Capture(trace, made, call.tree, outputs, with_plain_keys(tree), guards)
                if rebinding is not None:
                    rebinding.plans.learn(capture, observer.decided, call.given[0])
                    rebinding.learn(observer, *call.given[0][-2:])
            capture.unguarded, capture.apart = observer.unguarded, apart
            capture.modes_left = snapshot.modes_left()
        finally:
            self.looks_at_arrays |= trace.looks_at_arrays
            snapshot.leave(trace)  # after an error too
        call.check_untorn(capture.guards)  # but for histories: one that this capture has freed is not to be met again
        leaves = [*trace.reached, *(entry.leaf for entry in trace.grads.values())]
        capture.guards += hook_guards(leaves) + history_guards(trace.passed)
        return capture

    @property
    def _is_alone(self) -> bool:
        """Whether something comes between a call and its step, so that no step hands a call on to another one."""
        return self.rebinding is not None or self.comparison is not None


def jit(
    function: Callable[..., Any] | None = None,
    *,
    verify: str | int | None = None,
    dynamic: bool | None = None,
    memory_budget: int | None = None,
    background: bool = False,
    fullgraph: bool = False,
    mode: str | None = None,
) -> Any:
    """Compile a function of tensors: the whole step, with ``backward`` and optimiser, becomes one native call.

    Args:
        function: any Python function over Tensors, arrays, numbers and nests of them; state it reaches (parameters,
            buffers, optimiser state) is updated in place.
        verify: compare with eager execution: "first" what was newly compiled, "always" every call, n every n-th.
        dynamic: None leaves the sizes of arguments open that change from call to call, True all of them from the
            first call on, False none.
        memory_budget: bytes that the temporaries of a step may take: what the backward pass reads is computed again
            instead of kept, as far as needed for that. Warns where it is not enough; ``memory()`` tells what is taken.
        background: compile on another thread; until a step is ready, calls run eagerly, which ``stats()`` counts.
        fullgraph: a call that is not one step (it would run line by line, or Python decides on values) is an error.
        mode: torch's names of trades between compile time and speed are accepted; there is one.

    Raises:
        RuntimeError: an unknown ``mode``.
        TraceError: the function does something a capture cannot hold; the message says what to write instead.

    Example:
        >>> import autojit as aj
        >>> @aj.jit
        ... def double(x):
        ...     return x * 2
        >>> double(aj.tensor([1.0, 2.0]))
        tensor([2., 4.])
    """
    check_option(verify)
    check_budget(memory_budget)
    check_mode(mode)
    options: Any = {"verify": verify, "dynamic": dynamic, "memory_budget": memory_budget, "background": background}
    options["fullgraph"] = fullgraph
    again = functools.partial(jit, **options)
    if function is None:
        return again
    made = distributed(function, again)
    return JitFunction(function, **options).as_module() if made is None else made
