"""``Watch``: what can be seen of a program's run: results, arguments, state, the environment, output, errors.

Everything is written down as (place, aspect, value) with values copied, so that two runs are compared line by line.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
from collections import ChainMap, UserDict, UserList, deque
from collections.abc import Callable, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

import autojit as aj
from autojit import nn

DEEPEST = 6  # nests of containers that are looked into


class Fact(NamedTuple):
    """One thing that was seen."""

    place: str  # "call 2: result[0]"
    aspect: str  # "value", "strides", "version", ...
    value: Any


class Ended(BaseException):
    """A call raised: the program ends here. Not an ``Exception``, so that no program catches it."""


class Watch:
    """The ``see`` of a program: ``see.watch(w=w)`` once, then ``see.call(step, x)`` and ``see.grads(result, x)``."""

    def __init__(self, checks_failures: bool = False) -> None:
        self.facts: list[Fact] = []
        self.checks_failures = checks_failures  # whether a call that raises must leave everything as it was
        self.torn: tuple[Fact, Fact] | None = None  # what a failed call changed: before and after
        self.left: list[Fact] = []  # after a failed call that may leave what eager mode leaves
        self.error: Exception | None = None
        self.failed_at = ""
        self.calls = 0
        self._watched: dict[str, Callable[[], Any]] = {}
        self._versions: dict[int, tuple[aj.Tensor, int]] = {}  # by identity; the tensor is kept so that it stays unique

    def watch(self, **getters: Callable[[], Any]) -> None:
        """Look at what these functions return after every call: ``see.watch(w=lambda: w)`` follows a rebound ``w``."""
        self._watched.update(getters)

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call the step and note all that can be seen afterwards."""
        self.calls += 1
        place = f"call {self.calls}"
        for k, argument in enumerate(tensors_in((*args, *kwargs.values()))):
            self._note_version(f"{place}: before, tensor {k}", argument)
        before = self._state(place, args, kwargs) if self.checks_failures else []
        try:
            result = self._attempt(place, lambda: function(*args, **kwargs))
        except Ended:
            left = self._state(place, args, kwargs)
            self._compare_state(before, left)
            if not self.checks_failures or _runs_line_by_line(function):
                self.left = left
            raise
        self._note(f"{place}: result", result)
        self._note_sharing(place, result, args)
        for k, argument in enumerate((*args, *kwargs.values())):
            self._note(f"{place}: argument {k}", argument)
        for name, get in self._watched.items():
            self._note(f"{place}: {name}", get())
        return result

    def _state(self, place: str, args: Any, kwargs: Any) -> list[Fact]:
        """Tensors that a call may change, now."""
        found: list[Fact] = []
        for k, tensor in enumerate(tensors_in((*args, *kwargs.values()))):
            _describe_tensor(tensor, f"{place}: argument tensor {k}", found)
        for name, get in self._watched.items():
            if "getvalue" not in name:  # what is printed before an error stays printed
                _describe(get(), f"{place}: {name}", found, 0)
        return found

    def _compare_state(self, before: list[Fact], after: list[Fact]) -> None:
        for a, b in zip(before, after, strict=False):
            is_same = np.array_equal(a.value, b.value, True) if _is_float(a.value) else np.all(a.value == b.value)
            if a[:2] != b[:2] or not is_same:
                self.torn = (a, b)
                return

    def grads(self, result: Any, *inputs: Any, order: int = 1) -> None:
        """Differentiate a result outside of the step, twice where ``order`` is 2."""
        place = f"after call {self.calls}: gradient"
        wanted = [x for x in tensors_in(inputs) if x.requires_grad]
        loss = _scalar(result)
        self.facts.append(Fact(place, "requires_grad", loss is not None))
        for k in range(1, order + 1):
            found = self._attempt(place, functools.partial(_gradients, loss, wanted))
            # eager mode leaves zero parts out of the sum that a second derivative is: nobody promises its layout, nor
            # whether one that is nothing but zeros is there
            pairs = zip(found, wanted, strict=True)
            shown = [aj.zeros_like(x).detach() if g is None else g.detach().contiguous() for g, x in pairs]
            first = [None if g is None else g.detach() for g in found]
            self._note(f"{place} of order {k}", first if k == 1 else shown)
            loss = _scalar(found)

    def look(self, name: str, value: Any) -> None:
        """Note one more value."""
        self._note(f"after call {self.calls}: {name}", value)

    def _attempt(self, place: str, run: Callable[[], Any]) -> Any:
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                result = run()
        except Exception as error:
            self.error, self.failed_at = error, place
            raise Ended from error
        if printed.getvalue():
            self.facts.append(Fact(place, "output", printed.getvalue()))
        return result

    def _note(self, place: str, value: Any) -> None:
        _describe(value, place, self.facts, 0)
        if ": result" not in place:
            for k, tensor in enumerate(tensors_in(value)):
                self._note_version(f"{place}, tensor {k}", tensor)

    def _note_version(self, place: str, tensor: aj.Tensor) -> None:
        """Whether it was changed in place since it was seen last: how often is nobody's business."""
        if tensor.is_inference() or tensor.is_sparse:
            return
        version = tensor._version
        _, before = self._versions.get(id(tensor), (tensor, version))
        self._versions[id(tensor)] = (tensor, version)
        self.facts.append(Fact(place, "version moved", version != before))

    def _note_sharing(self, place: str, result: Any, args: Any) -> None:
        """Which results are, or are in, the memory of which arguments."""
        given = tensors_in(args)
        for k, made in enumerate(tensors_in(result)):
            same = [j for j, argument in enumerate(given) if made is argument]
            shared = [j for j, argument in enumerate(given) if made is not argument and _shares(made, argument)]
            self.facts.append(Fact(f"{place}: result tensor {k}", "identity", same))
            self.facts.append(Fact(f"{place}: result tensor {k}", "memory", shared))


def _runs_line_by_line(function: Any) -> bool:
    """Whether calls of a compiled function run line by line: one that fails stops where eager mode stops."""
    return hasattr(function, "explain") and "line by line" in function.explain(verbose=True)


def _is_float(value: Any) -> bool:
    return isinstance(value, float | complex) or (isinstance(value, np.ndarray) and value.dtype.kind in "fc")


def _gradients(loss: aj.Tensor | None, wanted: list[aj.Tensor]) -> list[aj.Tensor | None]:
    if loss is None:
        return [None] * len(wanted)
    return list(aj.autograd.grad(loss, wanted, create_graph=True, allow_unused=True))


def _shares(a: aj.Tensor, b: aj.Tensor) -> bool:
    return bool(np.shares_memory(a.detach().numpy(), b.detach().numpy())) if a.numel() and b.numel() else False


def tensors_in(value: object) -> list[aj.Tensor]:
    """The tensors in a nest of mappings, lists and tuples."""
    if isinstance(value, aj.Tensor):
        return [value]
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [t for part in parts for t in tensors_in(part)]


def _scalar(result: Any) -> aj.Tensor | None:
    """A smooth number that depends on every differentiable tensor of the result."""
    total = None
    for k, t in enumerate(tensors_in(result)):
        if not t.requires_grad or not t.numel():
            continue
        part = ((t.abs() if t.dtype.is_complex else t) * (1 + 0.5 * k)).sum()
        part = part + 0.1 * (part * part)
        total = part if total is None else total + part
    return total


def _describe(value: Any, place: str, facts: list[Fact], depth: int) -> None:
    """Append what can be seen of a value."""
    if isinstance(value, aj.Tensor):
        _describe_tensor(value, place, facts)
        return
    facts.append(Fact(place, "type", type(value).__name__))
    if depth > DEEPEST:
        return
    if isinstance(value, np.ndarray):
        facts += (Fact(place, "dtype", str(value.dtype)), Fact(place, "value", value.copy()))
    elif isinstance(value, bool | int | float | complex | str | bytes | None | np.generic):
        facts.append(Fact(place, "value", value))
    elif isinstance(value, nn.Module):
        _describe_module(value, place, facts, depth)
    elif isinstance(value, aj.optim.Optimizer):
        _describe(value.state_dict(), f"{place}.state_dict()", facts, depth + 1)
    else:
        _describe_object(value, place, facts, depth)


def _describe_object(value: Any, place: str, facts: list[Fact], depth: int) -> None:
    if isinstance(value, dict | ChainMap | UserDict):
        facts.append(Fact(place, "keys", [str(k) for k in value]))
        for key, item in value.items():
            _describe(item, f"{place}[{key!r}]", facts, depth + 1)
    elif isinstance(value, list | tuple | deque | UserList):
        facts.append(Fact(place, "length", len(value)))
        for k, item in enumerate(value):
            _describe(item, f"{place}[{k}]", facts, depth + 1)
    elif isinstance(value, set | frozenset):
        facts.append(Fact(place, "value", str(sorted(value, key=str))))
    elif isinstance(value, FunctionType | MethodType | BuiltinFunctionType | type):
        pass
    elif dataclasses.is_dataclass(value) or isinstance(value, SimpleNamespace) or hasattr(value, "__dict__"):
        for name, item in sorted(vars(value).items()):
            if not name.startswith("_jit"):  # steps of jitted methods
                _describe(item, f"{place}.{name}", facts, depth + 1)


def _describe_module(module: nn.Module, place: str, facts: list[Fact], depth: int) -> None:
    for name, part in module.named_modules():
        facts.append(Fact(f"{place}.{name}", "training", part.training))
    for kind in (module.named_parameters(), module.named_buffers()):
        for name, tensor in kind:
            _describe_tensor(tensor, f"{place}.{name}", facts)
    for name, item in sorted(vars(module).items()):
        if not name.startswith("_") and name != "training" and not callable(item):
            _describe(item, f"{place}.{name}", facts, depth + 1)


def _describe_tensor(tensor: aj.Tensor, place: str, facts: list[Fact]) -> None:
    shape = tuple(int(n) for n in tensor.shape)
    facts.append(Fact(place, "shape", shape))
    facts.append(Fact(place, "dtype", tensor.dtype.name))
    if tensor.is_sparse:
        facts.append(Fact(place, "value", tensor.detach().to_dense().numpy().copy()))
        return
    facts.append(Fact(place, "strides", _telling_strides(shape, tensor.stride())))
    facts.append(Fact(place, "requires_grad", tensor.requires_grad))
    facts.append(Fact(place, "is_leaf", tensor.is_leaf))
    facts.append(Fact(place, "value", tensor.detach().numpy().copy()))
    if tensor.is_leaf and tensor.requires_grad:
        grad = tensor.grad
        facts.append(Fact(place, "has grad", grad is not None))
        if grad is not None:
            _describe_tensor(grad, f"{place}.grad", facts)


def _telling_strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Strides, without those that move nothing: of extents 1, and of tensors without elements."""
    if 0 in shape:
        return ()
    return tuple(0 if n == 1 else int(s) for n, s in zip(shape, strides, strict=True))
