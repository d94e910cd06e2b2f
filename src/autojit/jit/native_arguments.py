"""What the native entry point of a step looks at in the arguments of a call."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from autojit.core.device import CPU, space_at
from autojit.ir.concrete import is_open
from autojit.jit.arguments import ArgumentLeaf
from autojit.runtime.entry_spec import (
    INT64_LEAST,
    INT64_MOST,
    Argument,
    ArrayArgument,
    ArrayCheck,
    Behind,
    EqualIntArgument,
    FloatArgument,
    IntArgument,
    ObjectArgument,
    TensorArgument,
)
from autojit.tensor.storage import INFERENCE_VIEW, View
from autojit.tensor.tensor import Tensor

if TYPE_CHECKING:
    from autojit.runtime.executable import Executable

PLAIN_BASE = Behind("_view", View, "base", Tensor, "_requires_grad", False)
"""A tensor is no view, or one whose base requires no gradients: its own flag says all. Python looks at the others."""


def arguments_of(
    leaves: Sequence[ArgumentLeaf], executable: Executable, alone: Collection[int]
) -> tuple[Argument, ...]:
    """What the entry point demands of each argument; ``alone`` are those that may share their memory with no others."""
    found: list[Argument] = []
    index = 0
    for k, leaf in enumerate(leaves):
        if leaf.kind == "twin":
            first = found[leaf.twin]
            assert isinstance(first, TensorArgument)
            found.append(first._replace(table_index=None))
            continue
        if leaf.value is None:
            is_int = type(leaf.original) is int and INT64_LEAST <= leaf.original <= INT64_MOST
            found.append(EqualIntArgument(leaf.original) if is_int else ObjectArgument(leaf.original))
            continue
        found.append(_input(executable, leaf, index, k in alone))
        index += 1
    return tuple(found)


def _input(executable: Executable, leaf: ArgumentLeaf, index: int, is_alone: bool) -> Argument:
    assert leaf.value is not None
    kind = leaf.value.type
    check = ArrayCheck(kind.shape, kind.dtype.numpy, space=None if kind.device == CPU else space_at(kind.device))
    if leaf.kind == "number":
        executable.pin(index, leaf.cell)
        known = leaf.number_class
        assert known is not None
        made = IntArgument if known.kind is int else FloatArgument
        return made(leaf.cell, known.least, known.most, known.of_type)
    if leaf.kind == "array":
        return ArrayArgument(check, index)
    assert leaf.shell is not None
    slots: tuple[tuple[str, object], ...] = (("_requires_grad", leaf.requires_grad), ("_grad", None))
    if leaf.requires_grad and leaf.is_leaf:
        slots += (("_grad_fn", None),)
    if is_alone:
        slots += (("_storage", None), ("_view", INFERENCE_VIEW if leaf.inference else None))
        return TensorArgument(leaf.tensor_type, check, index, slot_equals=slots)
    return TensorArgument(leaf.tensor_type, check, index, slot_equals=slots, behind=PLAIN_BASE)


def identities_of(arguments: Sequence[ArgumentLeaf]) -> tuple[tuple[int, int, bool], ...]:
    """Which tensor arguments the capture had as one object, and which as two that could be one."""
    found: list[tuple[int, int, bool]] = []
    distinct: dict[object, list[int]] = {}
    for k, leaf in enumerate(arguments):
        if leaf.kind == "twin":
            found.append((leaf.twin, k, True))
        elif leaf.kind == "tensor" and leaf.value is not None:
            kind = leaf.value.type
            alike = (leaf.tensor_type, leaf.requires_grad, kind.dtype, len(kind.shape))
            others = distinct.setdefault(alike, [])
            found += [(j, k, False) for j in others if _may_be_equal(kind.shape, arguments[j])]
            others.append(k)
    return tuple(found)


def _may_be_equal(shape: Sequence[int], other: ArgumentLeaf) -> bool:
    assert other.value is not None
    pairs = zip(shape, other.value.type.shape, strict=True)
    return all(a == b or is_open((a,)) or is_open((b,)) for a, b in pairs)
