"""What users give to an optimiser: parameters and options, and what is refused of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autojit.core.errors import ArgumentError, ArgumentKindError
from autojit.tensor import Tensor

NOT_NEGATIVE = "give a number that is not negative"


def options(names: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a group, in torch's order, among an initialiser's variables.

    torch's execution hints (``foreach``, ``fused``, ``capturable``) are kept, so that state dicts have torch's keys;
    they change nothing, as the compiler fuses every update anyway.
    """
    return {name: values[name] for name in names.split()}


def refuse(is_wrong: bool, what: str, *values: object) -> None:
    """ValueError ``what`` if something is wrong; its ``{}`` are filled then alone: texts use the digits of numbers."""
    if is_wrong:
        raise ArgumentError(what.format(*values))


def check(condition: bool, what: str, value: object, fix: str = "") -> None:
    """ValueError ``Invalid {what}: {value}`` unless the condition holds."""
    if not condition:
        raise ArgumentError(f"Invalid {what}: {value}", fix=fix)


def check_number(value: object, name: str) -> None:
    """TypeError for an option that is plainly no number: what stands for one in a step of autojit's is."""
    if value is None or isinstance(value, str | bytes | list | tuple | dict):
        raise ArgumentKindError(
            f"{name} must be a number, not {type(value).__name__}", {name: repr(value)}, f"give a float: {name}=0.001"
        )


def check_common(defaults: dict[str, Any], *names: str) -> None:
    """The checks all algorithms share: learning rate, eps, weight decay, betas."""
    lr = defaults["lr"]
    for name in ("lr", *(name for name in names if name != "betas")):
        check_number(defaults[name], name)
    if isinstance(lr, Tensor):
        refuse(lr.numel() != 1, "Tensor lr must be 1-element")
    else:
        check(lr >= 0.0, "learning rate", lr, NOT_NEGATIVE)
    labels = {"eps": "epsilon value", "weight_decay": "weight_decay value"}
    for name in names:
        if name == "betas":
            for place, beta in enumerate(defaults["betas"]):
                check(
                    0.0 <= beta < 1.0, f"beta parameter at index {place}", beta, "betas are at least 0 and less than 1"
                )
        else:
            check(defaults[name] >= 0.0, labels.get(name, f"{name} value"), defaults[name], NOT_NEGATIVE)


def groups_of(params: Any) -> list[Any]:
    """What an optimiser was given, in its order.

    Raises:
        TypeError: it is a tensor, or nothing that can be gone through.
        ValueError: there is nothing in it.
    """
    if isinstance(params, Tensor) or not hasattr(type(params), "__iter__"):
        what = "params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
        fix = "give a list: [parameter]"
        if callable(getattr(params, "parameters", None)):
            fix = "give its parameters: model.parameters()"
        elif callable(params):
            fix = "call it: model.parameters()"
        raise ArgumentKindError(f"{what}{type(params).__name__}", fix=fix)
    found = list(params)
    if not found:
        fix = "a generator gives its items once: make model.parameters() again; a module has parameters as attributes"
        raise ArgumentError("optimizer got an empty parameter list", fix=fix)
    return found


class _Required:
    """The default of an option that has none: every group must set it."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


def fill(group: dict[str, Any], defaults: Mapping[str, Any]) -> None:
    """Give a group the defaults of what it does not set itself.

    Raises:
        ValueError: it does not set what is ``required``.
    """
    for name, default in defaults.items():
        if default is required and name not in group:
            message = f"parameter group didn't specify a value of required optimization parameter {name}"
            raise ArgumentError(message, fix=f"pass {name}=... to the optimizer, or set it in the group")
        dict.setdefault(group, name, default)


def check_saved(groups: Sequence[Mapping[str, Any]], saved: Sequence[Mapping[str, Any]]) -> None:
    """ValueError where the groups of a state dict do not match those of the optimiser."""
    here, there = ([len(group["params"]) for group in given] for given in (groups, saved))
    if here == there:
        return
    facts = {"tensors of its groups": here, "those of the state dict": there}
    fix = "make the optimiser as the saved one was: of the same parameters, in the same order and groups"
    if len(here) != len(there):
        raise ArgumentError("loaded state dict has a different number of parameter groups", facts, fix)
    raise ArgumentError(
        "loaded state dict contains a parameter group that doesn't match the size of optimizer's group", facts, fix
    )


def listed(params: Any) -> list[Any]:
    """The parameters of a group in their order."""
    if isinstance(params, Tensor):
        return [params]
    if isinstance(params, set):
        raise TypeError(
            "optimizer parameters need to be organized in ordered collections, but the ordering of tensors in sets "
            "will change between runs. Please use a list instead."
        )
    return list(params)


def check_parameter(p: object, may_be_result: bool) -> None:
    """TypeError or ValueError for what cannot be optimised."""
    if not isinstance(p, Tensor):
        raise ArgumentKindError(
            f"optimizer can only optimize Tensors, but one of the params is {type(p).__name__}",
            fix="give tensors, (name, tensor) pairs or dicts of groups: model.parameters()",
        )
    if not (may_be_result or p.is_leaf or p.retains_grad):
        raise ArgumentError(
            "can't optimize a non-leaf Tensor",
            {"tensor": p},
            "it is computed from others, which are to be optimised; or make it a leaf: x.detach().requires_grad_()",
        )
