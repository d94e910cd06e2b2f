"""The families of ops: what an op shares with its kind, so that an op itself is a few short methods.

- ``Elementwise``: implicit NumPy broadcasting over operands of one dtype; gives type, batching, unbroadcasting, and the
  VJP and JVP from one statement of the partial derivatives.
- ``Reindex``: every output element is one input element; states its index map.
- ``Reduction``: folds axes with an associative operator.
- ``Source``: no operands (constants, iota).
- ``EqualByText``: holds graphs.
- ``Structured``: anything else, with a kernel of its own (matmul, scatter, scans) or computed by ``eager``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from itertools import pairwise
from types import FunctionType
from typing import Any, ClassVar

from autojit.core.dtypes import DType
from autojit.core.errors import AxisError, DTypeError, ShapeError, UnsupportedDTypeError, int_expected
from autojit.core.sizes import fit, is_symbolic, seems_equal, surely_equal
from autojit.core.types import Shape, TensorType
from autojit.ir.index import Index
from autojit.ir.op import O, Op, Operands, Rule, bind, linear_jvp
from autojit.ops.cotangent_masks import cotangent_product
from autojit.ops.loop_orders import settled

Axes = int | Sequence[int] | None


def normalize_axis(axis: int, ndim: int, op: str = "op") -> int:
    """A non-negative axis; AxisError (an IndexError, as torch) when out of range. Rank 0 counts as rank 1."""
    if type(axis) is not int:
        axis = as_axis(axis, op)
    span = max(ndim, 1)
    if not -span <= axis < span:
        bounds = f"[{-span}, {span - 1}]"
        raise AxisError(f"{op}: Dimension out of range (expected to be in range of {bounds}, but got {axis})")
    return axis + span if axis < 0 else axis


def as_axis(axis: Any, op: str) -> int:
    """An axis as a plain int; TypeError for what is none."""
    if isinstance(axis, bool) or not hasattr(type(axis), "__index__"):
        raise int_expected(axis, f"{op}(): argument 'dim'")
    return int(axis)


def normalize_axes(axes: Axes, ndim: int, op: str = "op") -> tuple[int, ...]:
    """Sorted, unique, non-negative axes; ``None`` and ``()`` mean all of them."""
    if axes is None or (not isinstance(axes, int) and len(axes) == 0):
        return tuple(range(ndim))
    given = (axes,) if isinstance(axes, int) else tuple(axes)
    found = tuple(sorted(normalize_axis(a, ndim, op) for a in given))
    if len(set(found)) != len(found):
        twice = next(a for a, b in pairwise(found) if a == b)
        raise ShapeError(f"dim {twice} appears multiple times in the list of dims", {"dims": list(given), "op": op})
    return () if ndim == 0 else found


def broadcast_shapes(*shapes: Shape, op: str = "op") -> Shape:
    """NumPy's broadcast shape; ShapeError with torch's wording when there is none."""
    first = shapes[0]
    for other in shapes:
        if not surely_equal(other, first):
            return _broadcast(shapes, op)
    return first


def _broadcast(shapes: Sequence[Shape], op: str) -> Shape:
    ndim = max(map(len, shapes))
    result = [1] * ndim
    for shape in shapes:
        for axis, extent in enumerate(shape, start=ndim - len(shape)):
            have = result[axis]
            if surely_equal(extent, have) or surely_equal(extent, 1):
                continue
            is_stretched = surely_equal(have, 1)
            if not is_stretched and not fit(extent, have):
                if seems_equal(extent, 1):
                    continue
                is_stretched = seems_equal(have, 1)
                if not is_stretched:
                    raise _unlike(shapes, axis, have, extent, op)
            if not is_stretched and not is_symbolic(have):
                continue  # sizes that agree in this capture: the number stays
            result[axis] = extent
    return tuple(result)


def _unlike(shapes: Sequence[Shape], axis: int, a: int, b: int, op: str) -> ShapeError:
    return ShapeError(
        f"{op}: The size of tensor a ({a}) must match the size of tensor b ({b}) at non-singleton dimension {axis}",
        facts={f"operand {i}": list(s) for i, s in enumerate(shapes)},
        fix="make the extents equal or 1, or reshape an operand",
    )


def resolve(cotangent: Any) -> Any:
    """A cotangent entry as an operand or None: thunks are called."""
    kind = type(cotangent)
    if kind is FunctionType or kind is partial:
        return cotangent()
    return cotangent() if callable(cotangent) and not hasattr(cotangent, "_bind") else cotangent


class EqualByText(Op, abstract=True):
    """An op with graphs among its static parameters: equal when the texts are. Its record has ``eq=False``."""

    def _key(self) -> str:
        found = self.__dict__.get("_text")
        if found is None:
            found = str(self)
            object.__setattr__(self, "_text", found)
        return found

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, EqualByText) and self._key() == other._key())

    def __hash__(self) -> int:
        return hash(self._key())


def _settled_rule(eager: Rule) -> Rule:
    @wraps(eager)
    def rule(self: Op, *arrays: Any) -> Any:
        return settled(partial(eager, self))(*arrays)

    return rule


class Elementwise(Op, abstract=True):
    """One output element from the operands' elements at the same (broadcast) position.

    A subclass gives ``eager``, ``partials`` (or its own vjp and jvp) and ``lower(emit, *scalars) -> scalar``, unless
    that is the emitter's method of the op's name.
    ``accepts`` restricts operand dtypes by kind; ``result_dtype`` maps the operand dtype to the result's.
    """

    keeps_order: ClassVar[bool] = True
    accepts: ClassVar[tuple[str, ...]] = ("bool", "uint", "int", "float", "complex")
    is_cheap: ClassVar[bool] = True  # cheap to compute again rather than to store
    masks_cotangents: ClassVar[bool] = False

    def __init_subclass__(cls, abstract: bool = False, **options: object) -> None:
        super().__init_subclass__(abstract, **options)
        eager = cls.__dict__.get("eager")
        if eager is not None and not cls.__dict__.get("is_one_loop") and not cls.is_view:
            cls.eager = _settled_rule(eager)

    def has_code(self, machine: str) -> bool:
        """Whether generated code of a kind of machine (``"cpu"``, ``"cuda"``) computes it; else it is called back."""
        return True

    def result_dtype(self, dtype: DType) -> DType:
        return dtype

    def result_type(self, *types: TensorType) -> TensorType:
        first = types[0]
        if first.dtype.kind not in self.accepts:
            raise UnsupportedDTypeError(f'"{self.name}" not implemented for {first.dtype}', {"operand": first})
        for other in types[1:]:
            if other.dtype is not first.dtype:
                raise DTypeError(f"{self.name}: operands differ in dtype", {"operands": [str(t) for t in types]})
        shape = broadcast_shapes(*[t.shape for t in types], op=self.name)
        return TensorType(shape, self.result_dtype(first.dtype), first.device)

    def partials(self, primals: Operands, result: O) -> Sequence[Any]:
        """Per operand: the partial derivative as an operand, a thunk making it, or None for zero."""
        raise NotImplementedError(self.name)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        def cotangent(partial: Any) -> Callable[[], Any]:
            return lambda: cotangent_product(y_bar, conjugate(resolve(partial)))

        return tuple(None if p is None else cotangent(p) for p in self.partials(primals, result))

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        total: Any = None
        for slope, x_dot in zip(self.partials(primals, result), tangents, strict=True):
            if slope is None or x_dot is None:
                continue
            total = tangent_sum(total, _mul(resolve(slope), x_dot))
        return total

    def unbroadcast(self, x_bar: Any, x: Any) -> Any:
        return sum_to(x_bar, x.spec.shape)

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        ranks = [a.spec.ndim - flag for a, flag in zip(args, batched, strict=True)]
        rank = max(ranks)
        aligned = [
            _lead(a, rank - r) if flag and r < rank else a for a, flag, r in zip(args, batched, ranks, strict=True)
        ]
        return bind(self, *aligned)

    def lower(self, emit: Any, *scalars: Any) -> Any:
        return getattr(emit, self.name)(*scalars)


class Reindex(Op, abstract=True):
    """Every output element is one element of the only operand: ``y[i] = x[source_index(i)]``. Linear.

    ``source_index`` states the map; ``valid`` (for padding) lists (index, low, high) conditions under which the
    element exists at all, else it is ``value``. Subclasses that alias set ``is_view`` and give ``unview(base, piece)``:
    base with the viewed elements replaced.
    """

    def source_index(self, index: tuple[Index, ...], x: TensorType) -> tuple[Index, ...]:
        raise NotImplementedError(self.name)

    def valid(self, index: tuple[Index, ...], x: TensorType) -> tuple[tuple[Index, int, int], ...]:
        return ()

    jvp = linear_jvp

    def unview(self, base: O, piece: O) -> O:
        raise NotImplementedError(self.name)


class Reduction(Op, abstract=True):
    """Folds ``axes`` (sorted, non-negative, unique) away. ``lower(emit, dtype)`` gives (identity, combine)."""

    axes: tuple[int, ...]

    def result_type(self, x: TensorType) -> TensorType:
        return x.drop(self.axes)

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        (x,) = args
        return bind(type(self)(tuple(a + 1 for a in self.axes)), x)


class Constants(Op, abstract=True):
    """No operands, and so no derivative."""

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        return ()

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        return None

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        raise AssertionError("a source has no operands to batch")


class Source(Constants, abstract=True):
    """No operands. ``lower(emit, index)`` gives the element at an index."""


class Structured(Op, abstract=True):
    """An op for whose class ``codegen`` has a printer of kernels; without one the step calls ``eager``.

    One that writes its own kernel says so by its method (`codegen.kernel_function.WritesKernel`).
    """


def keep_axes(shape: Shape, axes: tuple[int, ...]) -> Shape:
    """The shape after a reduction that keeps ``axes`` with extent 1."""
    return tuple(1 if axis in axes else n for axis, n in enumerate(shape))


def is_expandable(shape: Shape, wanted: Shape) -> bool:
    """Whether ``shape`` can be broadcast to ``wanted``: its extents are 1 or the same."""
    added = len(wanted) - len(shape)
    pairs = zip(shape, wanted[added:], strict=False)
    return added >= 0 and all(n is m or seems_equal(n, 1) or seems_equal(n, m) for n, m in pairs)


def unexpandable(old: Shape, new: Shape) -> str:
    """Why axes cannot be repeated to a shape: the last one that does not fit."""
    missing = len(new) - len(old)
    if missing < 0:
        return f"expand: the operand, of {len(old)} dimensions, cannot be broadcast to {list(new)}"
    axis = max((k for k, n in enumerate(old) if n not in (1, new[missing + k])), default=0) + missing
    return (
        f"The expanded size of the tensor ({new[axis]}) must match the existing size ({old[axis - missing]}) at "
        f"non-singleton dimension {axis}.  Target sizes: {list(new)}.  Tensor sizes: {list(old)}"
    )


def sum_to(x: O, shape: Shape) -> O:
    """Sum the axes that broadcasting ``shape`` to ``x`` added or stretched: the transpose of broadcasting."""
    if surely_equal(x.spec.shape, shape):
        return x
    added = x.spec.ndim - len(shape)
    axes = tuple(axis for axis, n in enumerate(x.spec.shape) if axis < added or _is_stretched(shape[axis - added], n))
    total = bind(Op.registry["sum"](axes), x) if axes else x
    return total if surely_equal(total.spec.shape, shape) else bind(Op.registry["reshape"](shape), total)


def _is_stretched(before: int, after: int) -> bool:
    return not surely_equal(before, after) and seems_equal(before, 1)


def _mul(a: O, b: O) -> O:
    return bind(Op.registry["mul"](), a, b)


def tangent_sum(a: Any, b: Any) -> Any:
    """``a + b`` of tangents, or cotangents, of which None is zero."""
    if a is None or b is None:
        return a if b is None else b
    return bind(Op.registry["add"](), a, b)


def product_jvp(self: Op, primals: Operands, result: O, tangents: Operands) -> Any:
    """The ``jvp`` of an op that is linear in each of its two operands."""
    (x, y), (x_dot, y_dot) = primals, tangents
    by_x = None if x_dot is None else bind(self, x_dot, y)
    return tangent_sum(by_x, None if y_dot is None else bind(self, x, y_dot))


def tangent_difference(a: Any, b: Any) -> Any:
    """``a - b`` of tangents, of which None is zero."""
    if b is None:
        return a
    return bind(Op.registry["neg"](), b) if a is None else bind(Op.registry["sub"](), a, b)


def conjugate(x: O) -> O:
    """The complex conjugate; real operands are returned as they are."""
    return bind(Op.registry["conj"](), x) if x.spec.dtype.is_complex else x


def _lead(x: O, count: int) -> O:
    """Insert ``count`` axes of extent 1 after the batch axis."""
    shape = (x.spec.shape[0], *(1,) * count, *x.spec.shape[1:])
    return bind(Op.registry["reshape"](shape), x)
