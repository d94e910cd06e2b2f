"""Anomaly mode: a node of the backward pass that fails, or gives NaN, tells where its forward op was called.

How to read: while the mode is on, ``here`` gives every node a ``ForwardCall``: the user's stack, and the node that was
running when the op was recorded. The engine runs nodes through ``guarded`` and whole passes through ``watched``. A
gradient with numbers is checked at once; in a capture the check becomes a value of the graph, and the pass ends with
one decision of the step: whether any gradient was NaN. With the mode off, nothing of this is recorded or compiled.
"""

from __future__ import annotations

import functools
import linecache
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from autojit.autograd.running import current_node
from autojit.core.device_array import host_copy
from autojit.core.errors import DifferentiationError, rounds_text
from autojit.core.locks import new_lock
from autojit.core.source import SourceLocation, is_own, set_recorder
from autojit.core.user_warnings import warn, warn_beside_error
from autojit.dispatch.dispatch import apply
from autojit.functions.shape import stack
from autojit.history.op_node import OpNode
from autojit.ops.requirements import RequireNumbers
from autojit.tensor import Tensor
from autojit.tensor.node import ZERO, Node
from autojit.tensor.state import detour_of_modes, grad_mode, holders, state, with_layers
from autojit.tensor.tensor import type_of

T = TypeVar("T")

_switch = new_lock()
_threads_on = 0  # threads whose mode is on


@functools.cache
def _libraries() -> tuple[str, ...]:
    """Where code is that is not the user's; ``sysconfig`` is imported now, as few programs ask."""
    from sysconfig import get_path

    return (*{get_path(p) for p in ("stdlib", "platstdlib", "purelib", "platlib")}, "<frozen")


class ForwardCall(SourceLocation):
    """A user's line with the calls that led to it, outermost first, and the node that was running then, if any.

    ``rounds``: of the loops that the line was in, or the line of the forward op that it goes back to.
    """

    __slots__ = ("calls", "parent", "rounds")

    def __init__(self, frame: FrameType, parent: Node | None) -> None:
        super().__init__(frame.f_code, frame.f_lasti)
        self.calls = _calls(frame)
        self.parent = parent
        now = state.trace  # a capture is used again in other rounds of the loops around it
        rounds = tuple([number for trace, number in state.rounds if trace is now])
        self.rounds: tuple[int, ...] = rounds or getattr(getattr(parent, "source", None), "rounds", ())

    def text(self) -> str:
        """The stack as a traceback shows it."""
        lines: list[str] = []
        for code, instruction in self.calls:
            place = SourceLocation(code, instruction)
            lines.append(f'  File "{place.file}", line {place.line}, in {place.function}\n')
            source = linecache.getline(place.file, place.line).strip()
            if source:
                lines.append(f"    {source}\n")
        return "".join(lines)


def _calls(frame: FrameType) -> tuple[tuple[CodeType, int], ...]:
    found = [(frame.f_code, frame.f_lasti)]
    outer = frame.f_back
    while outer is not None:
        code = outer.f_code
        if not is_own(code) and not code.co_filename.startswith(_libraries()):
            found.append((code, outer.f_lasti))
        outer = outer.f_back
    return tuple(reversed(found))


def _recorded(frame: FrameType) -> SourceLocation:
    if not state.anomaly:
        return SourceLocation(frame.f_code, frame.f_lasti)
    return ForwardCall(frame, current_node())


class Check(NamedTuple):
    """A check of a captured pass: ``is_nan`` tells whether gradient ``number`` of ``node`` has a NaN."""

    is_nan: Tensor
    node: Node
    number: int


def is_watching() -> bool:
    """Whether backward passes of this thread look for NaN."""
    return state.anomaly and state.anomaly_check_nan


@contextmanager
def in_round(number: int) -> Iterator[None]:
    """Inside, forward ops are of this round of a loop that Python walks: reports tell it."""
    before = state.rounds
    if state.anomaly:
        state.rounds = (*before, (state.trace, number))
    try:
        yield
    finally:
        state.rounds = before


# -- running nodes


def guarded(node: Node, grads: list[Any], wanted: tuple[bool, ...]) -> Sequence[Any]:
    """Run a node; under anomaly mode explain exceptions and refuse NaN results."""
    now = state.__dict__
    if not now["anomaly"]:
        return node.run(grads, wanted)
    try:
        results = node.run(grads, wanted)
    except Exception as error:
        if not (isinstance(error, DifferentiationError) and "derivative" in error.facts):  # else a NaN, reported
            report(node)
        raise
    if now["anomaly_check_nan"]:
        _check(node, grads, results)
    return results


def watched(run: Callable[[Any], T], roots: Any) -> T:
    """A whole backward pass; in a capture, what it found is decided on at its end."""
    if state.trace is None or "checks" in state.__dict__:
        return run(roots)
    with collected([]) as checks:
        try:
            return run(roots)
        finally:
            _decide(checks)


@contextmanager
def collected(checks: list[Check]) -> Iterator[list[Check]]:
    """Captured checks inside go to ``checks``, and nothing is decided."""
    now = state.__dict__
    before = now.get("checks")
    now["checks"] = checks
    try:
        yield checks
    finally:
        if before is None:
            del now["checks"]
        else:
            now["checks"] = before


def _check(node: Node, grads: list[Any], results: Sequence[Any]) -> None:
    for number, grad in enumerate(results):
        if grad is None or grad is ZERO or not type_of(grad).dtype.is_differentiable:
            continue
        grad = grad._differentiated()
        grad = [grad, *holders(grad)][-1]  # in a batch: with the values of all its elements
        if grad._array is None:
            with grad_mode(False), with_layers(()):
                state.__dict__["checks"].append(Check(grad.isnan().any(), node, number))
        elif bool(np.isnan(host_copy(grad._array)).any()):
            if isinstance(node, OpNode) and hasattr(node.op, "culprit"):
                primals = [node._unpack(entry, place) for place, entry in enumerate(node.primals)]
                node, number = node.op.culprit(primals, grads) or (node, number)
            raise nan_error(node, number)


def _decide(checks: list[Check]) -> None:
    """Split the capture by whether any gradient was NaN, and raise where one was."""
    trace = state.trace
    if not checks or trace is None:
        return
    if trace.runs_often:
        require_numbers(checks, ())
        return
    with grad_mode(False):
        found = stack([c.is_nan for c in checks]).any()
    if not bool(found):
        return
    for check in checks:
        if bool(check.is_nan):
            raise nan_error(check.node, check.number)
    raise DifferentiationError(
        "compiled code gave a NaN in a gradient where NumPy gives none",
        {"op": f"one of {', '.join(sorted({c.node.name() for c in checks}))}"},
        "run the function inside `with autojit.eager():` and compare",
    )


# -- telling


def order_of(node: Node) -> int:
    """The order of the derivative that a node computes: 1, or one more than that of the node that recorded it."""
    parent = getattr(node.source, "parent", None)
    return 1 if parent is None else 1 + order_of(parent)


def nan_error(node: Node, number: int) -> DifferentiationError:
    """The error for a NaN in a result of a node, which is reported first."""
    report(node)
    forward = _forward_call(node)
    facts: dict[str, object] = {"forward op": forward} if forward else {}
    facts["derivative"] = f"of order {order_of(node)}"
    rounds = getattr(node.source, "rounds", ())
    if rounds:
        facts["round"] = rounds_text(rounds)
    return DifferentiationError(_refusal(node, number), facts)


def require_numbers(checks: Sequence[Check], given: Sequence[Tensor]) -> None:
    """Make checks conditions of the body that is being captured: of each round, however often the body is run.

    A NaN among the cotangents ``given`` is not the body's: it is reported where it was made.
    """
    if not checks:
        return
    with grad_mode(False), with_layers(()):
        came = [bar.isnan().any() for bar in given]
        for check in checks:
            node, refusal = check.node, _refusal(check.node, check.number)
            rounds, texts = getattr(node.source, "rounds", ()), tuple(reports(node))
            op = RequireNumbers(refusal, "differentiation", _forward_call(node), order_of(node), rounds, texts)
            apply(op, stack([~check.is_nan, *came]).any())


def _refusal(node: Node, number: int) -> str:
    return f"Function '{node.name()}' returned nan values in its {number}th output."


def _forward_call(node: Node) -> str:
    """The forward op and its line, as messages say them; nothing where the line is not known."""
    return "" if node.source.code is None else f"{_forward_name(node)} at {node.source.file}:{node.source.line}"


def _forward_name(node: Node) -> str:
    if isinstance(node, OpNode):
        return node.op.shown_name
    function = getattr(node, "_forward_cls", None)
    return node.name() if function is None else function.__name__


def report(node: Node) -> None:
    """Warn with the stack of the forward op of a node, and of each node that led to it being recorded."""
    for text in reports(node):
        warn_beside_error(text)


def reports(node: Node) -> list[str]:
    """The warnings that tell of a node."""
    place = node.source
    name = node.name()
    if not isinstance(place, ForwardCall):
        return [
            f"Error detected in {name}. No forward pass information available. Enable detect anomaly during forward "
            "pass for more information."
        ]
    found = [
        f"Error detected in {name}. Traceback of forward call that caused the error:\n{place.text()}"
        f"  (derivative of order {order_of(node)})"
    ]
    parent = place.parent
    while parent is not None:
        outer, induced = parent.source, f"Previous calculation was induced by {parent.name()}."
        if not isinstance(outer, ForwardCall):
            missing = "No forward pass information is available for it: detect anomaly was off when it was recorded."
            return [*found, f"{induced} {missing}"]
        found.append(f"{induced} Traceback of forward call that induced the previous calculation:\n{outer.text()}")
        parent = outer.parent
    return found


# -- the switch


def set_anomaly_enabled(mode: object, check_nan: object = True) -> None:
    """Switch anomaly mode of this thread on or off."""
    global _threads_on
    if not isinstance(mode, bool) or not isinstance(check_nan, bool):
        raise TypeError(f"anomaly mode is switched by bools, not {type(mode).__name__} and {type(check_nan).__name__}")
    with _switch:
        _threads_on += mode - state.anomaly
        set_recorder(_recorded if _threads_on else None)
    state.anomaly, state.anomaly_check_nan = mode, check_nan
    if mode:
        state.detour = state.detour or "anomaly"
    elif state.detour == "anomaly":
        state.detour = detour_of_modes() if state.observer is None else "observed"


class detect_anomaly:
    """Context manager: backward passes inside refuse NaN, and explain failures by the lines of the forward pass.

    Forward passes must run inside too, so that their lines are kept. Eager and compiled steps are checked alike. It is
    slow: for debugging only. ``check_nan=False`` only explains exceptions.

    Example:
        >>> import autojit as aj, warnings
        >>> x = aj.tensor([-1.0], requires_grad=True)
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")
        ...     with aj.autograd.detect_anomaly():
        ...         x.sqrt().sum().backward()
        Traceback (most recent call last):
            ...
        autojit.core.errors.DifferentiationError: Function 'SqrtBackward0' returned nan values in its 0th output.
        ...
    """

    def __init__(self, check_nan: bool = True) -> None:
        self.check_nan = check_nan
        self.before = (state.anomaly, state.anomaly_check_nan)
        warn(
            "Anomaly Detection has been enabled. It slows down every backward pass; use it for debugging only.",
            UserWarning,
        )

    def __enter__(self) -> None:
        set_anomaly_enabled(True, self.check_nan)

    def __exit__(self, *exception: object) -> None:
        set_anomaly_enabled(*self.before)


class set_detect_anomaly:
    """Switch anomaly mode on or off: as a function, or as a context manager that restores it.

    Example:
        >>> import autojit as aj
        >>> with aj.autograd.set_detect_anomaly(True):
        ...     aj.is_anomaly_enabled()
        True
        >>> aj.is_anomaly_enabled()
        False
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self.before = (state.anomaly, state.anomaly_check_nan)
        set_anomaly_enabled(mode, check_nan)

    def __enter__(self) -> None:
        """The mode was switched when the object was made."""

    def __exit__(self, *exception: object) -> None:
        set_anomaly_enabled(*self.before)


def is_anomaly_enabled() -> bool:
    """Whether anomaly mode is on in this thread."""
    return state.anomaly


def is_anomaly_check_nan_enabled() -> bool:
    """Whether anomaly mode looks for NaN."""
    return state.anomaly_check_nan
