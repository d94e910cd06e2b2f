"""Random tensors: generators, and the distributions drawn from them.

A generator's state is an int64[2] tensor (seed, offset). Each draw is a pure op of the state, then the offset moves on
by the blocks used, in place; inside a capture both are recorded, so a compiled step draws the same numbers as eager
mode.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from math import log, pi, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit import ops
from autojit.core.device import CPU, META, Device, DeviceLike, require_available, space_at, with_index
from autojit.core.device import device as parsed
from autojit.core.device_array import host_copy, layout_in_memory, on_layout
from autojit.core.dtypes import DType, bool_, default_dtype, float32, float64, int64
from autojit.core.errors import ArgumentError, UnsupportedDTypeError, UsageError
from autojit.core.locks import new_lock
from autojit.core.sizes import is_symbolic
from autojit.core.types import TensorType
from autojit.core.wrapping import named
from autojit.dispatch.declared import Out, declared
from autojit.dispatch.dispatch import apply, number
from autojit.dispatch.fast_paths import drawn_by_kernel
from autojit.dispatch.inplace import check_writable, copy_into
from autojit.dispatch.on_device import moved, where_to
from autojit.dispatch.promotion import Real, cast
from autojit.dispatch.requirements import is_known, require
from autojit.functions.comparison import clamp, where
from autojit.functions.dtype_ranges import require_range, require_whole_numbers, whole_numbers_of
from autojit.functions.elementwise import add, ceil, exp, log1p, mul, neg, sub, tan
from autojit.functions.exchange import require_numbers
from autojit.functions.factories import finish
from autojit.functions.memory import in_format
from autojit.functions.refused_probabilities import require_probability, require_weights
from autojit.functions.shape import Sizes, sizes_of
from autojit.history.lasting import with_lasting_constants
from autojit.history.recording import wants_grad
from autojit.ir.op import Op
from autojit.ops import random as draws
from autojit.tensor.of_arrays import constant
from autojit.tensor.state import computes_at_once, grad_mode, state
from autojit.tensor.tensor import Tensor, alias, storage_of, type_of, wrap

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DEFAULT_SEED = 67280421310721  # torch's
_drawing = new_lock()  # no two threads draw with one key


class Generator:
    """A source of random numbers with its own state; ``manual_seed`` makes it repeat."""

    def __init__(self, device: str | Device | int = "cpu") -> None:
        self.device = with_index(require_available(parsed(device)))
        self._state = wrap(np.array([_DEFAULT_SEED, 0], np.int64))
        self._state.__dict__["moves_on"] = True  # a step that reads it keeps what it has read
        if state.trace is not None:
            state.trace.lend(self._state, self)  # new in every call, unless somebody keeps it

    def manual_seed(self, seed: int) -> Generator:
        """Start over from a seed; returns the generator."""
        value = int(seed) & 0xFFFFFFFFFFFFFFFF
        if not -(1 << 63) <= int(seed) < 1 << 64:
            raise ArgumentError(f"Overflow when unpacking long long: the seed {seed} does not fit in 64 bits")
        signed = value - (1 << 64) if value >> 63 else value
        state.drawn += 1
        copy_into(self._state, constant(np.array([signed, 0], np.int64)), "manual_seed")
        return self

    def seed(self) -> int:
        """Start over from an unpredictable seed; returns it."""
        if state.trace is not None:
            state.trace.cannot("Generator.seed() asks the system for a seed")
        found = int.from_bytes(os.urandom(8), "little") >> 1
        self.manual_seed(found)
        return found

    def initial_seed(self) -> int:
        """The seed the generator started from."""
        return int(self._state[0].item()) & 0xFFFFFFFFFFFFFFFF

    def get_state(self) -> Tensor:
        """A copy of the state."""
        return self._state.clone()

    def set_state(self, new_state: Tensor) -> Generator:
        """Continue from a state that ``get_state`` gave."""
        if type_of(new_state) != type_of(self._state):
            raise UsageError("set_state expects a state that get_state gave")
        state.drawn += 1
        copy_into(self._state, new_state, "set_state")
        return self

    def _take(self, words: int, place: Device = CPU) -> Tensor:
        """The key for a draw of ``words`` 32-bit words on a device; the state moves on."""
        if place == META:  # draws nothing
            return wrap(space_at(META).allocate((2,), np.int64))
        blocks = draws.blocks_of(words)
        if state.trace is None:
            state.drawn += 1
            with _drawing:
                key = wrap(self._state._array.copy())
                self._state._array[1] += blocks
                storage_of(self._state).version += 1
        else:
            with grad_mode(False):
                key = alias(self._state).clone()
                step = constant(np.array([0, 1 if is_symbolic(blocks) else blocks], np.int64))
                step = mul(step, number(blocks, int64)) if is_symbolic(blocks) else step
                copy_into(self._state, add(key, step), "advance")
        return key if place == CPU else moved(key, place)


default_generator = Generator()


def manual_seed(seed: int) -> Generator:
    """Seed the default generator; returns it."""
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Seed the default generator unpredictably; returns the seed."""
    return default_generator.seed()


def initial_seed() -> int:
    """The default generator's seed."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """A copy of the default generator's state."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Continue the default generator from a state."""
    default_generator.set_state(new_state)


def key_for(words: int, place: Device) -> Tensor:
    """A key of the default generator for a draw of so many 32-bit words on a device, for ops that draw themselves."""
    return _at(place, _key(None, words, place))


def _key(generator: Generator | None, words: int, place: Device) -> Tensor:
    """A key on the host for a draw on a device; on ``meta``, where nothing is drawn, one that is there."""
    return (generator or default_generator)._take(words, place if place == META else CPU)


def _uniform(shape: Sequence[int], dtype: DType, generator: Generator | None, place: Device = CPU) -> Tensor:
    if dtype.is_complex:
        both = _uniform((*shape, 2), dtype.to_real(), generator, place)
        return both.select(-1, 0) + both.select(-1, 1) * 1j
    key = _key(generator, prod(shape) * draws.words_per_uniform(dtype), place)
    found = _by_kernel("uniform_like", key, shape, dtype, place)
    return draws.uniform(_at(place, key), tuple(shape), dtype) if found is None else found


def drawn_here(shape: Sequence[int], dtype: DType) -> Tensor:
    """``rand`` on the CPU in a shape that is known to be one, for functions that draw at once."""
    return _uniform(shape, dtype, None)


def _normal(shape: Sequence[int], dtype: DType, generator: Generator | None, place: Device = CPU) -> Tensor:
    if dtype.is_complex:
        both = mul(_normal((*shape, 2), dtype.to_real(), generator, place), 0.5**0.5)
        return both.select(-1, 0) + both.select(-1, 1) * 1j
    key = _key(generator, prod(shape) * draws.words_per_normal(dtype), place)
    found = _by_kernel("normal_like", key, shape, dtype, place)
    return draws.normal(_at(place, key), tuple(shape), dtype) if found is None else found


def _at(place: Device, key: Tensor) -> Tensor:
    return key if place == CPU else moved(key, place)


def _by_kernel(
    name: str,
    key: Tensor,
    shape: Sequence[int],
    dtype: DType,
    place: Device,
    options: tuple[()] | None = None,
    *numbers: NDArray[np.generic],
) -> Tensor | None:
    """Numbers drawn by a kernel, which takes 8 us where NumPy takes 70 to 150 for however few; None of other dtypes.

    ``options`` and ``numbers`` are the composite's; by default the dtype.
    """
    count = prod(shape) if dtype in (float32, float64, int64) else 0
    if not count or state.reference or type(key._array) is not np.ndarray or not computes_at_once():
        return None
    if place != CPU:
        seed, offset = moved(key, place).unbind(0)
        like = wrap(space_at(place).allocate((count,), np.uint8))  # only its extent is read
        drawn: Tensor = apply(Op.registry["fused_arrays"](name, (dtype,)), seed, offset, like)
        return wrap(on_layout(drawn._array, layout_in_memory(drawn._array).reshape(shape)))  # a view of no tensor
    drawn_now = drawn_by_kernel(name, (dtype,) if options is None else options, key._array, count, *numbers)
    return None if drawn_now is None else wrap(drawn_now.reshape(shape))


def _extents(name: str, size: tuple[Any, ...]) -> tuple[int, ...]:
    shape = sizes_of(size)
    if any(n < 0 for n in shape):
        raise UsageError(f"{name}: Trying to create tensor with negative dimension: {list(shape)}")
    return shape


def _filled_from(name: str, draw: Callable[..., Tensor], doc: str) -> Callable[..., Tensor]:
    def filled(
        *size: Sizes,
        generator: Generator | None = None,
        dtype: DType | None = None,
        device: DeviceLike = None,
        requires_grad: bool = False,
    ) -> Tensor:
        found = draw(_extents(name, size), dtype or default_dtype(), generator, where_to(device))
        return finish(found, requires_grad, device)

    return declared(method=False, factory=True, out=True)(named(filled, name, doc))


rand = _filled_from("rand", _uniform, "Uniform numbers in [0, 1).")
randn = _filled_from("randn", _normal, "Standard normal numbers.")


@declared(method=False, factory=True, out=True)
def randint(
    low: Any = 0,
    high: Any = None,
    size: Any = None,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Integers in [low, high); ``randint(high, size)`` starts at 0."""
    if size is None:
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    shape = _extents("randint", (size,))
    if low >= high:
        raise UsageError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    require_whole_numbers(low, high, dtype or int64)
    place, is_narrow = where_to(device), high - low <= 2**32
    key = (generator or default_generator)._take(prod(shape) * (1 if is_narrow else 2), place)
    found = None
    if is_narrow and place == CPU:
        numbers = np.array(low, np.int64), np.array(high - low, np.uint64)
        found = _by_kernel("integers_like", key, shape, int64, place, (), *numbers)
    drawn = draws.randint(key, low, high, shape, int64) if found is None else found
    return finish(cast(drawn, dtype or int64), requires_grad, device)


@declared(method=False, factory=True, out=True)
def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """A random permutation of 0 .. n - 1."""
    if n < 0:
        raise UsageError(f"n must be non-negative, got {n}")
    if dtype is not None and n > (most := whole_numbers_of(dtype)):
        raise UsageError(f"n cannot be greater than {most} for {dtype.name} type", {"n": n})
    key = (generator or default_generator)._take(ops.words_per_place(n) * n, where_to(device))
    return finish(cast(ops.randperm(key, n), dtype or int64), requires_grad, device)


@declared(method=False, factory=True)
def rand_like(input: Tensor, *, dtype: DType | None = None, requires_grad: bool = False, **options: Any) -> Tensor:
    """Uniform numbers in the shape and dtype of a tensor."""
    made = rand(type_of(input).shape, requires_grad=requires_grad, **_known(options, input, dtype))
    return in_format(made, options.get("memory_format"), input)


@declared(method=False, factory=True)
def randn_like(input: Tensor, *, dtype: DType | None = None, requires_grad: bool = False, **options: Any) -> Tensor:
    """Standard normal numbers in the shape and dtype of a tensor."""
    made = randn(type_of(input).shape, requires_grad=requires_grad, **_known(options, input, dtype))
    return in_format(made, options.get("memory_format"), input)


def _known(options: dict[str, Any], like: Tensor, dtype: DType | None) -> dict[str, Any]:
    """The options of a draw in the likeness of a tensor: what is not said is as there."""
    given = {k: v for k, v in options.items() if k in ("device", "generator")}
    return {"device": type_of(like).device, "dtype": dtype or type_of(like).dtype, **given}


@declared(method=False, factory=True)
def randint_like(
    input: Tensor, low: int, high: int | None = None, *, dtype: DType | None = None, **options: Any
) -> Tensor:
    """Integers in the shape and dtype of a tensor."""
    low, high = (0, low) if high is None else (low, high)
    made = randint(low, high, type_of(input).shape, **_known(options, input, dtype))
    return in_format(made, options.get("memory_format"), input)


@declared(method=False, factory=True, out=True)
def normal(
    mean: Tensor | Real = 0.0,
    std: Tensor | Real = 1.0,
    size: Sizes | None = None,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Normal numbers with given means and standard deviations (tensors or numbers)."""
    given = [v for v in (mean, std) if isinstance(v, Tensor)]
    if given:
        shape: tuple[int, ...] = (given[0] if len(given) == 1 else given[0] + given[1]).shape
        kind, place = type_of(given[0]).dtype, type_of(given[0]).device
    else:
        shape, kind, place = sizes_of((size,)), default_dtype(), where_to(device)
    _require_spread(std)
    drawn = add(mul(_normal(shape, dtype or kind, generator, place), _data(std)), _data(mean))
    return finish(_with_zero_slope(drawn, mean, std), requires_grad, device)


def _require_spread(std: Tensor | Real) -> None:
    """RuntimeError for a negative standard deviation."""
    if not isinstance(std, Tensor):
        if std < 0:
            raise UsageError(f"normal expects std >= 0.0, but found std {std}")
    elif not is_known(std) or (host_copy(std._array) < 0).any():
        require(std, lambda s: ~(s < 0), "normal expects all elements of std >= 0.0", "0 and more", named="std")


def _data(parameter: Any) -> Any:
    return parameter.detach() if isinstance(parameter, Tensor) else parameter


def _with_zero_slope(drawn: Tensor, *parameters: object) -> Tensor:
    """The numbers drawn, whose derivative by the distribution's parameters is 0 (and not absent), as in torch."""
    for parameter in parameters:
        if isinstance(parameter, Tensor) and state.grad_enabled and wants_grad(parameter):
            drawn = where(number(False, bool_), cast(parameter, type_of(drawn).dtype), drawn)
    return with_lasting_constants(drawn, *parameters)


@declared(out=Out(is_apart=True))
def bernoulli(input: Tensor, p: float | None = None, *, generator: Generator | None = None) -> Tensor:
    """1 with the probability that the element (or ``p``) gives, else 0."""
    t = type_of(input)
    if not t.dtype.is_floating_point and p is None:
        raise UnsupportedDTypeError(f'"bernoulli_tensor_cpu_p_" not implemented for {t.dtype.name!r}')
    if p is not None:
        require_numbers(p)
    chance = (
        input.detach() if p is None else input._literal(p, t.with_dtype(float32 if t.dtype.category < 2 else t.dtype))
    )
    require_probability(chance if p is None else p)
    dtype = float64 if type_of(chance).dtype is float64 else float32
    drawn = cast(draws.happened(_uniform(t.shape, dtype, generator, t.device), chance), t.dtype)
    return _with_zero_slope(drawn, input) if p is None else drawn


@declared(out=Out(is_exact=True))
def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """Positions drawn in proportion to the weights along the last axis."""
    t = type_of(input)
    require_weights(input, num_samples)
    drawn = _uniform((*t.shape[:-1], num_samples) if replacement else t.shape, float64, generator, t.device)
    return ops.chosen(drawn, input.detach(), num_samples, replacement)


def _fill(self: Tensor, values: Tensor, method: str) -> Tensor:
    """Numbers drawn take the place of the old ones, whose gradient is 0 from then on."""
    check_writable(self, method)
    return copy_into(self, values.detach(), method)


def uniform_(self: Tensor, from_: float = 0, to: float = 1, *, generator: Generator | None = None) -> Tensor:
    """Fill with uniform numbers from ``from_`` up to, but without, ``to``."""
    if from_ > to:
        raise UsageError(f"uniform_ expects to return a [from, to) range, but found from={from_} > to={to}")
    t = type_of(self)
    require_range(from_, to, t.dtype)
    return _fill(self, add(mul(_uniform(t.shape, t.dtype, generator, t.device), to - from_), from_), "uniform_")


def normal_(self: Tensor, mean: float = 0, std: float = 1, *, generator: Generator | None = None) -> Tensor:
    """Fill with normal numbers."""
    _require_spread(std)
    t = type_of(self)
    return _fill(self, add(mul(_normal(t.shape, t.dtype, generator, t.device), std), mean), "normal_")


def bernoulli_(self: Tensor, p: Tensor | Real = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Fill with 1 in probability ``p`` (a number or a tensor), else 0."""
    t = type_of(self)
    chance = p.expand(t.shape) if isinstance(p, Tensor) else self._literal(p, t.with_dtype(float32))
    return _fill(self, cast(bernoulli(chance, generator=generator), t.dtype), "bernoulli_")


def _continuous(self: Tensor, name: str) -> TensorType:
    """The type of a tensor that is filled with real numbers."""
    t = type_of(self)
    if not t.dtype.is_floating_point:
        raise UnsupportedDTypeError(
            f"{name}: the distribution is continuous: dtype must be a floating point but you specified {t.dtype}",
            {"self": self},
        )
    return t


def exponential_(self: Tensor, lambd: float = 1, *, generator: Generator | None = None) -> Tensor:
    """Fill with exponential numbers of a rate."""
    if not lambd > 0:
        raise UsageError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    t = _continuous(self, "exponential_")
    key = (generator or default_generator)._take(t.size * draws.words_per_uniform(t.dtype), t.device)
    return _fill(self, mul(draws.exponential(key, t.shape, t.dtype), 1.0 / lambd), "exponential_")


def cauchy_(self: Tensor, median: float = 0, sigma: float = 1, *, generator: Generator | None = None) -> Tensor:
    """Fill with numbers of the Cauchy distribution."""
    if not sigma > 0:
        raise UsageError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    t = _continuous(self, "cauchy_")
    angle = mul(sub(_uniform(t.shape, t.dtype, generator, t.device), 0.5), pi)
    return _fill(self, add(mul(tan(angle), sigma), median), "cauchy_")


def log_normal_(self: Tensor, mean: float = 1, std: float = 2, *, generator: Generator | None = None) -> Tensor:
    """Fill with numbers whose logarithms are normal."""
    if not std > 0:
        raise UsageError(f"log_normal_ expects std > 0.0, but found std={std}")
    t = _continuous(self, "log_normal_")
    return _fill(self, exp(add(mul(_normal(t.shape, t.dtype, generator, t.device), std), mean)), "log_normal_")


def geometric_(self: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    """Fill with the number of trials until the first success, each successful in probability ``p``."""
    if not 0 < p < 1:
        raise UsageError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    t = type_of(self)
    if t.dtype.kind in ("bool", "complex"):
        raise UnsupportedDTypeError(f'"geometric_" not implemented for {t.dtype}', {"self": self})
    wide = t.dtype if t.dtype.is_floating_point else float32
    trials = ceil(mul(log1p(neg(_uniform(t.shape, wide, generator, t.device))), 1.0 / log(1.0 - p)))
    return _fill(self, cast(clamp(trials, min=1), t.dtype), "geometric_")


def random_(self: Tensor, low: int = 0, high: int | None = None, *, generator: Generator | None = None) -> Tensor:
    """Fill with integers in [low, high), or in [0, low) when only one bound is given."""
    t = type_of(self)
    if high is None:
        low, high = 0, low or (2**24 if t.dtype.is_floating_point else 2 ** (8 * t.dtype.size_bytes - 1) - 1)
    if low < high:
        require_whole_numbers(low, high, t.dtype)
    return _fill(self, cast(randint(low, high, t.shape, generator=generator, device=t.device), t.dtype), "random_")


_PLAIN = (uniform_, normal_, bernoulli_, exponential_, random_, cauchy_, log_normal_, geometric_)
METHODS: dict[str, Any] = {method.__name__: method for method in _PLAIN}
