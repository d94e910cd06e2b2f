"""What the elementwise ops share: evaluation by one NumPy function, guarded cotangents, sample inputs.

A parameterless op inherits the dataclass behaviour (equality by class, no fields) of ``Pointwise`` instead of being
decorated: a decorator call costs 0.4 ms of import time, and there are a hundred such ops.

Guarded cotangents: behind a masked branch (``cotangent_masks``) the VJP multiplies with ``guarded_mul``, which is 0
where the incoming cotangent is 0. So ``where(x > 0, sqrt(x), 0)`` has gradient 0 at 0, not NaN, and derivatives of
every order stay right, because ``guarded_mul`` is an op with its own exact rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, ClassVar, TypeVar

import numpy as np

from autojit.core.dtypes import DType, bfloat16, bool_, float16, float32
from autojit.core.records import record
from autojit.core.types import Shape
from autojit.ir.op import Ndarray, O, Op, Operands, bind
from autojit.ops.base import Elementwise, conjugate, resolve
from autojit.ops.by_name import apply
from autojit.ops.cotangent_masks import cotangent_quotient, masking
from autojit.ops.loop_orders import settled
from autojit.ops.samples import Samples
from autojit.ops.sources import Number, pair

__all__ = ["FLOATS", "REALS", "Binary", "Divisor", "Pointwise", "Predicate", "Slope", "is_complex", "widened"]

FLOATS = ("float", "complex")
REALS = ("bool", "uint", "int", "float")
Ufunc = Callable[..., Any]
F = TypeVar("F", bound=Callable[..., object])

_SHAPES: dict[int, list[tuple[Shape, ...]]] = {
    1: [((2, 3),), ((),), ((0, 3),)],
    2: [((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((), (3,)), ((), ()), ((0, 3), (1, 3))],
    3: [((2, 3), (2, 3), (2, 3)), ((3,), (2, 1), ()), ((), (), ()), ((0, 3), (0, 3), (3,))],
}


def widened(function: Ufunc) -> Ufunc:
    """Compute 2-byte floats in float32 and round once."""

    @wraps(function)
    def wide(*arrays: Ndarray) -> Any:
        narrow = arrays[0].dtype
        if narrow.itemsize != 2 or narrow.kind in "iu":
            return function(*arrays)
        return np.asarray(function(*[a.astype(np.float32) for a in arrays])).astype(narrow)

    return wide


def sample_array(shape: Shape, dtype: DType, domain: tuple[float, float], seed: int) -> Ndarray:
    """Seeded uniform numbers in the domain; integers are its whole numbers, bools fair coins."""
    generator = np.random.default_rng(seed)
    low, high = domain
    if dtype.kind == "bool":
        return np.asarray(generator.integers(0, 2, shape).astype(np.bool_))
    values = low + (high - low) * generator.random(shape)
    if dtype.kind in ("int", "uint"):
        whole = np.floor(np.abs(values) if dtype.kind == "uint" else values)
        return np.asarray(whole.astype(dtype.numpy))
    if dtype.kind == "complex":
        values = values + 1j * (low + (high - low) * generator.random(shape))
    return np.asarray(np.asarray(values).astype(dtype.numpy))


def sample_inputs(arity: int, domain: tuple[float, float], dtype: DType) -> list[tuple[Ndarray, ...]]:
    """Inputs of every layout: full, 0-d, empty, broadcast against each other, and (last) transposed."""
    found = [
        tuple(sample_array(shape, dtype, domain, 7 * case + k) for k, shape in enumerate(shapes))
        for case, shapes in enumerate(_SHAPES[arity])
    ]
    strided = tuple(sample_array((3, 4), dtype, domain, 90 + k)[:, ::2].T for k in range(arity))
    return [*found, strided]


@record
class Pointwise(Elementwise, abstract=True):
    """An elementwise op evaluated by ``ufunc``; base of the parameterless ops."""

    is_one_loop: ClassVar[bool] = True  # where ``ufunc`` is one of NumPy's; others are settled
    ufunc: ClassVar[Ufunc]
    arity: ClassVar[int] = 1
    domain: ClassVar[tuple[float, float]] = (-2.0, 2.0)  # of the sample inputs

    def __init_subclass__(cls, abstract: bool = False, **options: object) -> None:
        super().__init_subclass__(abstract, **options)
        is_one_loop = cls.__dict__.get("is_one_loop") or cls.is_view or isinstance(cls.__dict__.get("ufunc"), np.ufunc)
        if not is_one_loop and "ufunc" in cls.__dict__:
            cls.ufunc = staticmethod(settled(cls.ufunc))
        if not abstract and cls.arity == 2 and cls.eager is Pointwise.eager:
            cls.of_pair = staticmethod(cls.ufunc)

    def __hash__(self) -> int:
        return hash(type(self))

    def eager(self, *arrays: Ndarray) -> Any:
        return type(self).ufunc(*arrays)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        name = "guarded_mul" if masking.is_on else "mul"
        slopes = self.partials(primals, result)
        return tuple([None if slope is None else partial(_scaled, name, y_bar, slope) for slope in slopes])

    @classmethod
    def samples(cls, dtype: DType) -> Samples:
        if dtype.kind not in cls.accepts:
            return []
        return [(cls(), inputs) for inputs in sample_inputs(cls.arity, cls.domain, dtype)]


def _scaled(name: str, y_bar: O, slope: O) -> O:
    """The cotangent times (the conjugate of) a partial derivative, by the op ``name``."""
    multiply = _MULTIPLY.get(name)
    if multiply is None:
        multiply = _MULTIPLY[name] = Op.registry[name]()
    slope = resolve(slope)
    return bind(multiply, y_bar, conjugate(slope) if slope.spec.dtype.kind == "complex" else slope)


_MULTIPLY: dict[str, Op] = {}


class Binary(Pointwise, abstract=True):
    """An op of two operands."""

    arity: ClassVar[int] = 2


class Slope(Pointwise, abstract=True):
    """A unary op stated by its derivative: ``dy/dx = slope(x, y)``."""

    is_cheap: ClassVar[bool] = False
    accepts: ClassVar[tuple[str, ...]] = FLOATS
    rounds_cotangents_once: ClassVar[bool] = False  # torch has one kernel for the derivative, too

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        narrow = y_bar.spec.dtype
        if not self.rounds_cotangents_once or (narrow is not bfloat16 and narrow is not float16):
            return super().vjp(primals, result, y_bar)
        wide = [apply("cast", t, dtype=float32) for t in (*primals, result, y_bar)]
        (x_bar,) = super().vjp(tuple(wide[:1]), wide[1], wide[2])
        return (lambda: apply("cast", resolve(x_bar), dtype=narrow),)

    def slope(self, x: O, y: O) -> O:
        raise NotImplementedError(self.name)

    def partials(self, primals: Operands, result: O) -> Sequence[Any]:
        (x,) = primals
        return (partial(self.slope, x, result),)


class Divisor(Pointwise, abstract=True):
    """A unary op stated by the reciprocal of its derivative: ``dy/dx = 1 / divisor(x, y)``."""

    is_cheap: ClassVar[bool] = False
    accepts: ClassVar[tuple[str, ...]] = FLOATS

    def divisor(self, x: O, y: O) -> O:
        raise NotImplementedError(self.name)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        (x,) = primals
        return (lambda: cotangent_quotient(y_bar, conjugate(self.divisor(x, result))),)

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        (x,), (x_dot,) = primals, tangents
        return None if x_dot is None else bind(Op.registry["div"](), x_dot, self.divisor(x, result))


class Predicate(Pointwise, abstract=True):
    """A question about the elements: the result is bool and constant almost everywhere."""

    def result_dtype(self, dtype: DType) -> DType:
        return bool_

    def partials(self, primals: Operands, result: O) -> Sequence[Any]:
        return (None,) * len(primals)


def is_differentiable(x: O) -> bool:
    """Whether an operand's dtype has derivatives: floats and complex numbers."""
    return x.spec.dtype.is_differentiable


def is_complex(x: O) -> bool:
    """Whether an operand is complex."""
    return bool(x.spec.dtype.kind == "complex")


def unary(
    op: Op, takes: Callable[[Any], bool] | None = None, otherwise: Callable[[Any], Any] = lambda x: x
) -> Callable[[O], O]:
    """The function that applies an op to an operand; its name and what it says of itself are the op's.

    Args:
        takes: which operands the op is for, if not for all; of others there is ``otherwise``: themselves by default.
    """

    def apply(x: O) -> O:
        found: O = bind(op, x) if takes is None or takes(x) else otherwise(x)
        return found

    return _named(op, apply)


def binary(op: Op) -> Callable[[O | Number, O | Number], O]:
    """The same for two operands, of which one may be a Python number."""

    def apply(x: O | Number, y: O | Number) -> O:
        return bind(op, *pair(x, y))

    return _named(op, apply)


def _named(op: Op, function: F) -> F:
    made: Any = function
    made.__module__, made.__doc__ = type(op).__module__, type(op).__doc__
    made.__name__ = made.__qualname__ = op.name
    return function
