"""Op: what every op must know, and ``bind``, the one way to apply one.

An op is a frozen dataclass whose fields are its static parameters, so equality and hashing are structural. Rules
(vjp, jvp, batch) are written in autojit ops over *operands*: a Tensor computes at once, a tracer records. ``bind`` asks
the first operand to apply the op, so one rule serves eager mode, tracing and graph transforms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeAlias, TypeVar, overload

from autojit.core.errors import tensor_expected
from autojit.core.records import finish
from autojit.core.types import TensorType
from autojit.core.undivided_work import undivided
from autojit.ir.printing import print_parameters

if TYPE_CHECKING:
    from numpy.typing import NDArray

Ndarray: TypeAlias = "NDArray[Any]"


class Operand(Protocol):
    """What an op is applied to: a Tensor, a tracer. ``spec`` is its shape, dtype and device."""

    @property
    def spec(self) -> TensorType: ...

    def _bind(self, op: Op, operands: Sequence[Any]) -> Any: ...

    def _literal(self, value: object, type: TensorType) -> Self: ...


O = TypeVar("O", bound=Operand)
"""What ops are applied to, and give: Tensors from Tensors, tracers from tracers."""

Operands = Sequence[Any]
Rule = Callable[..., Any]

RULES = ("result_type", "eager", "vjp", "jvp", "batch")


def not_differentiable(why: str, is_missing: bool = False) -> Rule:
    """Spell out that an op has no derivative: a rule that yields symbolic zeros.

    Used for both ``vjp`` and ``jvp``; ``why`` is shown when somebody asks for the derivative. ``is_missing``: results
    count as dependent on their operands, and a backward pass that reaches them is an error, as in torch.
    """

    def rule(self: Op, primals: Operands, result: Any, co: Any) -> Any:
        return None

    marked: Any = rule
    marked.not_differentiable, marked.is_missing = why, is_missing
    return rule


def linear_jvp(self: Op, primals: Operands, result: Any, tangents: Operands) -> Any:
    """The ``jvp`` of an op that is linear in its first operand and has no derivative by the others."""
    return None if tangents[0] is None else bind(self, tangents[0], *primals[1:])


class Registry(dict[str, "type[Op]"]):
    """Op classes by name. ``others`` are modules of ops that are imported when a name is not found."""

    others: Sequence[str] = ()

    def load(self) -> Registry:
        """With every op there is."""
        with undivided:
            for other in self.others:
                import_module(other)
        return self

    def __missing__(self, name: str) -> type[Op]:
        with undivided:
            for other in self.others:
                import_module(other)
                if name in self:
                    return self[name]
        raise KeyError(name)


class Op:
    """Base of all ops. Subclasses are frozen dataclasses and define every rule in ``RULES``.

    ``result_type(*types)`` checks operands and returns the TensorType (a tuple of them when ``n_outputs > 1``).
    ``eager(*arrays)`` computes with NumPy and nothing else, whatever the size: the reference semantics.
    ``vjp(primals, result, y_bar)`` returns one cotangent per operand: an operand, ``None`` for a symbolic zero, or a
    zero-argument function, called only if that cotangent is wanted. With several outputs ``result`` and ``y_bar`` are
    tuples and entries of ``y_bar`` may be None.
    ``jvp(primals, result, tangents)`` returns the tangent (``None`` tangents are symbolic zeros).
    ``batch(args, batched)`` applies the op where flagged operands have a leading batch axis; its result has it too.
    """

    __match_args__: ClassVar[tuple[str, ...]] = ()  # the static parameters, as ``dataclass`` lists them
    name: ClassVar[str] = "op"
    registry: ClassVar[Registry] = Registry()
    abstract: ClassVar[bool] = True
    of_ranks: ClassVar[bool] = False  # an op of a group of processes (``ops.ranks``)
    may_overwrite: ClassVar[bool] = False  # the result of a kernel of its own may be where the first operand was
    is_view: ClassVar[bool] = False
    moves: ClassVar[bool] = False  # the op's own rule says where the result is; else that is where the operands are
    spans_devices: ClassVar[bool] = False  # its graphs say where each value is; operands may be on several devices
    is_random: ClassVar[bool] = False
    is_one_loop: ClassVar[bool] = False  # its rule lays its result out as one loop of NumPy's does
    keeps_order: ClassVar[bool] = False  # axes are laid out like those of the operands (``tensor.axis_orders``)
    fixes_sizes: ClassVar[bool] = False  # the static parameters hold extents of operands or results
    of_sizes: ClassVar[Callable[..., Op] | None] = None  # of ops whose parameters do not tell: for values of open sizes
    of_pair: ClassVar[Callable[..., Any] | None] = None  # what dispatch calls of an elementwise op with two arrays
    reads_operands: ClassVar[bool] = False  # the VJP rule reads every operand and no result, and may raise
    # of a captured function, whose ops were asked what they save: ``operands_read(y_bars)`` tells which operands the
    # derivative reads, and an operand without a cotangent has none, where another op's is zero
    is_call: ClassVar[bool] = False
    is_compiled: ClassVar[bool] = False  # the eager rule runs compiled code, which takes arrays on any device
    # what users see of the op's node in the history, where that is not its own name and ``self``, ``other``, ``result``
    node_class: ClassVar[str] = ""
    node_constants: ClassVar[Mapping[str, object]] = {}  # what it shows besides
    operand_names: ClassVar[tuple[str, ...]] = ()
    result_names: ClassVar[tuple[str, ...]] = ()
    parameter_names: ClassVar[Mapping[str, str]] = {"axis": "dim", "axes": "dim", "axis1": "dim1", "axis2": "dim2"}
    needs_elements: ClassVar[bool] = False  # only the operands' elements say of which shape the result is
    fast_paths: ClassVar[dict[str, tuple[int, Callable[..., Any]]]] = {}  # by name: ``fast_from`` and ``fast``
    fast_from: ClassVar[int] = 0  # elements of the first operand, below which ``fast`` need not be asked
    fast: ClassVar[Callable[..., Any] | None] = None
    """What eager dispatch calls instead of ``eager``: set by ``dispatch.fast_paths``, and no op knows of it."""

    if TYPE_CHECKING:
        result_type: Callable[..., Any]
        eager: Callable[..., Any]
        vjp: Callable[..., Any]
        jvp: Callable[..., Any]
        batch: Callable[..., Any]
        lower: Callable[..., Any]  # of ops that are lowered scalar by scalar: for any target
        operands_read: Callable[..., Any]  # of calls, as ``masked_operands``
        spent_with: Callable[..., Any]
        last_of: Callable[..., bool]
        masked_operands: Callable[..., Any]
        leading_to: Callable[..., frozenset[int]]
        inner_cotangent: Callable[..., Any]
        laid_out: Callable[..., Any]  # of calls: arrays laid out like the results, for operands laid out like arrays

        def __init__(self, *parameters: Any, **named: Any) -> None:
            """The static parameters, as the subclass declares them."""

        @property
        def n_outputs(self) -> int:
            """A constant of the class, or said of each object."""

        @property
        def masks_cotangents(self) -> bool:
            """Whether the VJP rule may zero elements of a cotangent that is not 0 there."""

        @property
        def has_effect(self) -> bool:
            """Whether it is computed where nothing reads it, for what it does."""

        @property
        def calls_out(self) -> bool:
            """Whether it or a graph in it calls a user's function or other processes: once, in the program's order."""

        @property
        def repeated(self) -> Op | None:
            """Of one that calls out: the op whose call it makes again, for a derivative."""

    else:
        n_outputs = 1
        masks_cotangents = True
        has_effect = calls_out = False
        repeated = None

    def __init_subclass__(cls, abstract: bool = False, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        finish(cls)  # its bases: a plain dataclass takes their fields at once
        cls.abstract = abstract
        if abstract:
            return
        cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
        missing = [rule for rule in RULES if not callable(getattr(cls, rule, None))]
        if missing:
            raise TypeError(f"op {cls.__name__} lacks the rules {', '.join(missing)}")
        if cls.name in Op.registry and Op.registry[cls.name].__module__ != cls.__module__:
            raise TypeError(f"two ops are called {cls.name}")
        cls.fast_from, cls.fast = Op.fast_paths.get(cls.name, (0, None))
        Op.registry[cls.name] = cls

    @property
    def is_differentiable(self) -> bool:
        return not hasattr(type(self).vjp, "not_differentiable")

    def copies(self, x: Ndarray) -> bool:
        """Whether the eager rule of a view gives a copy, as the strides of ``x``, which is not read, allow no view."""
        return False

    refuses: ClassVar[bool] = False

    def may_refuse(self, *types: TensorType) -> bool:
        """Whether the op may be an error for its operands' elements: it is then computed where nothing reads it, too.

        An op that is lowered to code then has ``failure(number)``, the error behind a number that its code reports.
        """
        return self.refuses

    looks_up: ClassVar[bool] = False

    def look_ups(self, *types: TensorType) -> Sequence[tuple[int, int, int]]:
        """Which operands are positions: (the operand's number, an axis of operand 0, its extent) of each.

        A position outside the axis is an error, also where nothing reads what is there.
        """
        return ()

    def may_fail(self, *types: TensorType) -> bool:
        """Whether code of the op may report an error. Unlike `may_refuse`, that alone is not a reason to compute it."""
        return self.looks_up or self.may_refuse(*types)

    @property
    def shown_name(self) -> str:
        """What users know the op by."""
        return self.name

    def node_name(self, number: int) -> str | None:
        """What a result shows as the name of its node in the history, if that is not the op's."""
        return None

    def read_by_rule(self, types: Sequence[TensorType]) -> Sequence[bool]:
        """Of an op that ``reads_operands``: which operands of these types its VJP rule reads more than the types of."""
        return (True,) * len(types)

    def parameters(self) -> tuple[tuple[str, object], ...]:
        """The static parameters as (name, value) pairs; that a source is on the CPU goes without saying."""
        found = tuple((name, getattr(self, name)) for name in self.__match_args__)
        return found[:-1] if found and found[-1] == ("device", getattr(type(self), "device", None)) else found

    def silent(self) -> Op | None:
        """The op without the calls of users' functions in it, where it ``calls_out``; None: nothing is left."""
        return self

    def unbroadcast(self, x_bar: Any, x: Any) -> Any:
        """Bring the cotangent of an operand to the operand's shape; only broadcasting ops have work here."""
        return x_bar

    def __str__(self) -> str:
        """``sum[axes=(0,)]``; no brackets when there are no parameters."""
        inner = print_parameters(self)
        return f"{self.name}[{inner}]" if inner else self.name

    def as_parameter(self) -> str:
        """How the op is written as a parameter of another."""
        return f"{self.name}({print_parameters(self)})"


def is_type_only(x: object) -> bool:
    """Whether an operand of a rule stands for one of which only the type was kept, as the rule does not read it."""
    return hasattr(type(x), "is_type_only")


@overload
def bind(op: Op, operand: O, /, *others: Any) -> O: ...
@overload
def bind(op: Op, /, *operands: Any) -> Any: ...
def bind(op: Op, /, *operands: Any) -> Any:
    """Apply an op with one result to operands: the first operand decides whether that computes or records."""
    try:
        return operands[0]._bind(op, operands)
    except AttributeError:
        for operand in operands:
            if not hasattr(operand, "_bind"):
                raise tensor_expected(operand) from None
        raise


bind_all: Callable[..., Any] = bind
"""The same for an op with several results: a tuple of them."""
