"""rearrange: axes named by a pattern, moved, merged and split. Source: einops (Rogozhnikov, ICLR 2022)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any

from autojit.functions.shape import stack
from autojit.tensor import Tensor

Groups = list[tuple[str, ...] | list[str]]
"""Per axis of a tensor the names that it is made of: a tuple of one name, or the list between parentheses."""

_REST = ("...",)  # all axes that have no name


def rearrange(tensor: Tensor | Sequence[Tensor], pattern: str, **axes_lengths: int) -> Tensor:
    """The tensor with its axes in another order, merged or split, as a pattern says.

    Args:
        tensor: a tensor, or several of one shape, which are stacked first.
        pattern: ``"b c h w -> b (h w) c"``: names of the axes before and after; parentheses join several to one axis,
            ``...`` stands for axes without names, ``1`` and ``()`` for one of extent 1.
        axes_lengths: extents of names that cannot be found from the shape.

    Raises:
        ValueError: the pattern is wrong, or does not fit the tensor.

    Example:
        >>> import autojit as aj
        >>> aj.func.rearrange(aj.arange(6), "(a b) -> b a", a=2)
        tensor([[0, 3],
                [1, 4],
                [2, 5]])
    """
    x = tensor if isinstance(tensor, Tensor) else stack(list(tensor))
    before, arrow, after = pattern.partition("->")
    if not arrow or "->" in after:
        raise ValueError(f"rearrange: a pattern has exactly one '->', got {pattern!r}")
    left, right = _parsed(before, pattern), _parsed(after, pattern)
    _check_names(left, right, pattern, axes_lengths)
    left, right = _without_ellipsis(left, right, x.ndim, pattern)
    if len(left) != x.ndim:
        raise ValueError(f"rearrange: {pattern!r} names {len(left)} axes, but the tensor has {x.ndim}")
    extents = dict(axes_lengths)
    for group, extent in zip(left, x.shape, strict=True):
        _split(group, extent, extents, pattern)
    names = [name for group in left for name in group]
    flat = x.reshape([extents[name] for name in names])
    order = [names.index(name) for group in right for name in group]
    moved = flat.permute(order) if order else flat
    return moved.reshape([prod(extents[name] for name in group) for group in right])


def _parsed(side: str, pattern: str) -> Groups:
    found: Groups = []
    inside: list[str] | None = None
    for token in re.findall(r"\.\.\.|[()]|[^\s()]+", side):
        if token == "(":
            if inside is not None:
                raise ValueError(f"rearrange: parentheses cannot be nested in {pattern!r}")
            inside = []
        elif token == ")":
            if inside is None:
                raise ValueError(f"rearrange: unbalanced parentheses in {pattern!r}")
            found.append(inside)
            inside = None
        elif token == "1":
            if inside is None:
                found.append([])
        elif token != "..." and not token.isidentifier():
            raise ValueError(f"rearrange: {token!r} is no name of an axis in {pattern!r}")
        elif inside is not None:
            inside.append(token)
        else:
            found.append((token,))
    if inside is not None:
        raise ValueError(f"rearrange: unbalanced parentheses in {pattern!r}")
    return found


def _check_names(left: Groups, right: Groups, pattern: str, given: dict[str, int]) -> None:
    names = [[name for group in side for name in group] for side in (left, right)]
    for side in names:
        repeated = sorted({name for name in side if side.count(name) > 1})
        if repeated:
            raise ValueError(f"rearrange: {repeated} appear twice on one side of {pattern!r}")
    if set(names[0]) != set(names[1]):
        raise ValueError(f"rearrange: both sides of {pattern!r} must name the same axes")
    if _REST not in left and "..." in names[0]:
        raise ValueError(f"rearrange: the ellipsis cannot stand in parentheses on the left of {pattern!r}")
    unknown = sorted(set(given) - set(names[0]))
    if unknown:
        raise ValueError(f"rearrange: {unknown} are not in the pattern {pattern!r}")


def _without_ellipsis(left: Groups, right: Groups, ndim: int, pattern: str) -> tuple[Groups, Groups]:
    """Both sides with names of their own in place of the ellipsis."""
    if _REST not in left:
        return left, right
    count = ndim - (len(left) - 1)
    if count < 0:
        raise ValueError(f"rearrange: {pattern!r} names more axes than the {ndim} of the tensor")
    names = [f"...{k}" for k in range(count)]
    place = left.index(_REST)
    wide = [*left[:place], *((name,) for name in names), *left[place + 1 :]]
    found: Groups = []
    for group in right:
        if group == _REST:
            found += [(name,) for name in names]
        else:
            found.append([new for name in group for new in (names if name == "..." else [name])])
    return wide, found


def _split(group: Sequence[str], extent: int, extents: dict[str, Any], pattern: str) -> None:
    """Find the extents of the names that one axis is made of."""
    open_names = [name for name in group if name not in extents]
    known = prod(extents[name] for name in group if name in extents)
    if len(open_names) > 1:
        raise ValueError(f"rearrange: give the lengths of all but one of {open_names} in {pattern!r}")
    if open_names and known and extent % known == 0:
        extents[open_names[0]] = extent // known
    elif open_names or known != extent:
        raise ValueError(f"rearrange: an axis of length {extent} cannot be {' '.join(group) or '1'} in {pattern!r}")
