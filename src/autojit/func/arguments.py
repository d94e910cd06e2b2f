"""What transforms ask of arguments and results: which arguments are meant, and what a function may return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autojit.jit.pytree import TreeSpec, flatten, taken_apart
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of

JVP = "jvp(f, primals, tangents)"
"""What messages call it."""


def chosen(args: tuple[Any, ...], argnums: Any) -> Any:
    """The arguments that are differentiated by: one, or a tuple of them.

    Raises:
        RuntimeError: ``argnums`` is neither an integer nor several that differ, or there is no such argument.
    """
    if not isinstance(argnums, int | tuple | list):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    if isinstance(argnums, int):
        return args[_place(args, argnums)]
    places = [_place(args, argnum) for argnum in argnums]
    if not places:
        raise RuntimeError("argnums must be non-empty")
    if len(set(places)) < len(places):
        raise RuntimeError(f"argnums elements must be unique, got {argnums}")
    return tuple(args[place] for place in places)


def _place(args: tuple[Any, ...], argnum: Any) -> int:
    if not isinstance(argnum, int):
        raise RuntimeError(f"argnum must be int, got: {type(argnum)}")
    if not -len(args) <= argnum < len(args):
        raise RuntimeError(f"Got argnum={argnum}, but only {len(args)} positional inputs")
    return argnum % len(args)


def replaced(args: tuple[Any, ...], argnums: Any, new: Any) -> tuple[Any, ...]:
    """The arguments with new ones in place of those that are differentiated by."""
    found = list(args)
    for k, value in [(argnums, new)] if isinstance(argnums, int) else zip(argnums, new, strict=True):
        found[k] = value
    return tuple(found)


def pairs_of(primals: Any, tangents: Any) -> tuple[list[Tensor], list[Tensor], TreeSpec]:
    """The primals and tangents of ``jvp`` as two lists, and the nest of each.

    Raises:
        RuntimeError: primals are no tuple of nests of tensors, or tangents no such tuple of the same structure.
    """
    if not isinstance(primals, tuple):
        raise RuntimeError(f"{JVP}: Expected primals to be a tuple of nests of Tensors, got {type(primals).__name__}")
    leaves, tree = flatten(primals)
    directions, direction_tree = flatten(tangents)
    if tree != direction_tree:
        raise RuntimeError(
            f"{JVP}: Expected primals and tangents to have the same python structure; give a tuple with one "
            "tangent for every tensor of the primals"
        )
    if not leaves:
        raise RuntimeError(f"{JVP}: Expected primals to have at least one Tensor")
    for name, values in (("primals", leaves), ("tangents", directions)):
        other = next((value for value in values if not isinstance(value, Tensor)), None)
        if other is not None:
            raise RuntimeError(f"{JVP}: Expected {name} to only contain Tensors, got {type(other).__name__}")
    return leaves, directions, tree


def with_aux(transform: str, found: Any, has_aux: bool) -> tuple[Any, Any]:
    """(output, what the function returned besides or None).

    Raises:
        RuntimeError: with ``has_aux``, the function did not return a pair.
    """
    if not has_aux:
        return found, None
    if not (isinstance(found, tuple) and len(found) == 2):
        raise RuntimeError(f"{transform}: output of function f should be a tuple: (output, aux) if has_aux is True")
    return found


def outputs_of(transform: str, output: Any) -> tuple[list[Tensor], TreeSpec]:
    """The tensors of a function's output, and their nest.

    Raises:
        RuntimeError: there are none, or something else is among them.
    """
    leaves, tree = flatten(output)
    if not leaves or output is None:
        raise RuntimeError(
            f"{transform}: Expected f to be a function that has non-empty output (got output = {output})"
        )
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise RuntimeError(
                f"{transform}: expected f(*primals) to return only tensors, got unsupported type {type(leaf)}"
            )
    return leaves, tree


def check_real(transform: str, what: str, tensors: Sequence[Any]) -> None:
    """Raise where a Jacobian would be one of complex numbers, which derivatives of several kinds could fill."""
    for number, x in enumerate(tensors):
        if isinstance(x, Tensor) and type_of(x).dtype.kind == "complex":
            raise RuntimeError(
                f"{transform}: Expected all {what} to be real but received complex tensor at flattened "
                f"{what[:-1]} idx: {number}; take those of the real and imaginary parts (view_as_real)"
            )


def spread(values: Any, tree: TreeSpec) -> list[Any] | None:
    """One value for every leaf of a nest: ``values`` is a nest like it, or stops above with one for all that is below.

    None: it is another nest.
    """
    found = taken_apart(values)
    if found is None:
        return [values] * tree.count
    kind, parts, keys = found[0], list(found[1]), found[2]
    if kind is not tree.kind or len(parts) != len(tree.children):
        return None
    if keys and set(keys) != set(tree.keys):
        return None
    ordered = [part for _, part in sorted(zip(map(tree.keys.index, keys), parts, strict=True))] if keys else parts
    below = [spread(part, child) for part, child in zip(ordered, tree.children, strict=True)]
    return None if None in below else [value for part in below if part is not None for value in part]
