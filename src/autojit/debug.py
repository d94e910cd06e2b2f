"""Ways out of a step: users' functions and prints that see its values while it runs, under JAX's names; and what became
of eager backward passes.

In eager mode they happen at once. In a compiled step they are ops that the step calls back, once for each time the
program comes by, in its order, also in the bodies of branches and loops; the step stays one native call, and no capture
depends on what they do. They are given copies that are theirs to keep.
"""

from __future__ import annotations

import builtins
import contextvars
import operator
import string
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from autojit.autograd.known_rules import rules_as_written
from autojit.core.sizes import is_symbolic
from autojit.dispatch.dispatch import apply
from autojit.functions import factories
from autojit.jit.instrumented_code import as_written
from autojit.jit.known_passes import passes
from autojit.jit.made_functions import as_made
from autojit.jit.places import cell_content, is_a
from autojit.jit.pytree import flatten
from autojit.jit.traced_number import TracedNumber
from autojit.ops.host_calls import HostCall, HostFunction
from autojit.tensor.state import grad_mode, state
from autojit.tensor.tensor import Tensor, wrap

__all__ = ["callback", "explain_backward", "print"]

_PLAIN = (builtins.str, builtins.int, builtins.float, builtins.bool, builtins.complex, builtins.bytes, type(None))


def callback(callback: Callable[..., Any], *args: Any, ordered: bool = False, **kwargs: Any) -> None:
    """Call ``callback(*args, **kwargs)`` with the values that tensors and numbers of the step have.

    Tensors arrive as tensors of the host without history, in memory of their own. What is given back is dropped. An
    exception reaches the caller of the step, which leaves everything as it was before the call. A function of the step
    itself cannot read the step's tensors: pass them.

    Args:
        ordered: as in JAX; here calls are always in the program's order.
    """
    _call_out("debug.callback", callback, args, kwargs, _Same(callback))


def print(fmt: str, *args: Any, ordered: bool = False, **kwargs: Any) -> None:
    """Print ``fmt.format(*args, **kwargs)`` with the values that tensors and numbers of the step have.

    Args:
        ordered: as in JAX; here prints are always in the program's order.

    Raises:
        ValueError: an argument is not in the format, as where an f-string was passed.
        IndexError, KeyError: the format names one that is not there.
    """
    _Checker().check(fmt, args, kwargs)
    _call_out("debug.print", partial(_print, fmt), args, kwargs, fmt)


def explain_backward() -> str:
    """What became of the backward passes of eager loops, a line of text for each of the program's that begins some.

    A pass that comes again and again is compiled beside and from then on is one native call; what keeps a line's passes
    with the engine (hooks, kept gradients, ``create_graph``, lines that never repeat) is said. Passes of lines that
    have begun fewer than 16 are not looked at, and neither are those that came with ``create_graph``. The engine itself
    traces derivative rules that come again and again; the last lines say of which ops that failed, and why.

    Example:
        >>> import autojit as aj
        >>> w = aj.ones(3, requires_grad=True)
        >>> for _ in range(40):
        ...     y = w * 2
        ...     handle = y.register_hook(lambda grad: None)
        ...     y.sum().backward()
        >>> said = aj.debug.explain_backward()  # "train.py:7: 0 of 24 passes ... native"
        >>> said[said.rindex("the engine's") :]  # doctest: +ELLIPSIS
        "the engine's: MulBackward0 (...) has hooks..."
    """
    return "\n".join([*map(str, passes.lines.values()), *rules_as_written()])


def _print(fmt: str, *args: Any, **kwargs: Any) -> None:
    builtins.print(fmt.format(*args, **kwargs))  # noqa: T201  (what it is for)


def _of_step(taken: Callable[..., None], outside: Mapping[int, Any]) -> Callable[..., None]:
    """What users' code calls while a step is captured: functions of the step keep what they close over then."""

    def call(function: Any, *args: Any, **kwargs: Any) -> None:
        taken(as_made(function, outside), *args, **kwargs)

    return call


# what a capture calls instead of these, and does not guard the contents of their arguments
callback.of_step = partial(_of_step, callback)  # type: ignore[attr-defined]
print.of_step = lambda outside: print  # type: ignore[attr-defined]


class _Checker(string.Formatter):
    """Finds what a format does not fit, without formatting anything."""

    def check(self, fmt: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.vformat(fmt, args, kwargs)

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> tuple[Any, Any]:
        first = string._string.formatter_field_name_split(field_name)[0]  # type: ignore[attr-defined]
        self.get_value(first, args, kwargs)
        return "", first

    def convert_field(self, value: Any, conversion: Any) -> Any:
        return value

    def format_field(self, value: Any, format_spec: str) -> str:
        return ""

    def check_unused_args(self, used_args: Any, args: Any, kwargs: Any) -> None:
        unused = [
            *(repr(k) for k in range(len(args)) if k not in used_args),
            *(k for k in kwargs if k not in used_args),
        ]
        if unused:
            raise ValueError(
                f"debug.print: arguments {', '.join(unused)} are not in the format; "
                "pass a format with {} and its arguments, not an f-string"
            )


# -- the call


def _call_out(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], what: object
) -> None:
    leaves, tree = flatten((args, kwargs))
    with grad_mode(False):
        if state.trace is None and not state.layers:
            found, named = tree.unflatten([_copy(leaf) for leaf in leaves])
            function(*found, **named)
            return
        operands: list[Tensor] = []
        kinds = [_operand(leaf, operands) for leaf in leaves]
        rest = [_Same(leaf) for leaf, kind in zip(leaves, kinds, strict=True) if kind is None]
        made = _Call(function, leaves, kinds, tree)
        op = HostCall(HostFunction(name, made, (name, what, tree, tuple(kinds), tuple(rest))))
        apply(op, *(operands or [factories.zeros((), device="cpu")]))


def _copy(leaf: Any) -> Any:
    return leaf.detach().to("cpu", copy=True) if is_a(leaf, Tensor) else leaf


def _operand(leaf: Any, operands: list[Tensor]) -> Any:
    """What kind of thing a value of the step is, which becomes an operand; None: no value of the step."""
    if is_a(leaf, Tensor):
        operands.append(leaf.detach())
        return Tensor
    trace: Any = state.trace
    if is_symbolic(leaf) and trace is not None:
        leaf = trace.size_number(leaf)
    if type(leaf) is TracedNumber:
        operands.append(leaf.as_operand())
        return leaf.kind
    return None


class _Call:
    """Calls a function with arrays in the place of the step's values among its arguments."""

    def __init__(self, function: Callable[..., Any], leaves: Sequence[Any], kinds: Sequence[Any], tree: Any) -> None:
        self.function, self.kinds, self.tree = function, tuple(kinds), tree
        self.rest = [leaf for leaf, kind in zip(leaves, kinds, strict=True) if kind is None]

    def __call__(self, *arrays: Any) -> None:
        values, rest = iter(arrays), iter(self.rest)
        leaves = [next(rest) if kind is None else _value(next(values), kind) for kind in self.kinds]
        args, kwargs = self.tree.unflatten(leaves)
        quiet, run = state.quiet, state.run
        state.quiet = contextvars.copy_context()  # this one may be in use: by an eager rule that led here
        state.quiet.run(np.seterr, all="ignore")
        state.run = state.quiet.run
        try:
            self.function(*args, **kwargs)
        finally:
            state.quiet, state.run = quiet, run


def _value(array: Any, kind: type) -> Any:
    return wrap(np.array(array)) if kind is Tensor else kind(np.asarray(array).item())


class _Same:
    """A function or a constant, equal to others that do the same wherever they are called."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __hash__(self) -> int:
        return hash(type(self.value))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and _is_same(self.value, other.value)


def _is_same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, _PLAIN):
        return builtins.repr(a) == builtins.repr(b)
    if type(a) is MethodType:
        return a.__self__ is b.__self__ and _is_same(a.__func__, b.__func__)
    if type(a) is not FunctionType:
        return type(a).__name__ == "builtin_function_or_method" and bool(a == b)
    names = ("__globals__", "__defaults__", "__kwdefaults__")
    if as_written(a.__code__) != as_written(b.__code__) or not all(
        operator.is_(*map(operator.attrgetter(name), (a, b))) or getattr(a, name) == getattr(b, name) for name in names
    ):
        return False
    cells = zip(a.__closure__ or (), b.__closure__ or (), strict=True)
    return all(x is y or _is_same(cell_content(x), cell_content(y)) for x, y in cells)
