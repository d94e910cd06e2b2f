"""What a node shows of the function call it stands for: ``grad_fn._saved_<name>`` and ``grad_fn._raw_saved_<name>``.

The ops of a composite function save what their rules read. Its last node, which has the function's name, shows the
arguments of the call besides: plain values, a tensor, or tensors that one of the nodes keeps as operands.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from autojit.history.saved import Packed, SavedTensor, freed_error, saved_places
from autojit.tensor.node import FREED
from autojit.tensor.tensor import Tensor

if TYPE_CHECKING:
    from autojit.history.op_node import OpNode


class KeptBy(NamedTuple):
    """An argument that ``node`` keeps as its operand number ``place``; None is the node that shows it."""

    node: Any
    place: int


def is_saved(value: object) -> bool:
    """Whether an argument is a tensor, or holds some."""
    return isinstance(value, Tensor | Packed | KeptBy) or (
        type(value) is tuple and any(type(item) is KeptBy for item in value)
    )


def argument_of(node: OpNode, name: str, is_raw: bool) -> Any:
    """The argument ``name`` of the call that ``node`` stands for, or the SavedTensor (or a tuple of them) behind it.

    Raises:
        RuntimeError: it is a tensor, and the graph has been freed.
    """
    value = node.arguments[name]
    if type(value) is KeptBy:
        return _kept(node, value, is_raw)
    if type(value) is tuple and is_saved(value):
        return tuple(_kept(node, item, is_raw) for item in value)
    if not is_saved(value):
        return value
    if any(entry is FREED for entry in (*node.primals, *node.results)):
        raise freed_error(node)

    def unpack() -> Any:
        kept = node.arguments[name]
        return kept.unpack_operand() if type(kept) is Packed else kept

    if not is_raw:
        return unpack()
    return SavedTensor.of(lambda: node.arguments[name], lambda packed: node.arguments.__setitem__(name, packed), unpack)


_EXTENTS = re.compile(r"(\w+?)_sym_(sizes|argsize_(minus_)?(\d+))")


def extents_of(node: OpNode, name: str) -> Any:
    """The shape of an operand (``self_sym_sizes``) or one extent of it (``self_sym_argsize_0``, ``..._minus_1``).

    None: the name says nothing of that kind about the node.
    """
    found = _EXTENTS.fullmatch(name)
    if found is None:
        return None
    kind, place = saved_places(node.op, len(node.primals), len(node.results)).get(found[1], ("", 0))
    if kind != "primal" or node.primals[place] is FREED:
        return None
    kept = node.primals[place]
    shape = kept.shape if isinstance(kept, Tensor) else node._unpack(kept, place).spec.shape
    if found[2] == "sizes":
        return tuple(shape)
    axis = int(found[4])
    return shape[-axis if found[3] else axis]


def _kept(node: OpNode, item: KeptBy | None, is_raw: bool) -> Any:
    if item is None:
        return SavedTensor.of(lambda: None, lambda packed: None, lambda: None) if is_raw else None
    keeper = node if item.node is None else item.node
    return keeper._raw("primal", item.place) if is_raw else keeper._saved("primal", item.place)
