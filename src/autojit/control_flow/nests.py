"""Operands and results of bodies: nests taken apart, compared leaf by leaf, and put together."""

from __future__ import annotations

from typing import Any

from autojit.core.errors import DTypeError, ShapeError, UsageError
from autojit.functions.factories import tensor
from autojit.jit.pytree import TreeSpec
from autojit.jit.traced_number import TracedNumber
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of

NUMBERS = (bool, int, float, complex, TracedNumber)


def leaf_names(tree: TreeSpec, name: str) -> list[str]:
    """How a user writes each leaf of a nest called ``name``.

    Example:
        >>> from autojit.jit.pytree import flatten
        >>> leaf_names(flatten({"h": [1, 2], "c": 3})[1], "carry")
        ["carry['h'][0]", "carry['h'][1]", "carry['c']"]
    """
    if tree.kind is None:
        return [name]
    keys = tree.keys if tree.keys and len(tree.keys) == len(tree.children) else range(len(tree.children))
    return [
        found for key, child in zip(keys, tree.children, strict=True) for found in leaf_names(child, f"{name}[{key!r}]")
    ]


def as_tensor(leaf: Any, what: str) -> Tensor:
    """A leaf as a tensor: numbers become tensors without dimensions.

    Raises:
        UsageError: the leaf is neither.
    """
    if isinstance(leaf, Tensor):
        return leaf
    if isinstance(leaf, TracedNumber):
        return leaf.as_operand()
    if isinstance(leaf, NUMBERS):
        return tensor(leaf)
    raise UsageError(
        f"{what} must be a tensor or a number, but is {type(leaf).__name__}",
        fix="keep other objects outside the nest: the function may close over them",
    )


def check_same_tree(what: str, found: TreeSpec, wanted: TreeSpec, of_what: str, why: str = "") -> None:
    """Raise an error when two nests differ in structure; ``why`` says in the fix why they must not."""
    if found != wanted:
        raise UsageError(
            f"{what} must have the structure of {of_what}",
            {"found": shown_tree(found), "expected": shown_tree(wanted)},
            f"return the same nest of tuples, lists and dicts{why}",
        )


def check_same_type(what: str, found: Any, wanted: Any, of_what: str, why: str = "") -> None:
    """Raise an error when two tensors differ in shape or dtype; ``why`` says in the fix why they must not."""
    a, b = type_of(found), type_of(wanted)
    facts = {"found": a, "expected": b}
    if a.shape != b.shape:
        raise ShapeError(f"{what} must have the shape of {of_what}", facts, f"reshape or expand it{why}")
    if a.dtype is not b.dtype:
        raise DTypeError(f"{what} must have the dtype of {of_what}", facts, f"convert it: .to({b.dtype.name}){why}")


def shown_tree(tree: TreeSpec) -> str:
    """The structure with a star per leaf."""
    return repr(tree.unflatten([_Star()] * tree.count))


class _Star:
    def __repr__(self) -> str:
        return "*"
