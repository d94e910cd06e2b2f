"""Analytic derivatives as arrays, for comparison: by rows with VJPs, by columns with forward mode, or one product.

Matrices are laid out as in ``finite_differences``: ``[elements of the input, elements of the output]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from autojit.autograd import forward_ad
from autojit.autograd.derivatives import grad
from autojit.core.device_array import host_copy, write_array
from autojit.core.layout import strided
from autojit.core.types import TensorType
from autojit.dispatch.on_device import placed
from autojit.gradcheck.errors import GradcheckError
from autojit.gradcheck.finite_differences import Array
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of, wrap

if TYPE_CHECKING:
    from autojit.gradcheck.parts import Part

Function = Callable[..., Any]


class Slot(NamedTuple):
    """An input that is differentiated by.

    ``place`` is its position among the inputs. ``array`` is the memory whose elements are moved, that of ``moved``:
    the input itself, or for a sparse input of which all elements count, an equal one that specifies all of them.
    ``at`` says where in the dense gradient the moved elements are; None means everywhere.
    """

    place: int
    tensor: Tensor
    array: Array
    moved: Tensor
    at: tuple[Array, ...] | None = None

    def flat(self, gradient: Tensor | None) -> Array:
        """A gradient of this input by elements; zeros for None."""
        if gradient is None:
            return np.zeros(self.array.size, self.array.dtype)
        whole = values_of(gradient)
        return np.asarray(whole if self.at is None else whole[self.at]).reshape(-1)


def slot_of(place: int, x: Tensor, masked: bool) -> Slot:
    """The slot of an input; ``masked``: of a sparse one only the specified elements count."""
    if not is_sparse(x):
        return Slot(place, x, x._array, x)
    if masked:
        return Slot(place, x, x._values()._array, x, _places(x))
    dense = x.detach().to_dense()
    every = dense.new_ones(dense.shape)
    full = every.to_sparse(x.sparse_dim() if x.is_sparse else None, layout=x.layout, blocksize=x._blocksize)
    array = full._values()._array
    write_array(array, host_copy(dense._array)[_places(full)])
    full.requires_grad_()
    return Slot(place, x, array, full, _places(full))


def _places(s: Tensor) -> tuple[Array, ...]:
    """The indices of a sparse tensor's specified elements, one array per sparse axis."""
    return tuple(values_of(s._index_part))


def is_sparse(t: Tensor) -> bool:
    """Whether a tensor is kept by places and values."""
    return t.layout is not strided


def as_tuple(found: Any) -> tuple[Any, ...]:
    """A result or an argument as a tuple."""
    return tuple(found) if isinstance(found, tuple | list) else (found,)


def outputs_of(found: Any) -> tuple[Tensor, ...]:
    """All outputs of the checked function.

    Raises:
        ValueError: one is not a Tensor.
    """
    outputs = as_tuple(found)
    for number, o in enumerate(outputs):
        if not isinstance(o, Tensor):
            raise ValueError(
                f"gradcheck: Expected the function to return a Tensor or a sequence of Tensors, but output {number} is "
                f"a {type(o).__name__}"
            )
    return outputs


def differentiable(found: Any) -> tuple[Tensor, ...]:
    """The outputs that require gradients."""
    return tuple(o for o in outputs_of(found) if o.requires_grad)


def values_of(t: Tensor) -> Array:
    """A copy of a tensor's elements, of all of them if it is sparse."""
    t = t.detach()
    return np.array(host_copy((t.to_dense() if is_sparse(t) else t)._array))


# -- reverse mode


def gradients(output: Tensor, slots: Sequence[Slot], vector: Array | None) -> list[Tensor | None]:
    """The VJP of one output with a vector (given flat)."""
    t = type_of(output)
    bar = None if vector is None else placed(wrap(vector.astype(t.dtype.numpy).reshape(t.shape)), t.device)
    return list(grad(output, [s.tensor for s in slots], bar, retain_graph=True, allow_unused=True))


def rows(output: Tensor, slots: Sequence[Slot], check_dtypes: bool) -> list[Array]:
    """Per input the Jacobian of one real output: one VJP per element of the output."""
    size = type_of(output).size
    found = [np.zeros((s.array.size, size), s.array.dtype) for s in slots]
    copy = output.clone()
    for k in range(size):
        vector = np.zeros(size)
        vector[k] = 1
        for jacobian, slot, g in zip(found, slots, gradients(copy, slots, vector), strict=True):
            jacobian[:, k] = _fitting(slot, g, check_dtypes)
    return found


def products(output: Tensor, slots: Sequence[Slot], vector: Array, check_dtypes: bool) -> list[Array]:
    """Per input, flattened: one VJP of a real output."""
    found = gradients(output.clone(), slots, vector)
    return [_fitting(s, g, check_dtypes) for s, g in zip(slots, found, strict=True)]


def _fitting(slot: Slot, g: Tensor | None, check_dtypes: bool) -> Array:
    if g is not None and check_dtypes and type_of(g).dtype is not type_of(slot.tensor).dtype:
        raise GradcheckError(
            f"Gradient has dtype mismatch: {type_of(g).dtype} for an input of {type_of(slot.tensor).dtype}"
        )
    if g is not None and type_of(g).shape != type_of(slot.tensor).shape:
        raise GradcheckError("Analytical gradient has incorrect size")
    return slot.flat(g)


# -- forward mode


class Duals(NamedTuple):
    """Dual inputs of a function: the arguments, and per slot the memory of its tangent."""

    arguments: list[Any]
    tangents: list[Tensor]


@contextmanager
def duals(inputs: Sequence[Any], slots: Sequence[Slot]) -> Iterator[Duals]:
    """A dual level, and the inputs with tangents, all zero so far."""
    with forward_ad.dual_level():
        arguments = list(inputs)
        tangents = []
        for slot in slots:
            primal = slot.tensor.detach()
            dual = forward_ad.make_dual(primal, primal.new_zeros(type_of(primal).shape))
            tangent = forward_ad.unpack_dual(dual).tangent
            assert tangent is not None
            tangents.append(tangent)
            arguments[slot.place] = dual
        yield Duals(arguments, tangents)


def tangents_of(outputs: Sequence[Tensor], types: Sequence[TensorType], check_dtypes: bool) -> list[Array]:
    """Per output, flattened: its tangent, zeros where it has none."""
    found = []
    for o, t in zip(outputs, types, strict=True):
        tangent = forward_ad.unpack_dual(o).tangent
        if tangent is None:
            found.append(np.zeros(t.size, t.dtype.numpy))
            continue
        if check_dtypes and type_of(tangent).dtype is not t.dtype:
            raise GradcheckError(f"Gradient has dtype mismatch: a tangent of {type_of(tangent).dtype} for {t.dtype}")
        found.append(values_of(tangent).reshape(-1))
    return found


def columns(part: Part, along: Slot, chosen: Sequence[int], check_dtypes: bool) -> list[Array]:
    """Per chosen output the Jacobian by one input: one run in forward mode per element of that input."""
    size = along.array.size
    pushed = [push(part, along, np.eye(1, size, k).reshape(-1), chosen, check_dtypes) for k in range(size)]
    if pushed:
        return [np.stack(column) for column in zip(*pushed, strict=True)]
    types = [type_of(outputs_of(part.function(*part.inputs))[k]) for k in chosen]
    return [np.zeros((0, t.size), t.dtype.numpy) for t in types]


def push(part: Part, along: Slot, direction: Array, chosen: Sequence[int], check_dtypes: bool) -> list[Array]:
    """Per chosen output, flattened: the tangent when one input moves along a direction and the others stay."""
    with duals(part.inputs, part.slots) as (arguments, tangents):
        tangent = next(t for s, t in zip(part.slots, tangents, strict=True) if s.place == along.place)
        shape = type_of(tangent).shape
        tangent.copy_(wrap(direction.astype(type_of(tangent).dtype.numpy).reshape(shape)))
        outputs = outputs_of(part.function(*arguments))
        picked = [outputs[k] for k in chosen]
        return tangents_of(picked, [type_of(o) for o in picked], check_dtypes)
