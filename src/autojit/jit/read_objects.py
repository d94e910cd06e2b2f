"""What a function read, an object a line: a model of a hundred tensors is one thing to its user."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from autojit.core.wrapping import own
from autojit.jit.guards import shown
from autojit.jit.places import cell_content
from autojit.runtime.entry_spec import MISSING

if TYPE_CHECKING:
    from autojit.jit.function import JitFunction
    from autojit.jit.guards import Guard
    from autojit.jit.step import CompiledStep

FEW = 2  # values of an object that are shown one by one


def read_objects(function: JitFunction, steps: Sequence[CompiledStep]) -> list[str]:
    """A line per object that the steps' guards are about, with the values of the newest step."""
    groups: dict[str, dict[str, Guard]] = {}
    for step in steps:
        for guard in step.capture.guards:
            groups.setdefault(_root(guard.name), {})[guard.name] = guard
    return [_line(root, list(guards.values()), _object(function.function, root)) for root, guards in groups.items()]


def _root(name: str) -> str:
    """The variable that a guard's path starts from: ``model`` of ``members of model.0.a``."""
    if " a tensor" in name:
        return name.partition(" a tensor")[0] + " tensors"
    found = re.match(r"\w+", re.sub(r" \(.*\)$", "", name).split()[-1])
    return found.group() if found else name


def _line(root: str, guards: Sequence[Guard], value: object) -> str:
    told = _described(value)
    if told is not None:
        return f"{root}: {told}"
    plain = [guard for guard in guards if not shown(guard.expected).startswith("<")]
    if len(plain) <= FEW:
        return ", ".join(f"{guard.name} == {shown(guard.expected)}" for guard in plain or guards[:FEW])
    return f"{root}: {len(plain)} values"


def _described(value: Any) -> str | None:
    """A module or an optimiser in few words; asked of its class, for an object may answer to any name."""
    kind = type(value)
    if callable(getattr(kind, "named_modules", None)):
        modules = list(value.modules())
        modes = {part.training for part in modules}
        mode = "training" if modes == {True} else "evaluating" if modes == {False} else "partly training"
        return f"{_number(list(value.parameters()), 'parameter')}, {_number(modules, 'module')}, {mode}"
    if callable(getattr(kind, "zero_grad", None)) and callable(getattr(kind, "add_param_group", None)):
        groups = value.param_groups
        tensors = [p for group in groups for p in group["params"]]
        return f"{kind.__name__} of {_number(tensors, 'parameter')}, {_number(groups, 'group')}"
    return None


def _number(things: Sequence[Any], what: str) -> str:
    return f"{len(things)} {what}{'s' * (len(things) != 1)}"


def _object(function: object, root: str) -> Any:
    """What a name of the function's means now: itself, its object, a closure variable or a global."""
    bound = own(function, "__self__", None)
    if root == "self" and bound is not None:
        return bound
    plain = own(function, "__func__", function)
    code = own(plain, "__code__", None)
    if code is None:
        return function
    for name, cell in zip(code.co_freevars, plain.__closure__ or (), strict=False):
        if name == root:
            return None if (held := cell_content(cell)) is MISSING else held
    return plain.__globals__.get(root)
