"""What users give to an optimiser: parameters and options, and what is refused of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autojit.tensor import Tensor


def options(names: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a group, in torch's order, among an initialiser's variables.

    torch's execution hints (``foreach``, ``fused``, ``capturable``) are kept, so that state dicts have torch's keys;
    they change nothing, as the compiler fuses every update anyway.
    """
    return {name: values[name] for name in names.split()}


def refuse(is_wrong: bool, what: str, *values: object) -> None:
    """ValueError ``what`` if something is wrong; its ``{}`` are filled then alone: texts use the digits of numbers."""
    if is_wrong:
        raise ValueError(what.format(*values))


def check(condition: bool, what: str, value: object) -> None:
    """ValueError ``Invalid {what}: {value}`` unless the condition holds."""
    refuse(not condition, "Invalid {}: {}", what, value)


def check_common(defaults: dict[str, Any], *names: str) -> None:
    """The checks all algorithms share: learning rate, eps, weight decay, betas."""
    lr = defaults["lr"]
    if isinstance(lr, Tensor):
        refuse(lr.numel() != 1, "Tensor lr must be 1-element")
    else:
        check(lr >= 0.0, "learning rate", lr)
    labels = {"eps": "epsilon value", "weight_decay": "weight_decay value"}
    for name in names:
        if name == "betas":
            for place, beta in enumerate(defaults["betas"]):
                check(0.0 <= beta < 1.0, f"beta parameter at index {place}", beta)
        else:
            check(defaults[name] >= 0.0, labels.get(name, f"{name} value"), defaults[name])


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
        raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(p).__name__}")
    if not (may_be_result or p.is_leaf or p.retains_grad):
        raise ValueError("can't optimize a non-leaf Tensor")
