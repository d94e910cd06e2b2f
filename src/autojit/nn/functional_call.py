"""Modules as functions of their parameters: called with other tensors, and several of them stacked for ``vmap``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
            Tensors that are plain attributes of a module, or are not there yet, can be given, too.
        args: the call's arguments, a tuple or a single one.
        tie_weights: a tensor also stands for other names of the same parameter.
        strict: every parameter and buffer must be given.

    Raises:
        RuntimeError: with ``strict``, names are missing or unknown.
        ValueError: a name is in two dicts, or two names of one parameter have different tensors.
        TypeError: what is given, or what it replaces, is no tensor.

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


_ABSENT: Any = object()


class _Slot:
    """Where a module holds a tensor under a name: a parameter, a buffer, or an attribute that may not be there yet."""

    def __init__(self, root: Module, path: str) -> None:
        owner, _, self.key = path.rpartition(".")
        self.part = root.get_submodule(owner)

    def _members(self) -> dict[str, Any] | None:
        for members in (self.part._parameters, self.part._buffers):
            if self.key in members:
                return members
        return None

    def get(self) -> Any:
        """What is there."""
        members = self._members()
        return getattr(self.part, self.key, _ABSENT) if members is None else members[self.key]

    def put(self, tensor: Any) -> None:
        """Hold another tensor, or none any more."""
        members = self._members()
        if tensor is _ABSENT:
            delattr(self.part, self.key)
        elif members is None:
            setattr(self.part, self.key, tensor)
        else:
            members[self.key] = tensor


def _registered(module: Module) -> dict[str, Any]:
    """The parameters and buffers by all their full names."""
    found: dict[str, Any] = {}
    for prefix, part in module.named_modules(remove_duplicate=False):
        for members in (part._parameters, part._buffers):
            found.update({f"{prefix}.{key}" if prefix else key: tensor for key, tensor in members.items()})
    return found


def _tied(given: dict[str, Tensor], registered: dict[str, Any]) -> dict[str, Tensor]:
    """What is given, under the other names of the same parameters, too."""
    by_tensor: dict[int, list[str]] = {}
    for name in given:
        if registered.get(name) is not None:
            by_tensor.setdefault(id(registered[name]), []).append(name)
    for names in by_tensor.values():
        if len({id(given[name]) for name in names}) > 1:
            raise ValueError(
                f"functional_call got multiple values for keys {sorted(names)}, which are tied. Consider using "
                "tie_weights=False"
            )
    others = {name: tensor for name, tensor in registered.items() if name not in given and id(tensor) in by_tensor}
    return {**given, **{name: given[by_tensor[id(tensor)][0]] for name, tensor in others.items()}}


def _check_names(module: Module, wanted: dict[str, Tensor], registered: dict[str, Any]) -> None:
    unknown = sorted(name for name in wanted if name not in registered)
    missing = sorted(name for name, tensor in registered.items() if name not in wanted and tensor is not None)
    if unknown or missing:
        parts = [f"Unexpected key(s): {', '.join(map(repr, unknown))}."] if unknown else []
        parts += [f"Missing key(s): {', '.join(map(repr, missing))}."] if missing else []
        raise UsageError(f"Error(s) in reparametrizing for {type(module).__name__}:\n\t" + "\n\t".join(parts))


@contextmanager
def _replaced(module: Module, given: dict[str, Tensor], tie_weights: bool, strict: bool) -> Iterator[None]:
    said: Mapping[str, object] = given
    for name, tensor in said.items():
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"functional_call: {name!r}: {tensor} is not an instance of torch.Tensor")
    registered = _registered(module) if tie_weights or strict else {}
    wanted = _tied(given, registered) if tie_weights else dict(given)
    if strict:
        _check_names(module, wanted, registered)
    slots = {name: _Slot(module, name) for name in wanted}
    kept = {name: slot.get() for name, slot in slots.items()}
    for name, old in kept.items():
        if not (old is None or old is _ABSENT or isinstance(old, Tensor)):
            raise TypeError(f"functional_call: attribute `{name}`: {old} is not an instance of torch.Tensor")
    try:
        for name, new in wanted.items():
            slots[name].put(new)
        yield
    finally:
        for name, old in kept.items():
            new = slots[name].get()
            if name in given and new is not given[name] and new is not _ABSENT:
                given[name] = new
            slots[name].put(old)


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
