"""SparseTensor: the places and the values of the elements that are not zero.

A sparse tensor is a pair of ordinary tensors, so nothing below it is new: its history, hooks and gradients are those of
``_values_part``, and every op on it is written with dense ops on the two parts (``rules.py``). Methods that construct
or compute are in ``methods.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from typing import cast as typed
from weakref import WeakKeyDictionary

import numpy as np

from autojit.core.device_array import host_copy
from autojit.core.dtypes import DType
from autojit.core.errors import UsageError
from autojit.core.layout import Layout, sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr
from autojit.core.types import TensorType
from autojit.dispatch.on_device import placed
from autojit.dispatch.promotion import cast
from autojit.functions.elementwise import clone
from autojit.tensor import Tensor
from autojit.tensor.state import state
from autojit.tensor.storage import ElsewhereArray
from autojit.tensor.tensor import type_of, wrap

T = TypeVar("T", bound=Tensor)


class SparseTensor(Tensor):
    """A tensor kept as the places and values of some of its elements; the others are zero.

    ``_index_part`` is ``i64[sparse_dim, n]``, ``_values_part`` ``f[n, *dense shape]``. In the CSR layout
    ``_row_starts`` is the ``crow_indices`` beside it. In a coalesced tensor no place occurs twice and places are in
    order. The layouts by columns and by blocks (of extents ``_blocksize``) keep every element of a block the same way
    and are put in their order when they are looked at.
    """

    __slots__ = ("_blocksize", "_index_part", "_is_coalesced", "_layout", "_row_starts", "_shown_of", "_values_part")
    _blocksize: tuple[int, int] | None
    _index_part: Tensor
    _values_part: Tensor
    _row_starts: Tensor | None
    _layout: Layout
    _is_coalesced: bool
    _shown_of: tuple[SparseTensor, Tensor] | None  # a leaf, and which gradient of its values this tensor shows

    if TYPE_CHECKING:  # of ``sparse.methods``

        def coalesce(self) -> SparseTensor: ...

    @property
    def layout(self) -> Layout:
        """``sparse_coo``, or how the places of a matrix are compressed."""
        return self._layout

    @property
    def is_sparse(self) -> bool:
        """Whether the layout is COO."""
        return self._layout is sparse_coo

    @property
    def is_sparse_csr(self) -> bool:
        """Whether the layout is CSR."""
        return self._layout is sparse_csr

    def sparse_dim(self) -> int:
        """The number of axes whose places are kept."""
        return type_of(self._index_part).shape[0]

    def dense_dim(self) -> int:
        """The number of axes that every kept value has."""
        return type_of(self).ndim - self.sparse_dim()

    def _nnz(self) -> int:
        count = type_of(self._index_part).shape[1]
        return count if self._blocksize is None else count // (self._blocksize[0] * self._blocksize[1])

    def _indices(self) -> Tensor:
        self._require_coo("_indices")
        return self._index_part

    def _values(self) -> Tensor:
        return self._values_part.detach()

    def indices(self) -> Tensor:
        """The places of a coalesced COO tensor: ``i64[sparse_dim, n]``."""
        self._require_coo("indices")
        self._require_coalesced("indices")
        return self._index_part

    def values(self) -> Tensor:
        """The values, differentiably: ``f[n, *dense shape]``, or ``f[n, *blocksize]``.

        Those of a COO tensor must be coalesced.
        """
        if self.is_sparse:
            self._require_coalesced("values")
        return self._values_part if self._layout in (sparse_coo, sparse_csr) else in_order(self)

    def crow_indices(self) -> Tensor:
        """Where each row (of blocks) starts among the values: ``i64[rows + 1]`` (CSR, BSR)."""
        self._require_one((sparse_csr, sparse_bsr), "crow_indices", "row")
        return starts(self) if self._row_starts is None else self._row_starts

    def col_indices(self) -> Tensor:
        """The column of each value (block): ``i64[n]`` (CSR, BSR)."""
        self._require_one((sparse_csr, sparse_bsr), "col_indices", "row")
        return others(self) if self._row_starts is None else self._index_part[1]

    def ccol_indices(self) -> Tensor:
        """Where each column (of blocks) starts among the values: ``i64[columns + 1]`` (CSC, BSC)."""
        self._require_one((sparse_csc, sparse_bsc), "ccol_indices", "column")
        return starts(self)

    def row_indices(self) -> Tensor:
        """The row of each value (block): ``i64[n]`` (CSC, BSC)."""
        self._require_one((sparse_csc, sparse_bsc), "row_indices", "column")
        return others(self)

    def is_coalesced(self) -> bool:
        """Whether no place occurs twice and the places are in order."""
        self._require_coo("is_coalesced")
        return self._is_coalesced

    def _require_coo(self, method: str) -> None:
        if self._layout is not sparse_coo:
            raise UsageError(
                f"{method} expected sparse coordinate tensor layout but got {words(self._layout)}",
                {"input": type_of(self)},
                "convert it: .to_sparse() or .to_sparse_csr()",
            )

    def _require_one(self, layouts: tuple[Layout, Layout], method: str, what: str) -> None:
        if self._layout not in layouts:
            raise UsageError(
                f"{method} expected sparse {what} compressed tensor layout but got {words(self._layout)}",
                {"input": type_of(self)},
                f"convert it: .to_sparse(layout={layouts[0]!r})",
            )

    def _require_coalesced(self, method: str) -> None:
        if not self._is_coalesced:
            raise UsageError(
                f"Cannot get {method} on an uncoalesced tensor, please call .coalesce() first",
                {"input": type_of(self)},
            )

    # --------------------------------------------------------------------------------- history: that of the values

    def _differentiated(self) -> Tensor:
        return self._values_part

    def _with_part(self, part: Tensor) -> Tensor:
        return self.with_values(part)

    def _leaf_of(self, cls: type[T], requires_grad: bool) -> T:
        """A leaf of ``cls`` with these places and values: of a class that is also sparse."""
        made = self.with_values(self._values_part.detach().requires_grad_(requires_grad))
        made.__class__ = cls if issubclass(cls, SparseTensor) else _sparse_form(cls)
        return typed(T, made)

    def _become(self, other: Tensor) -> None:
        """This tensor now has the places and values of another one of its shape.

        Raises:
            RuntimeError: the other is dense.
        """
        if not isinstance(other, SparseTensor):
            raise UsageError(
                "a sparse tensor cannot be changed in place into a dense one",
                {"input": type_of(self), "result": type_of(other)},
                "change the dense operand in place, dense.add_(sparse), or use the out-of-place form",
            )
        ours, theirs = self._values_part, other._values_part
        is_recorded = state.grad_enabled and (ours.requires_grad or theirs.requires_grad)
        if not is_recorded and self._index_part is other._index_part and type_of(ours) == type_of(theirs):
            ours.copy_(theirs)  # in place, as for a dense tensor: whoever shares the values sees it
        elif _is_from_outside(ours):
            assert state.trace is not None
            state.trace.cannot("the step gives a sparse tensor from outside other places, or a history")
        elif not is_recorded and ours.requires_grad:
            self.data = other  # a leaf stays one
        else:
            self._take_places(other)
            self._values_part = theirs
        if self._shown_of is not None:
            leaf, part = self._shown_of
            if leaf._values_part.grad is part:
                leaf.grad = self
                self._shown_of = leaf, leaf._values_part.grad

    def _take_places(self, other: SparseTensor) -> None:
        self._index_part, self._row_starts = other._index_part, other._row_starts
        self._layout, self._blocksize, self._is_coalesced = other._layout, other._blocksize, other._is_coalesced
        self._type, self._array = other._type, other._array

    @property
    def requires_grad(self) -> bool:
        return self._values_part.requires_grad

    @requires_grad.setter
    def requires_grad(self, flag: bool) -> None:
        self._values_part.requires_grad = flag

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """As of a dense tensor."""
        self._values_part.requires_grad_(requires_grad)
        return self

    @property
    def grad_fn(self) -> Any:
        return self._values_part.grad_fn

    @property
    def is_leaf(self) -> bool:
        return bool(self._values_part.is_leaf)

    @property
    def grad(self) -> Tensor | None:
        """The gradient: sparse, with the same places."""
        part = self._values_part.grad
        found: SparseTensor | None = self._from_part(part)
        if found is not None and part is not None:
            found._shown_of = self, part  # what changes it in place changes the gradient
        return found

    @grad.setter
    def grad(self, value: Any) -> None:
        self._values_part.grad = None if value is None else self._part_of(value).detach()

    @property
    def retains_grad(self) -> bool:
        return self._values_part.retains_grad

    def retain_grad(self) -> None:
        """As of a dense tensor."""
        self._values_part.retain_grad()

    def register_hook(self, hook: Callable[[Any], Any]) -> Any:
        """As of a dense tensor; the hook gets a sparse gradient."""

        def on_values(grad: Any) -> Any:
            return self._part_of(hook(self._from_part(grad)))

        return self._values_part.register_hook(on_values)

    # --------------------------------------------------------------------------------------------------- conversion

    def with_values(self, values: Tensor, dtype: DType | None = None) -> SparseTensor:
        """The same places with other values."""
        return make(
            self._index_part, values if dtype is None else cast(values, dtype), type_of(self).shape, self._layout,
            self._is_coalesced, self._row_starts, self._blocksize,
        )  # fmt: skip

    def detach(self) -> Tensor:
        """The same places and values, without history."""
        return self.with_values(self._values_part.detach())

    @property
    def data(self) -> Tensor:
        return self.detach()

    @data.setter
    def data(self, new: Tensor) -> None:
        if not isinstance(new, SparseTensor):
            raise UsageError(
                "Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have incompatible tensor "
                "type.",
                {"variable": type_of(self), "tensor": new},
                "convert it: .to_sparse()",
            )
        grad = self.grad  # its places go on to be those of the tensor
        self._take_places(new)
        self._values_part.data = new._values_part
        self.grad = grad

    def clone(self, *, memory_format: Any = None) -> Tensor:
        """A differentiable copy of the values, with the same places."""
        return self.with_values(clone(self._values_part))

    def numpy(self, *, force: bool = False) -> Any:
        """Not possible: NumPy has no sparse arrays."""
        raise TypeError(f"can't convert {words(self._layout)} tensor to numpy; use x.to_dense().numpy()")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.numpy()

    def tolist(self) -> Any:
        """Nested lists of all elements."""
        return self.to_dense().tolist()

    def item(self) -> Any:
        """The only element as a Python number."""
        return self.to_dense().item()

    def to(self, *arguments: Any, **options: Any) -> Tensor:
        """Other dtype of the values."""
        return self.with_values(self._values_part.to(*arguments, **options))

    def float(self, memory_format: Any = None) -> Tensor:
        """Values in float32."""
        return self.with_values(self._values_part.float(memory_format))

    def double(self, memory_format: Any = None) -> Tensor:
        """Values in float64."""
        return self.with_values(self._values_part.double(memory_format))

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Not a question for sparse tensors."""
        raise UsageError("Tensors of type SparseTensorImpl do not have is_contiguous")

    def stride(self, dim: int | None = None) -> Any:
        """Not a question for sparse tensors."""
        raise UsageError("Sparse tensors do not have strides")

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        parts = [f"indices={self._index_part.detach()!r}"]
        if self._layout in (sparse_csr, sparse_bsr):
            parts = [f"crow_indices={self.crow_indices()!r}", f"col_indices={self.col_indices()!r}"]
        elif self._layout is not sparse_coo:
            parts = [f"ccol_indices={starts(self)!r}", f"row_indices={others(self)!r}"]
        values = self._values() if self._layout is sparse_coo else self.values().detach()
        parts += [f"values={values!r}", f"size={tuple(self.shape)}", f"nnz={self._nnz()}"]
        parts += [f"layout={self._layout!r}"]
        if self.requires_grad:
            parts.append("requires_grad=True" if self.is_leaf else f"grad_fn=<{self.grad_fn.name()}>")
        indent = ",\n       "
        return f"tensor({indent.join(parts)})"

    __str__ = __repr__
    __hash__ = Tensor.__hash__


def _is_from_outside(values: Tensor) -> bool:
    """Whether a step that is being captured was given the tensor, or found it: its attributes must stay."""
    trace = state.trace
    return trace is not None and (trace.is_given(values) if values._array is None else not trace.has_begun(values))


_sparse_forms: WeakKeyDictionary[type, type[SparseTensor]] = WeakKeyDictionary()


def _sparse_form(cls: type) -> type[SparseTensor]:
    """A class of tensors (``Parameter``), its objects kept as places and values."""
    found = _sparse_forms.get(cls)
    if found is None:
        found = type(cls.__name__, (cls, SparseTensor), {"__slots__": (), "__module__": cls.__module__})
        _sparse_forms[cls] = found
    return found


def words(layout: Layout) -> str:
    """What messages call a layout: ``Sparse``, ``SparseCsr``, ..."""
    return "Sparse" + layout.name.removeprefix("sparse_").removesuffix("coo").capitalize()


def make(
    indices: Tensor,
    values: Tensor,
    shape: tuple[int, ...],
    layout: Layout = sparse_coo,
    is_coalesced: bool = False,
    row_starts: Tensor | None = None,
    blocksize: tuple[int, int] | None = None,
) -> SparseTensor:
    """A sparse tensor of parts that fit each other."""
    made: SparseTensor = object.__new__(SparseTensor)
    for slot in Tensor.__slots__:
        if slot not in ("__dict__", "__weakref__"):
            setattr(made, slot, None)
    dtype = type_of(values).dtype
    made._requires_grad = made._retains_grad = False
    made._output_nr = 0
    made._type = TensorType(tuple(shape), dtype, type_of(values).device)
    made._array = ElsewhereArray(tuple(shape), dtype.numpy)
    made._index_part, made._values_part, made._row_starts = indices, values, row_starts
    made._layout, made._is_coalesced, made._blocksize, made._shown_of = layout, is_coalesced, blocksize, None
    return made


def concrete_indices(s: SparseTensor, what: str) -> np.ndarray[Any, Any]:
    """The places as an array, which ``what`` needs to find out how many there are; an error while they are traced."""
    array = s._index_part._array
    if array is None:
        raise UsageError(
            f"{what}: the number of different places depends on values that a captured step does not have",
            {"input": type_of(s)},
            "call .coalesce() before the step, or make the sparse tensor outside it",
        )
    return host_copy(array)


def _in_blocks(s: SparseTensor) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Per kept element, in the order of a compressed layout: its position in ``s``, its line of blocks, its block.

    A line is a row of blocks, or a column of them in the layouts by columns. Without ``_blocksize`` a block is one
    element.
    """
    high, wide = s._blocksize or (1, 1)
    row, column = concrete_indices(s, "the parts of a compressed layout")
    lines, across = row // high, column // wide
    if s._layout in (sparse_csc, sparse_bsc):
        lines, across = across, lines
    order = np.lexsort((column % wide, row % high, across, lines))
    return order, lines[order], across[order]


def beside(s: SparseTensor, found: np.ndarray[Any, Any]) -> Tensor:
    """What the host found out about a sparse tensor, on its device."""
    return placed(wrap(found), type_of(s).device)


def in_order(s: SparseTensor) -> Tensor:
    """The values in the order of the layout, differentiably, block by block."""
    found = s._values_part.index_select(0, beside(s, _in_blocks(s)[0]))
    return found if s._blocksize is None else found.reshape((-1, *s._blocksize))


def starts(s: SparseTensor) -> Tensor:
    """Where each line of blocks starts."""
    high, wide = s._blocksize or (1, 1)
    rows, columns = type_of(s).shape[:2]
    count = columns // wide if s._layout in (sparse_csc, sparse_bsc) else rows // high
    found = np.searchsorted(_in_blocks(s)[1], np.arange(count + 1)) // (high * wide)
    return beside(s, found.astype(np.int64))


def others(s: SparseTensor) -> Tensor:
    """Where in its line each block is."""
    high, wide = s._blocksize or (1, 1)
    return beside(s, np.ascontiguousarray(_in_blocks(s)[2][:: high * wide]))


__all__ = ["SparseTensor", "concrete_indices", "make", "words"]
