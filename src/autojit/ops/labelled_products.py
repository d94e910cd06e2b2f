"""Einstein summation: a formula turned into permutations, reshapes, matrix products and sums."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Any, NamedTuple

from autojit.core.errors import ArgumentError, ShapeError
from autojit.core.sizes import seems_equal
from autojit.ir.op import O, Op, bind
from autojit.ops.matmul import MATMUL
from autojit.ops.shape import broadcast_to, permute, reshape
from autojit.ops.views import diagonal

__all__ = ["einsum"]

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


class _Term(NamedTuple):
    """An operand with one label per axis; labels are unique."""

    labels: tuple[str, ...]
    x: Any


def einsum(formula: str, *operands: O) -> O:
    """torch.einsum: ``einsum("bik,bkj->bij", x, y)``; ``...`` stands for broadcast axes, repeats take diagonals.

    Operands are contracted from the left; each step is one batched matrix product.

    Raises:
        ArgumentError: the formula is malformed.
        ShapeError: it does not fit the operands.
    """
    inputs, output = _parse(formula.replace(" ", ""), operands)
    terms = [_with_diagonals(labels, x) for labels, x in zip(inputs, operands, strict=True)]
    extents = _extents(terms)
    total = terms[0]
    for place, term in enumerate(terms[1:], start=1):
        later = {label for other in terms[place + 1 :] for label in other.labels}
        total = _contract(total, term, later | set(output), extents)
    found: O = _finish(total, output, extents)
    return found


def _parse(formula: str, operands: tuple[Any, ...]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    left, arrow, right = formula.partition("->")
    texts = left.split(",")
    if len(texts) != len(operands):
        raise ArgumentError(f"einsum(): {len(texts)} operands in the formula, but {len(operands)} were given")
    hidden = [x.spec.ndim - len(t.replace("...", "")) for t, x in zip(texts, operands, strict=True)]
    dots = max((n for n, t in zip(hidden, texts, strict=True) if "..." in t), default=0)
    inputs = [_labels(text, count) for text, count in zip(texts, hidden, strict=True)]
    for labels, x in zip(inputs, operands, strict=True):
        if len(labels) != x.spec.ndim:
            raise ShapeError(f"einsum(): {formula}: the subscripts do not match the operand's rank", {"operand": x})
    if arrow:
        output = _labels(right, dots)
    else:
        counts = Counter(label for labels in inputs for label in labels)
        named = sorted(label for label, n in counts.items() if n == 1 and label in _LETTERS)
        output = (*_labels("...", dots), *named)
    known = {label for labels in inputs for label in labels}
    if len(set(output)) != len(output) or not set(output) <= known:
        raise ArgumentError(f"einsum(): output subscripts of {formula!r} are repeated or not in any operand")
    return inputs, output


def _labels(text: str, dots: int) -> tuple[str, ...]:
    """Labels of one operand; the axes of ``...`` are numbered from the right so that they broadcast."""
    before, ellipsis, after = text.partition("...")
    middle = tuple(f".{k}" for k in range(dots - 1, -1, -1)) if ellipsis else ()
    if any(letter not in _LETTERS for letter in before + after):
        raise ArgumentError(f"einsum(): invalid subscript in {text!r}: only letters and one '...' are allowed")
    return (*before, *middle, *after)


def _with_diagonals(labels: tuple[str, ...], x: O) -> _Term:
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            if x.spec.shape[first] != x.spec.shape[second]:
                raise ShapeError(f"einsum(): subscript {label} is repeated for different extents", {"operand": x})
            x = diagonal(x, 0, first, second)
            labels = (*(n for k, n in enumerate(labels) if k not in (first, second)), label)
    return _Term(labels, x)


def _extents(terms: list[_Term]) -> dict[str, int]:
    found: dict[str, int] = {}
    for labels, x in terms:
        for label, extent in zip(labels, x.spec.shape, strict=True):
            before = found.get(label, 1)
            if before != 1 and extent not in (1, before):
                raise ShapeError(f"einsum(): subscript {label} has extents {before} and {extent}", {"operand": x})
            found[label] = 0 if seems_equal(extent, 0) or seems_equal(before, 0) else max(before, extent)
    return found


def _contract(a: _Term, b: _Term, needed: set[str], extents: dict[str, int]) -> _Term:
    """One batched product: labels of both that are still needed are the batch, the rest of the shared is summed."""
    a = _sum_out(a, needed | set(b.labels), extents)
    b = _sum_out(b, needed | set(a.labels), extents)
    a, b = _stretch(a, b, extents), _stretch(b, a, extents)
    shared = [n for n in a.labels if n in b.labels]
    batch = [n for n in shared if n in needed]
    inner = [n for n in shared if n not in needed]
    rows = [n for n in a.labels if n not in b.labels]
    columns = [n for n in b.labels if n not in a.labels]
    if not inner:
        return _elementwise(a, b, batch, rows, columns)
    left = _grouped(a, batch, rows, inner)
    right = _grouped(b, batch, inner, columns)
    product = bind(MATMUL, left, right)
    sizes = dict(zip(a.labels, a.x.spec.shape, strict=True)) | dict(zip(b.labels, b.x.spec.shape, strict=True))
    labels = (*batch, *rows, *columns)
    return _Term(labels, reshape(product, [sizes[n] for n in labels]))


def _elementwise(a: _Term, b: _Term, batch: list[str], rows: list[str], columns: list[str]) -> _Term:
    """No axis is summed: a broadcast product."""
    left = permute(a.x, [a.labels.index(n) for n in (*batch, *rows)])
    right = permute(b.x, [b.labels.index(n) for n in (*batch, *columns)])
    batch_shape = left.spec.shape[: len(batch)]
    left = reshape(left, (*left.spec.shape, *(1,) * len(columns)))
    right = reshape(right, (*batch_shape, *(1,) * len(rows), *right.spec.shape[len(batch) :]))
    return _Term((*batch, *rows, *columns), bind(Op.registry["mul"](), left, right))


def _grouped(term: _Term, *groups: list[str]) -> Any:
    """Axes in the order of the groups, each of the last two groups flattened to one axis."""
    ordered = permute(term.x, [term.labels.index(n) for group in groups for n in group])
    sizes = dict(zip(term.labels, term.x.spec.shape, strict=True))
    batch, *matrix = groups
    return reshape(ordered, [*(sizes[n] for n in batch), *(prod(sizes[n] for n in group) for group in matrix)])


def _stretch(term: _Term, other: _Term, extents: dict[str, int]) -> _Term:
    """Broadcast extents of 1 that the other operand shares with a larger extent."""
    pairs = zip(term.labels, term.x.spec.shape, strict=True)
    shape = tuple(extents[n] if n in other.labels else extent for n, extent in pairs)
    return _Term(term.labels, broadcast_to(term.x, shape))


def _sum_out(term: _Term, keep: set[str], extents: dict[str, int]) -> _Term:
    axes = tuple(k for k, label in enumerate(term.labels) if label not in keep)
    if not axes:
        return term
    whole = tuple(extents[n] if k in axes else term.x.spec.shape[k] for k, n in enumerate(term.labels))
    summed = bind(Op.registry["sum"](axes), broadcast_to(term.x, whole))
    return _Term(tuple(n for k, n in enumerate(term.labels) if k not in axes), summed)


def _finish(term: _Term, output: tuple[str, ...], extents: dict[str, int]) -> Any:
    kept = _sum_out(term, set(output), extents)
    ordered = permute(kept.x, [kept.labels.index(n) for n in output])
    return broadcast_to(ordered, [extents[n] for n in output])
