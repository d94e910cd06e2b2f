"""Modules as functions of their parameters: called with other tensors, and several of them stacked for ``vmap``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from autojit import ops
from autojit.core.errors import UsageError
from autojit.nn.batchnorm import _BatchNorm
from autojit.nn.module import Module
from autojit.tensor import Tensor


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: dict[str, Tensor] | Sequence[dict[str, Tensor]],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """What the module computes with these tensors in place of its parameters and buffers of the same names.

    Buffers that the call assigns end up in the given dict; the module keeps what it had.

    Args:
        parameter_and_buffer_dicts: by the names of ``named_parameters`` and ``named_buffers``; or several such dicts.
        args: the call's arguments, a tuple or a single one.
        tie_weights: a tensor also stands for other names of the same parameter.
        strict: every parameter and buffer must be given.

    Raises:
        RuntimeError: with ``strict``, names are missing or unknown.
        ValueError: a name is in two dicts.

    Example:
        >>> import autojit as aj
        >>> layer = aj.nn.Linear(2, 1, bias=False)
        >>> aj.func.functional_call(layer, {"weight": aj.ones(1, 2)}, aj.tensor([1.0, 2.0]))
        tensor([3.])
    """
    given = _merged(parameter_and_buffer_dicts)
    arguments = () if args is None else args if isinstance(args, tuple) else (args,)
    with _replaced(module, given, tie_weights, strict):
        return module(*arguments, **(kwargs or {}))


def _merged(dicts: dict[str, Tensor] | Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    if isinstance(dicts, dict):
        return dicts
    given: Any = dicts
    if not isinstance(given, Sequence) or not all(isinstance(d, dict) for d in given):
        raise ValueError("Expected parameter_and_buffer_dicts to be a dict or a sequence of dicts")
    names = [name for d in dicts for name in d]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"{repeated} appeared in multiple dictionaries; behavior of functional call is ambiguous")
    return {name: tensor for d in dicts for name, tensor in d.items()}


def _slots(module: Module) -> dict[str, tuple[dict[str, Any], str]]:
    """By full name, the dict that holds a parameter or buffer, and its key there."""
    found: dict[str, tuple[dict[str, Any], str]] = {}
    for prefix, part in module.named_modules(remove_duplicate=False):
        for members in (part._parameters, part._buffers):
            for key in members:
                found[f"{prefix}.{key}" if prefix else key] = (members, key)
    return found


@contextmanager
def _replaced(module: Module, given: dict[str, Tensor], tie_weights: bool, strict: bool) -> Iterator[None]:
    slots = _slots(module)
    wanted = dict(given)
    if tie_weights:
        by_tensor = {id(slots[name][0][slots[name][1]]): tensor for name, tensor in given.items() if name in slots}
        for name, (members, key) in slots.items():
            if members[key] is not None and name not in wanted and id(members[key]) in by_tensor:
                wanted[name] = by_tensor[id(members[key])]
    unknown = [name for name in given if name not in slots]
    missing = [name for name, (members, key) in slots.items() if name not in wanted and members[key] is not None]
    if strict and (unknown or missing):
        parts = [f"Unexpected key(s): {', '.join(unknown)}."] if unknown else []
        parts += [f"Missing key(s): {', '.join(missing)}."] if missing else []
        raise UsageError(f"Error(s) in reparametrizing for {type(module).__name__}:\n\t" + "\n\t".join(parts))
    wanted = {name: tensor for name, tensor in wanted.items() if name in slots}
    kept = {name: slots[name][0][slots[name][1]] for name in wanted}
    try:
        for name, tensor in wanted.items():
            members, key = slots[name]
            members[key] = tensor
        yield
    finally:
        for name, old in kept.items():
            members, key = slots[name]
            if name in given and members[key] is not given[name]:
                given[name] = members[key]
            members[key] = old


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """(parameters, buffers) of equal modules, each stacked along a new first axis; for ``vmap`` of ``functional_call``.

    The stacked parameters are new leaves that require gradients where the modules' do.

    Raises:
        RuntimeError: no models, models of several classes, or some training and some not.

    Example:
        >>> import autojit as aj
        >>> parameters, buffers = aj.func.stack_module_state([aj.nn.Linear(2, 1) for _ in range(3)])
        >>> parameters["weight"].shape
        autojit.Size([3, 1, 2])
    """
    models = list(models)
    if not models:
        raise UsageError("stack_module_state: Expected at least one model, got 0.")
    if len({model.training for model in models}) > 1:
        raise UsageError("stack_module_state: Expected all models to have the same training/eval mode.")
    if len({type(model) for model in models}) > 1:
        raise UsageError("stack_module_state: Expected all models to be of the same class.")
    parameters = [dict(model.named_parameters()) for model in models]
    buffers = [dict(model.named_buffers()) for model in models]
    return _stacked("parameter", parameters), _stacked("buffer", buffers)


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Let every ``BatchNorm`` of the module use the statistics of its batch only, in place; returns the module.

    ``vmap`` of a module needs this: running statistics are one for all elements.

    Example:
        >>> import autojit as aj
        >>> aj.func.replace_all_batch_norm_modules_(aj.nn.BatchNorm1d(2)).running_mean is None
        True
    """
    for module in root.modules():
        if isinstance(module, _BatchNorm):
            module.running_mean = None
            module.running_var = None
            module.num_batches_tracked = None
            module.track_running_stats = False
    return root


def _stacked(kind: str, states: list[dict[str, Any]]) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for name, first in states[0].items():
        tensors = [state[name] for state in states]
        if len({t.requires_grad for t in tensors}) > 1:
            raise UsageError(f"Expected {kind}s from each model to have the same .requires_grad", {"name": name})
        stacked: Tensor = ops.stack([t.detach() for t in tensors])
        found[name] = stacked.requires_grad_(first.requires_grad)
    return found
