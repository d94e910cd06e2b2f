"""Attributes that users give to tensors (``x.scale = 3``): of arguments, and of tensors that a step makes.

Arguments are other tensors at every call. So what a step asks of their attributes is part of the signature of a call
(``asked``: the names), and what it assigns is assigned after every run. Those of tensors from outside are places like
others (``observed_writes.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autojit.jit.asked_attributes import ALL, UnsharedAttribute, is_of_class
from autojit.jit.made_objects import let_out
from autojit.jit.outcomes import BeginsAgain, Turned
from autojit.runtime.entry_spec import MISSING
from autojit.tensor.tensor import Tensor

if TYPE_CHECKING:
    from autojit.jit.arguments import ArgumentLeaf


class TensorAttributes:
    """What one capture reads and assigns of the attributes of arguments, and of tensors that it makes itself."""

    def __init__(self, defer: Callable[..., None]) -> None:
        self._is_asked = False
        self._defer = defer
        self._asked: set[str] = set()
        self._arguments: dict[int, tuple[Tensor, dict[str, Any]]] = {}  # stand-ins, and what the step has left there
        self._assigned: set[tuple[int, str]] = set()  # to those
        self._flags: dict[int, bool] = {}  # whether leaves among the stand-ins require gradients, as far as is told
        self._made: dict[int, tuple[Tensor, dict[str, None]]] = {}  # others, with the names that it has assigned

    def begin(self, arguments: Sequence[ArgumentLeaf], leaves: Sequence[Any], asked: set[str]) -> None:
        """Stand-ins get the attributes that are known to be asked for."""
        self._asked = asked
        for leaf, given in zip(arguments, leaves, strict=True):
            shell = leaf.shell
            if leaf.kind == "tensor" and shell is not None:
                held = vars(given) if isinstance(given, Tensor) else {}
                vars(shell).update((name, held[name]) for name in (held if ALL in asked else asked & held.keys()))
                self._arguments[id(shell)] = shell, dict(vars(shell))
                if shell._grad_fn is None:
                    self._flags[id(shell)] = shell._requires_grad

    def read(self, t: Tensor, name: str) -> None:
        """An attribute is about to be asked for.

        Raises:
            Turned: it is an argument's, and nobody has known that it would be.
        """
        found = self._arguments.get(id(t))
        if found is None or is_of_class(type(t), name) or (id(t), name) in self._assigned:
            return
        self._is_asked = True
        name = ALL if name == "__dict__" else name
        if name not in self._asked and ALL not in self._asked:
            self._asked.add(name)
            raise Turned(BeginsAgain())

    def change(self, t: Tensor, name: str, change: Callable[[], None]) -> None:
        """An attribute of an argument, or of what the step makes, is assigned or deleted."""
        try:
            change()
        except AttributeError:  # it is not there to be deleted
            self.read(t, name)
            raise
        is_there = name in vars(t)
        known = self._arguments.get(id(t))
        if known is None:
            self._made.setdefault(id(t), (t, {}))[1][name] = None
        elif is_there:
            self._assigned.add((id(t), name))
            known[1][name] = vars(t)[name]
            self._defer(put_attribute, t, name, vars(t)[name])
        else:
            self._assigned.add((id(t), name))
            del known[1][name]
            self._defer(take_attribute, t, name)

    def carry(self, leaving: object, outside: Mapping[int, Any]) -> None:
        """What a step returns or stores has the attributes that the step gave it, after every run; leaves among the
        arguments require gradients or not, as the step left them.
        """
        for key, flag in self._flags.items():
            shell, _ = self._arguments[key]
            if shell._grad_fn is None and shell._requires_grad != flag:
                self._flags[key] = shell._requires_grad
                self._defer(put_flag, shell, shell._requires_grad)
        waiting = let_out(leaving, outside)[0] if self._made else []
        while waiting:
            t, names = self._made.pop(id(waiting.pop()), (None, ()))
            for name in names:
                if name in vars(t):
                    self._defer(put_attribute, t, name, vars(t)[name])
                    waiting += let_out(vars(t)[name], outside)[0]

    def check(self, leaving: object, outside: Mapping[int, Any]) -> bool:
        """At the end of a capture, which returns ``leaving``: whether it asks for attributes of arguments.

        Raises:
            UnsharedAttribute: attributes of an argument were changed behind the observer's back.
        """
        for shell, left in self._arguments.values():
            now = vars(shell)
            other = [name for name in {**left, **now} if now.get(name, MISSING) is not left.get(name, MISSING)]
            if other:
                raise UnsharedAttribute(shell, other[0]).always()
        self.carry(leaving, outside)
        return self._is_asked


def put_attribute(t: Tensor, name: str, value: object) -> None:
    """Give a tensor an attribute."""
    vars(t)[name] = value


def put_flag(t: Tensor, flag: bool) -> None:
    """Let a leaf require gradients, or not."""
    t.requires_grad = flag


def take_attribute(t: Tensor, name: str) -> None:
    """Take an attribute from a tensor."""
    vars(t).pop(name, None)
