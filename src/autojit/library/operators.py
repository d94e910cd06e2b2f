"""An operator: its schema, what computes it on which device, and the rules registered for it.

A call goes from the outside in: autocast's rule, the meta device's (`fake`), then, where gradients are recorded or a
batch or a tangent is around, the custom function of `formula.py`, which calls the kernel below the history. The kernel
is Python that runs ops; in a compiled step these are recorded with the rest of the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from operator import attrgetter
from typing import Any

from autojit import ops
from autojit.amp.autocast_mode import autocast, is_autocast_enabled
from autojit.core.device import Device
from autojit.core.errors import ArgumentError, UnsupportedError, UsageError
from autojit.core.user_warnings import warn
from autojit.history.recording import wants_any
from autojit.library.formula import function_of
from autojit.library.schema import Schema
from autojit.tensor import Tensor
from autojit.tensor.state import grad_mode, state
from autojit.tensor.tensor import storage_of

COMPOSITE = "CompositeImplicitAutograd"  # a kernel whose own ops are differentiated
EVERY_DEVICE = "CompositeExplicitAutograd"
_KEYS = {"CPU": "cpu", "CUDA": "cuda", "Meta": "meta"}


def key_of(device_type: str | None) -> str:
    """The key under which a kernel is kept, for torch's name of a device or of a dispatch key."""
    if device_type in (None, "default", EVERY_DEVICE):
        return EVERY_DEVICE
    return _KEYS.get(device_type, device_type)


def tensors_of(values: Sequence[Any]) -> list[Tensor]:
    """The tensors among arguments or results, those in lists too."""
    nested = (v if isinstance(v, list | tuple) else (v,) for v in values)
    return [t for t in chain.from_iterable(nested) if isinstance(t, Tensor)]


class Named:
    """What ``torch.ops`` has once: it is pickled as its path there, and a copy of it is itself."""

    @property
    def path(self) -> str:
        """Where it is in ``ops``: ``aten.add.Tensor``."""
        return str(self)

    def __reduce__(self) -> tuple[Callable[[str], Any], tuple[str]]:
        return at_path, (self.path,)


def at_path(path: str) -> Any:
    """What ``ops`` has at a path."""
    return attrgetter(path)(ops)


class Operator(Named):
    """One overload of an operator; what ``torch.ops.namespace.name.default`` is."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._namespace, _, self._opname = schema.name.partition("::")
        self._overloadname = schema.overload_name or "default"
        self.kernels: dict[str, Callable[..., Any]] = {}
        self.disabled: set[str] = set()
        self.first: Callable[..., Any] | None = None  # what runs where a device's kernel is disabled
        self.fake: Callable[..., Any] | None = None
        self.backward: Callable[..., Any] | None = None
        self.setup_context: Callable[..., Any] | None = None
        self.vmap: Callable[..., Any] | None = None
        self.cast_to: dict[str, Any] = {}  # by device: what autocast makes of floating-point operands
        self.is_checked = False  # whether results that share an argument's memory are refused
        self._function: Any = None

    def name(self) -> str:
        """``namespace::name``, with the overload where it has one."""
        overload = self._schema.overload_name
        return f"{self._schema.name}.{overload}" if overload else self._schema.name

    @property
    def __name__(self) -> str:
        return f"{self._opname}.{self._overloadname}"

    def __str__(self) -> str:
        return f"{self._namespace}.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self._namespace}.{self._opname}', overload='{self._overloadname}')>"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        positional, named = self._schema.bound(args, kwargs)
        tensors = tensors_of([*positional, *named.values()])
        device = self._device(tensors, positional, named)
        if state.autocast is not None and device != "meta" and is_autocast_enabled(device):
            found = self._below_autocast(device, positional, named)
            if found is not NotImplemented:
                return found
        if device == "meta":
            return self.on_meta(positional, named)
        kernel = self.kernels.get(COMPOSITE)
        if kernel is not None and device not in self.kernels and EVERY_DEVICE not in self.kernels:
            return kernel(*positional, **named)
        is_recorded = state.grad_enabled and wants_any(tensors)
        if is_recorded and "Autograd" in self.kernels:
            return self.kernels["Autograd"](*positional, **named)
        if is_recorded or state.layers:
            if self._function is None:
                self._function = function_of(self)
            return self._function.called(positional, named)
        with grad_mode(False):
            return self.run(positional, named)

    def _device(self, tensors: list[Tensor], positional: Sequence[Any], named: dict[str, Any]) -> str:
        """The kind of device that the call is for."""
        kinds = {t.device.type for t in tensors}
        if kinds:
            return next((kind for kind in ("meta", "cuda") if kind in kinds), "cpu")
        plain = [a for a in self._schema.arguments if not a.kwarg_only]
        given = {a.name: value for a, value in zip(plain, positional, strict=True)} | named
        place = next((given[a.name] for a in self._schema.arguments if a.type.rstrip("?") == "Device"), None)
        return "cpu" if place is None else Device(place).type

    def _below_autocast(self, device: str, positional: Sequence[Any], named: dict[str, Any]) -> Any:
        kernel = self.kernels.get(f"Autocast{device.upper()}")
        if kernel is None and device not in self.cast_to:
            return NotImplemented
        with autocast(device, enabled=False):
            if kernel is not None:
                return kernel(*positional, **named)
            return self(*[_cast(value, self.cast_to[device]) for value in positional], **named)

    def on_meta(self, positional: Sequence[Any], named: dict[str, Any]) -> Any:
        """Results without elements, by the function that ``register_fake`` was given.

        Raises:
            UsageError: none was.
        """
        fake = self.fake or self.kernels.get("meta") or self.kernels.get(COMPOSITE)
        if fake is not None:
            with grad_mode(False):
                return fake(*positional, **named)
        if self._schema.is_mutable and not self._schema.returns:
            return None
        raise UsageError(
            f"There was no fake impl registered for {self.name()}: its results' shapes and dtypes are not known on the "
            "device meta",
            {"declaration": str(self._schema)},
            "give them by register_fake",
        )

    def run(self, positional: Sequence[Any], named: dict[str, Any]) -> Any:
        """What the device's kernel returns.

        Raises:
            UnsupportedError: the device has none.
            UsageError: a result shares the memory of an argument or of another result.
        """
        tensors = tensors_of([*positional, *named.values()])
        device = self._device(tensors, positional, named)
        kernel = self.kernels.get(device) or self.kernels.get(EVERY_DEVICE) or self.kernels.get(COMPOSITE)
        if device in self.disabled and self.first is not None:
            kernel = self.first
        if kernel is None:
            raise UnsupportedError(
                f"Could not run '{self.name()}' with arguments from the '{device.upper()}' backend",
                {"kernels": ", ".join(self.kernels) or "none"},
                f'register one by register_kernel("{device}")',
            )
        output = kernel(*positional, **named)
        if self.is_checked:
            self.check_results(output, tensors)
        return output

    def check_results(self, output: Any, tensors: list[Tensor]) -> None:
        """Raise where a result shares the memory of an argument or of another result."""
        results = tensors_of(output if isinstance(output, tuple) else (output,))
        seen = {id(storage_of(t)) for t in tensors}
        for t in results:
            if id(storage_of(t)) in seen:
                raise UsageError(
                    f"{self.name()}: the output of a custom operator must not be one of its inputs and must not share "
                    "the memory of an input or of another output (may not alias)",
                    {"result": t},
                    "return a copy of it: y.clone()",
                )
            seen.add(id(storage_of(t)))

    @contextmanager
    def kernel_enabled(self, device_type: str, enabled: bool = True) -> Iterator[None]:
        """Inside, whether a device's own kernel is used, or the function that the operator was made of."""
        if device_type not in self.kernels:
            warn(f"{self.name()} has no kernel of its own for {device_type}, so nothing is switched", UserWarning)
        before = set(self.disabled)
        (self.disabled.discard if enabled else self.disabled.add)(device_type)
        try:
            yield
        finally:
            self.disabled = before


def _cast(value: Any, dtype: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_cast(v, dtype) for v in value)
    is_eligible = isinstance(value, Tensor) and value.is_floating_point() and value.dtype.name != "float64"
    return value.to(dtype) if is_eligible else value


class Packet(Named):
    """The overloads of one name; what ``torch.ops.namespace.name`` is. Called, it takes the first that fits."""

    def __init__(self, name: str) -> None:
        self._qualified_op_name = name
        self.by_overload: dict[str, Operator] = {}

    @property
    def __name__(self) -> str:
        return self._qualified_op_name.partition("::")[2]

    @property
    def path(self) -> str:
        """Where it is in ``ops``."""
        return self._qualified_op_name.replace("::", ".")

    def overloads(self) -> list[str]:
        """The overloads' names; ``default`` is the one without."""
        return list(self.by_overload)

    def __getattr__(self, name: str) -> Operator:
        try:
            return self.__dict__["by_overload"][name]  # type: ignore[no-any-return]
        except KeyError:
            raise AttributeError(
                f"The underlying op of '{self._qualified_op_name}' has no overload name '{name}'"
            ) from None

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        every = list(self.by_overload.values())
        for operator in every[:-1]:
            try:
                operator._schema.bound(args, kwargs)
            except UsageError:
                continue
            return operator(*args, **kwargs)
        return every[-1](*args, **kwargs)

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self.path}')>"


class Namespace(Named):
    """The operators of one namespace; what ``torch.ops.namespace`` is."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    @property
    def path(self) -> str:
        """Where it is in ``ops``."""
        return self.__name__

    def __getattr__(self, name: str) -> Packet:
        raise AttributeError(f"'_OpNamespace' '{self.__name__}' object has no attribute '{name}'")

    def __repr__(self) -> str:
        return f"<torch.ops.{self.__name__}>"


_namespaces: dict[str, Namespace] = {}
awaited_fakes: dict[str, Callable[..., Any]] = {}
"""By name, functions of ``register_fake`` whose operators are not defined yet."""


def added(schema: Schema) -> Operator:
    """A new operator of a schema, under its namespace in ``autojit.ops``.

    Raises:
        UsageError: there is one of this name.
        ArgumentError: the namespace is the name of an op of autojit.
    """
    space, _, name = schema.name.partition("::")
    found = _namespaces.get(space)
    if found is None:
        if hasattr(ops, space):
            raise ArgumentError(f"library: the namespace {space!r} is a name of autojit's own ops; take another")
        found = _namespaces[space] = Namespace(space)
        setattr(ops, space, found)
    packet: Packet = found.__dict__.setdefault(name, Packet(schema.name))
    made = Operator(schema)
    made.fake = awaited_fakes.get(made.name()) or awaited_fakes.get(f"{made.name()}.default")
    if packet.by_overload.setdefault(made._overloadname, made) is not made:
        raise UsageError(
            f"Tried to register an operator ({schema.name}) with the same name and overload name multiple times",
            {"first": str(packet.by_overload[made._overloadname]._schema), "now": str(schema)},
            "give it another name, or define it once",
        )
    return made


def removed(operator: Operator) -> None:
    """Forget an operator."""
    names = _namespaces[operator._namespace].__dict__
    packet: Packet = names[operator._opname]
    packet.by_overload.pop(operator._overloadname, None)
    if not packet.by_overload:
        del names[operator._opname]


def found(name: str) -> Operator | None:
    """The operator of a name ``namespace::name`` or ``namespace::name.overload``."""
    space, _, rest = name.partition("::")
    short, _, overload = rest.partition(".")
    names = _namespaces[space].__dict__ if space in _namespaces else {}
    packet: Packet | None = names.get(short)
    return packet.by_overload.get(overload or "default") if packet is not None else None
