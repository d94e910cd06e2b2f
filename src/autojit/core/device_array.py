"""Arrays that are not in the host's memory, as NumPy's arrays are not told apart from: shape, strides and an address.

A `DeviceArray` stands where a tensor on the CPU has its NumPy array. It answers every question about how elements are
laid out, and refuses whoever wants to read them: NumPy gets the wrapper and raises TypeError, so a place that forgot
that tensors have devices is a clear error and never a wrong number. Only the array's `Space` touches the elements.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast, final

import numpy as np

from autojit.core.device import META, Device
from autojit.core.reference_counts import ARGUMENTS_ARE_COUNTED

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

Array: TypeAlias = "NDArray[Any] | DeviceArray"
"""What has the elements of a tensor: an array of NumPy's on the host, a `DeviceArray` elsewhere."""


def is_concrete(array: object) -> bool:
    """Whether something is an array that has its elements, here or elsewhere; faster than `has_layout`."""
    return type(array) is np.ndarray or type(array) is DeviceArray


class Space(Protocol):
    """Memory of one device: what allocates arrays there, moves them, and computes with them at once.

    It is asked for ops and for a few changes by name, never for a function of NumPy's: nobody but the space may reach
    the elements, and memory of a GPU is reached by kernels alone.
    """

    device: Device
    copies_for_numpy: bool
    """Whether ``numpy()`` of a tensor here gives a copy. torch refuses it on every device but the CPU."""
    is_of_host: bool
    """Whether the host's own code reaches this memory."""

    @property
    def stream(self) -> int:
        """The queue that work here is put in, by the driver's number; 0: its default one."""

    def let_wait(self, stream: int) -> None:
        """Let another library's queue wait for what was put in the present one."""

    def wait_for(self, stream: int) -> None:
        """Let what is put in the present queue from now on wait for another library's."""

    def holding(self, layout: NDArray[Any]) -> Any:
        """The array of this space whose memory, which is this space's, has a layout."""

    def copied_in(self, array: NDArray[Any]) -> Any:
        """A copy here of an array on the host; axes keep their order in memory."""

    def copied_out(self, array: DeviceArray) -> NDArray[Any]:
        """A copy on the host of an array here."""

    def allocate(self, shape: tuple[int, ...], dtype: DTypeLike, order: Sequence[int] | None = None) -> Any:
        """An uninitialised array; ``order``: its axes from the outermost in memory, row-major by default."""

    def arena(self, size_bytes: int) -> Any:
        """Memory for the temporaries of one executable, with an ``address``, released with the object."""

    def write(self, target: DeviceArray, source: Array) -> None:
        """Replace the elements of an array here by others, broadcast and converted as NumPy does.

        ``source`` is here or on the host; its memory may be the target's in part.
        """

    def add(self, total: DeviceArray, part: DeviceArray) -> None:
        """Add an array here to another of its shape and dtype, in the memory of that."""

    def apply(self, op: Any, arrays: Sequence[Array]) -> Sequence[Any]:
        """The results of an op on arrays here, and numbers (arrays of rank 0) on the host: in fresh memory here.

        Views are not asked for where they show memory: they are layouts (`holding`).
        """


class Unreadable:
    """What NumPy is refused to compute with."""

    __slots__ = ()
    __array_ufunc__ = None

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        raise TypeError(self._refusal())

    def __array_function__(self, *call: object) -> Any:
        raise TypeError(self._refusal())

    def _refusal(self) -> str:
        raise NotImplementedError


@final
class DeviceArray(Unreadable):
    """Shape, dtype, strides and address of elements in another space than the host's.

    ``layout`` is a NumPy array over these very addresses: views, strides and overlaps of it are exact. Nobody but the
    space may read or write through it.
    """

    __slots__ = ("__weakref__", "layout", "space")

    def __init__(self, layout: NDArray[Any], space: Space) -> None:
        self.layout = layout
        self.space = space

    @property
    def has_no_elements(self) -> bool:
        """Whether it is on the device ``meta``."""
        return self.space.device == META

    def _refusal(self) -> str:
        return f"the elements are on {self.space.device}; copy them to host memory first: x.cpu()"

    shape, dtype, strides, flags, ndim, size, itemsize, nbytes = (
        property(attrgetter(f"layout.{name}"))
        for name in ("shape", "dtype", "strides", "flags", "ndim", "size", "itemsize", "nbytes")
    )

    @property
    def base(self) -> Any:
        """The array whose memory this is a view of; what owns memory is no array."""
        found = self.layout.base
        return found if isinstance(found, np.ndarray) else None

    def transpose(self, axes: Sequence[int]) -> DeviceArray:
        """A view with the axes in another order."""
        return DeviceArray(self.layout.transpose(axes), self.space)

    def reshape(self, *shape: int) -> DeviceArray:
        """A view under another shape.

        Raises:
            ValueError: there is none.
        """
        return DeviceArray(self.layout.reshape(*shape, copy=False), self.space)

    def copy(self, order: Literal["C", "K"] = "C") -> DeviceArray:
        """A copy in the same space: in row-major order, or with the axes in memory as they are here ("K")."""
        made: DeviceArray = self.space.allocate(self.shape, self.dtype, None if order == "C" else _axes_of(self.layout))
        self.space.write(made, self)
        return made


def _axes_of(layout: NDArray[Any]) -> Sequence[int] | None:
    """The axes from the outermost in memory, as NumPy sorts them for its order "K"; None: row-major."""
    if layout.flags.c_contiguous:
        return None
    if layout.flags.f_contiguous:
        return range(layout.ndim)[::-1]
    return sorted(range(layout.ndim), key=lambda axis: -abs(layout.strides[axis]))


def layout_in_memory(array: Array) -> NDArray[Any]:
    """What tells how an array's elements are laid out and at which addresses, wherever they are; not to be read."""
    return array.layout if type(array) is DeviceArray else array


def on_layout(array: Array, layout: NDArray[Any]) -> Any:
    """What shows memory of an array in another layout, in the same space."""
    return array.space.holding(layout) if type(array) is DeviceArray else layout


def first_address(array: Array) -> int:
    """The address of an array's first element."""
    return int(layout_in_memory(array).__array_interface__["data"][0])


def copied_as(array: Array, like: Array | None) -> Any:
    """A copy of an array in its own space, with the axes in memory as another array has them (None: row-major)."""
    if like is None:
        return array.copy(order="C")
    made = empty_as(array, like)
    write_array(made, array)
    return made


def empty_as(array: Array, like: Array) -> Any:
    """Memory for the elements of an array in its space, with the axes as another array of its shape has them."""
    layout = layout_in_memory(like)
    if type(array) is DeviceArray:
        return array.space.allocate(array.shape, array.dtype, _axes_of(layout))
    return np.empty_like(layout, dtype=array.dtype)


def zeros_beside(array: Array, count: int) -> Any:
    """So many zeros of an array's dtype, in its space."""
    zeros = np.zeros(count, array.dtype)
    return array.space.copied_in(zeros) if type(array) is DeviceArray else zeros


def add_in_place(total: Array, part: Array) -> None:
    """Add an array to another of its shape and dtype in the same space, in its memory."""
    if type(total) is DeviceArray:
        total.space.add(total, cast(DeviceArray, part))
        return
    with np.errstate(all="ignore"):
        np.add(total, part, out=total)


def is_held_once(array: object, references: int) -> bool:
    """Whether nobody refers to an array but those who are counted, and no view of its memory is left."""
    if not ARGUMENTS_ARE_COUNTED or sys.getrefcount(array) != references + 1:  # this call's
        return False
    return type(array) is not DeviceArray or sys.getrefcount(array.layout) == 2


def write_array(target: Array, source: Any) -> None:
    """Replace the elements of an array by those of another in the same space, or on the host."""
    if type(target) is DeviceArray:
        target.space.write(target, source)
    else:
        target[...] = source


def packed(array: Array) -> Any:
    """The array, or a copy of it that native code can address: in row-major order, aligned, in this machine's bytes."""
    if array.flags.carray and array.dtype.isnative:
        return array
    if type(array) is DeviceArray:
        return array.copy(order="C")
    return np.require(array, array.dtype.newbyteorder("="), ["C", "A"])


def has_layout(array: object) -> bool:
    """Whether something is an array on the host or elsewhere, and not None or what stands for other elements."""
    return isinstance(array, np.ndarray | DeviceArray)


def share_memory(a: Array, b: Array) -> bool:
    """Whether two arrays may have elements in common, by the bounds of their addresses."""
    return bool(np.may_share_memory(layout_in_memory(a), layout_in_memory(b)))


def host_copy(array: Any) -> NDArray[Any]:
    """The elements of an array where the host can read them: the array itself if it is there."""
    found: NDArray[Any] = array.space.copied_out(array) if type(array) is DeviceArray else array
    return found
