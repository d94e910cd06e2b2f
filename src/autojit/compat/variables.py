"""Variable as it was in 0.3: ``volatile``, a ``.grad`` that cannot be assigned and is zero for results.

How to read: results of Variables must be Variables, and volatile ones if any operand is, so a *layer* (``state.Layer``)
is between the ops of a thread and their computation from its first Variable on until its last one is gone.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from autojit.autograd.variable import leaf_of
from autojit.core.errors import UsageError
from autojit.dispatch.dispatch import apply
from autojit.dispatch.inplace import replace
from autojit.functions.factories import zeros_like
from autojit.ir.op import Op
from autojit.jit.pytree import flatten
from autojit.tensor import Tensor
from autojit.tensor.state import Layer, below, carry, grad_mode, set_layers, state
from autojit.tensor.storage import NORMAL

_grad_of_tensor: Callable[[Tensor], Tensor | None] = vars(Tensor)["grad"].fget


class Variable(Tensor):
    """A tensor with the rules of 0.3.

    ``volatile`` says that nothing computed from it is recorded: results of volatile Variables are volatile, whatever
    else takes part. ``.grad`` cannot be assigned; that of a result is zero.

    Args:
        data: a tensor, whose memory is shared, or a NumPy array.
        requires_grad: whether gradients are computed for it; by keyword only.
        volatile: whether nothing computed from it is recorded; by keyword only.

    Raises:
        TypeError: ``data`` is something else.
        ValueError: both flags are set.

    Example:
        >>> import autojit as aj
        >>> from autojit.compat.v0_3 import Variable
        >>> w = Variable(aj.ones(2), requires_grad=True)
        >>> x = Variable(aj.ones(2), volatile=True)
        >>> y = w * x
        >>> y.volatile, y.requires_grad
        (True, False)
    """

    __slots__ = ()
    _volatile = False  # an instance attribute once it is True

    def __new__(cls, data: Any = None, *, requires_grad: bool = False, volatile: bool = False) -> Any:
        """A leaf."""
        if requires_grad and volatile:
            raise ValueError("Variable can't be volatile and require_grad at the same time!")
        made = leaf_of(data, requires_grad)
        as_variable(made, volatile, cls)
        if not volatile:
            made.__dict__.pop("_volatile", None)
        return made

    @property
    def volatile(self) -> bool:
        """Whether nothing computed from this Variable is recorded; can be set on leaves."""
        return self._volatile

    @volatile.setter
    def volatile(self, value: bool) -> None:
        if not self.is_leaf:
            raise UsageError("volatile can only be set on leaf variables", {"variable": self}, "detach() it first")
        self._volatile = bool(value)
        if value:
            self.requires_grad = False

    @property
    def grad(self) -> Tensor | None:
        """The accumulated gradient; of a result that does not retain it, zero."""
        if self.is_leaf:
            return _grad_of_tensor(self)
        found = self._grad if self.retains_grad else None
        return zeros_like(self) if found is None else found

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            raise UsageError(
                "the gradient of a Variable cannot be assigned",
                {"variable": self},
                "write into it: v.grad.data.copy_(g)",
            )
        self._set_grad(None)

    def _stand_in(self, made: Tensor) -> Tensor:
        """See ``Tensor``."""
        found: Tensor = as_variable(made, self._volatile, type(self))
        return found

    if TYPE_CHECKING:  # attached by ``v0_3`` from the modules that define them

        def backward(self, *args: Any, **options: Any) -> None: ...


def as_variable(t: Any, volatile: bool = False, cls: type[Variable] = Variable) -> Any:
    """Turn a tensor object into a Variable, and see that what is computed from it becomes one."""
    t.__class__ = cls
    if volatile:
        t._volatile = True
    _layer().keep(t)
    return t


def is_volatile(t: Any) -> bool:
    """Whether nothing computed from ``t`` is recorded."""
    return isinstance(t, Variable) and t._volatile


class VariableLayer(Layer):
    """What makes results of Variables Variables, on one thread, while there are any."""

    what = "a thread that has Variables"

    def __init__(self) -> None:
        self.alive: dict[int, Any] = {}
        self.of_captures: dict[int, Any] = {}  # which keep them for good, long after the function has run
        self.thread = threading.get_ident()

    def keep(self, t: Tensor) -> None:
        """Stand in the way of ops until ``t`` is gone; of a captured function's, until that has run."""
        key, alive = id(t), self.of_captures if t._array is None else self.alive

        def forget(reference: Any, is_exiting: Callable[[], bool] = sys.is_finalizing) -> None:
            if is_exiting():
                return  # the modules that are asked below may be gone, this one's names too
            if alive.get(key) is reference:
                del alive[key]
            if not self._is_needed() and threading.get_ident() == self.thread:
                self._leave()

        alive[key] = weakref.ref(t, forget)
        if self not in state.layers:
            set_layers((self, *state.layers))

    def _is_needed(self) -> bool:
        return bool(self.alive) or (state.trace is not None and bool(self.of_captures))

    def _leave(self) -> None:
        if self in state.layers:
            set_layers(tuple(layer for layer in state.layers if layer is not self))

    # -- the layer

    def apply(self, op: Op, operands: Sequence[Tensor]) -> Any:
        """The op; its results are Variables if an operand is, volatile if an operand is.

        The last Variable may have gone while the layer was taken off, which it then could not leave.
        """
        if not self._is_needed():
            self._leave()
            return apply(op, *operands)
        volatile = any(is_volatile(t) for t in operands)
        with below(self), grad_mode(state.grad_enabled and not volatile):
            result = apply(op, *operands)
        if any(isinstance(t, Variable) for t in operands):
            for y in result if op.n_outputs != 1 else (result,):
                as_variable(y, volatile)
                if volatile and y._view is not None:
                    y._view.creation = NORMAL
        return result

    def call_function(
        self, cls: Any, arguments: Sequence[Any], options: dict[str, Any], call: Callable[..., Any]
    ) -> Any:
        """Call a custom function, with the same rules for its results."""
        given = [a for a in (*arguments, *options.values()) if isinstance(a, Variable)]
        volatile = any(is_volatile(t) for t in given)
        with below(self), grad_mode(state.grad_enabled and not volatile):
            called = call(cls, arguments, options)
        if given:
            for y in called.results:
                if type(y) is Tensor:
                    as_variable(y, volatile)
        return called

    def around_compiled(self, compiled: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call a compiled function, whose ops know nothing of Variables; its results are Variables if an argument is.

        While a volatile Variable is alive the function runs uncompiled, for the Variable may take part in it.
        """
        if any(is_volatile(reference()) for reference in list(self.alive.values())):
            return compiled.function(*args, **kwargs)
        with below(self):
            found = compiled(*args, **kwargs)
        if any(isinstance(x, Variable) for x in flatten((args, kwargs))[0]):
            for y in flatten(found)[0]:
                if type(y) is Tensor:
                    as_variable(y)
        return found

    def carry(self, source: Tensor, made: Tensor, with_history: bool) -> None:
        """``made`` is a Variable, and volatile, where ``source`` is."""
        if isinstance(source, Variable) and type(made) is Tensor:
            as_variable(made, source._volatile)
        with below(self):
            carry(source, made, with_history)

    def replace(self, x: Tensor, new: Tensor, method: str, old: Tensor | None, mark: int) -> None:
        """Write in place; a Variable that gets volatile values becomes volatile."""
        volatile = is_volatile(x) or is_volatile(new)
        with below(self), grad_mode(state.grad_enabled and not volatile):
            replace(x, new, method, old, mark)
        if volatile and isinstance(x, Variable):
            if x._view is None or x._view.base is None:
                x.detach_()
            x._volatile = True

    def shown(self, x: Tensor) -> list[str]:
        """What ``repr`` says of a volatile Variable."""
        return ["volatile=True"] if is_volatile(x) else []


class _Layers(threading.local):
    layer: VariableLayer | None = None


_layers = _Layers()


def _layer() -> VariableLayer:
    """This thread's layer."""
    found = _layers.layer
    if found is None:
        found = _layers.layer = VariableLayer()
    return found
