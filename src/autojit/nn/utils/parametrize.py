"""Tensors of a module that are computed from others: ``module.weight`` becomes a property.

How to read: ``register_parametrization`` moves the tensor into a ``ParametrizationList`` under
``module.parametrizations`` and gives the module a class of its own, whose property calls that list. Assigning to the
property goes the other way, through ``right_inverse``.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import autojit as aj
from autojit.nn.containers import ModuleDict, ModuleList
from autojit.nn.module import Module
from autojit.nn.parameter import Parameter
from autojit.tensor import Tensor


class _Cache(threading.local):
    """Values of parametrised tensors while ``cached`` is active, by module and name."""

    depth = 0

    def __init__(self) -> None:
        self.values: dict[tuple[int, str], Tensor] = {}


_cache = _Cache()


@contextmanager
def cached() -> Iterator[None]:
    """Inside, every parametrised tensor is computed once and kept until the end.

    Example:
        >>> from autojit import nn
        >>> from autojit.nn.utils import parametrizations, parametrize
        >>> layer = parametrizations.weight_norm(nn.Linear(2, 2))
        >>> with parametrize.cached():
        ...     layer.weight is layer.weight
        True
    """
    _cache.depth += 1
    try:
        yield
    finally:
        _cache.depth -= 1
        if not _cache.depth:
            _cache.values.clear()


def _register(module: Module, name: str, tensor: Tensor) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def _require_like(what: str, found: Any, wanted: Tensor, *, is_inverse: bool = False) -> None:
    """ValueError unless ``found`` is a tensor of the dtype and shape of ``wanted``."""
    _require(isinstance(found, Tensor), f"{what} must return a tensor. Got {type(found).__name__}.")
    for kind in ("dtype", "shape"):
        old, new = getattr(wanted, kind), getattr(found, kind)
        said = (
            f"The tensor returned by {what} must have the same {kind} as the tensor"
            if is_inverse
            else f"Registering a parametrization may not change the {kind} of the tensor"
        )
        _require(
            old == new,
            f"{said}, unless `unsafe` flag is enabled.\nunparametrized {kind}: {old}\n{what} {kind}: {new}",
        )


class ParametrizationList(ModuleList):
    """The parametrisations of one tensor and what it is computed from: ``original``, or ``original0`` and so on.

    Made by ``register_parametrization``.

    Args:
        modules: the parametrisations, applied in this order.
        original: the parameter or buffer that is parametrised.
        unsafe: whether they may change dtype and shape.

    Raises:
        ValueError: no modules, or what they return does not fit the original.
    """

    def __init__(self, modules: Sequence[Module], original: Tensor | Parameter, unsafe: bool = False) -> None:
        _require(len(modules) > 0, "ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        new: Any = original
        with aj.no_grad():
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    try:
                        new = module.right_inverse(new)
                    except NotImplementedError:  # by convention: there is no inverse, the tensor itself is the original
                        continue
        _require(
            isinstance(new, Tensor | Sequence),
            f"'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got {type(new).__name__}",
        )
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        before = original.detach()
        if self.is_tensor:
            self._take(original, new)
        else:
            self._take_several(original, new)
        if not unsafe:
            _require_like("A parametrization", self(), before)

    def _take(self, original: Tensor, new: Tensor) -> None:
        """Keep the tensor itself, so that optimisers still know it."""
        _require(
            original.dtype is new.dtype,
            "When `right_inverse` outputs one tensor, it may not change the dtype.\n"
            f"original.dtype: {original.dtype}\nright_inverse(original).dtype: {new.dtype}",
        )
        if new is not original:
            original.data = new.detach()
        _register(self, "original", original)

    def _take_several(self, original: Tensor, new: Sequence[Any]) -> None:
        for k, part in enumerate(new):
            _require(
                isinstance(part, Tensor),
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got element "
                f"{k} of the sequence with type {type(part).__name__}.",
            )
            made = Parameter(part, original.requires_grad) if isinstance(original, Parameter) else part
            made.requires_grad_(original.requires_grad)
            _register(self, f"original{k}", made)

    def right_inverse(self, value: Tensor) -> None:
        """Set the originals so that the parametrised tensor becomes ``value``.

        Raises:
            RuntimeError: a parametrisation has no ``right_inverse``.
            ValueError: what they return does not fit the originals.
        """
        found: Any = value
        with aj.no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                found = module.right_inverse(found)
        if self.is_tensor:
            _require(isinstance(found, Tensor), f"`right_inverse` should return a tensor. Got {type(found).__name__}")
            self._assign("original", found)
            return
        _require(
            isinstance(found, Sequence),
            f"'right_inverse' must return a sequence of tensors. Got {type(found).__name__}.",
        )
        _require(
            len(found) == self.ntensors,
            f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. Got a sequence of length "
            f"{len(found)}.",
        )
        for k, part in enumerate(found):
            _require(
                isinstance(part, Tensor),
                f"'right_inverse' must return a sequence of tensors. Got element {k} of type {type(part).__name__}.",
            )
            self._assign(f"original{k}", part)

    def _assign(self, name: str, value: Tensor) -> None:
        original = getattr(self, name)
        _require(
            value.dtype is original.dtype,
            f"The tensor returned by `right_inverse` has dtype {value.dtype} while `{name}` has dtype {original.dtype}",
        )
        original.data = value.detach()

    def forward(self) -> Tensor:
        first, *others = list(self)
        if self.is_tensor:
            x = first(self.original)
        else:
            x = first(*(getattr(self, f"original{k}") for k in range(self.ntensors)))
        for module in others:
            x = module(x)
        found: Tensor = x
        return found


def _no_state(self: Module) -> Any:
    raise RuntimeError(
        "Serialization of parametrized modules is only supported through state_dict()", "save module.state_dict()"
    )


def _deepcopy(self: Module, memo: dict[int, Any]) -> Any:
    found = memo.get(id(self))
    if found is None:
        found = memo[id(self)] = self.__new__(type(self))
        found.__dict__ = copy.deepcopy(self.__dict__, memo)
    return found


def _inject_class(module: Module) -> None:
    """Give the module a class of its own, which can hold properties."""
    kind = type(module)
    members: dict[str, Any] = {"__getstate__": _no_state}
    if not hasattr(kind, "__deepcopy__"):
        members["__deepcopy__"] = _deepcopy
    module.__class__ = type(f"Parametrized{kind.__name__}", (kind,), members)


def _inject_property(module: Module, name: str) -> None:
    def read(self: Any) -> Tensor:
        if not _cache.depth:
            computed: Tensor = self.parametrizations[name]()
            return computed
        key = (id(self), name)
        found = _cache.values.get(key)
        if found is None:
            found = _cache.values[key] = self.parametrizations[name]()
        return found

    def write(self: Any, value: Any) -> None:
        self.parametrizations[name].right_inverse(value)

    setattr(type(module), name, property(read, write))


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Compute a tensor of the module by ``parametrization`` from now on; returns the module.

    ``parametrization.forward`` makes the tensor from the original; ``parametrization.right_inverse``, if it has one,
    makes the original (or several) from a tensor, now and at every assignment.

    Args:
        unsafe: let it change dtype and shape, without checks.

    Raises:
        ValueError: the module has no such tensor, or the parametrisation changes dtype or shape.

    Example:
        >>> import autojit as aj
        >>> from autojit import nn
        >>> from autojit.nn.utils import parametrize
        >>> class Symmetric(nn.Module):
        ...     def forward(self, x):
        ...         return x.triu() + x.triu(1).T
        >>> layer = parametrize.register_parametrization(nn.Linear(3, 3), "weight", Symmetric())
        >>> bool((layer.weight == layer.weight.T).all())
        True
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            _check_further(getattr(module, tensor_name), parametrization)
        listed = module.parametrizations[tensor_name]
        listed.append(parametrization)
        listed.unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        made = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _inject_class(module)
            module.parametrizations = ModuleDict()
        _inject_property(module, tensor_name)
        module.parametrizations[tensor_name] = made
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name "
            f"'{tensor_name}'"
        )
    return module


def _check_further(y: Tensor, parametrization: Any) -> None:
    """A further parametrisation maps tensors like ``y`` to tensors like ``y``, both ways."""
    x = parametrization(y)
    _require_like("A parametrization", x, y)
    if hasattr(parametrization, "right_inverse"):
        try:
            z = parametrization.right_inverse(x)
        except NotImplementedError:  # by convention: there is no inverse
            return
        _require_like("parametrization.right_inverse", z, y, is_inverse=True)


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether the tensor, or without a name any tensor of the module, is parametrised."""
    found = getattr(module, "parametrizations", None)
    if not isinstance(found, ModuleDict):
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Make the tensor an ordinary parameter or buffer again; returns the module.

    Args:
        leave_parametrized: keep its present value (False: go back to the original).

    Raises:
        ValueError: the tensor is not parametrised, or there are several originals to go back to.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    listed = module.parametrizations[tensor_name]
    original: Any
    if listed.is_tensor:
        original = listed.original
        if leave_parametrized:
            with aj.no_grad():
                original.data = getattr(module, tensor_name).detach().clone()
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        original = Parameter(value) if value.requires_grad else value
    else:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a "
            "sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, original)
    if not is_parametrized(module):
        del module.parametrizations
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class that the module had before tensors were parametrised.

    Example:
        >>> from autojit import nn
        >>> from autojit.nn.utils import parametrizations, parametrize
        >>> parametrize.type_before_parametrizations(parametrizations.weight_norm(nn.Linear(2, 2))).__name__
        'Linear'
    """
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Give another module the parametrisations of this one and their originals; returns the other module.

    Args:
        tensor_name: only those of this tensor.
    """
    if not is_parametrized(from_module):
        return to_module
    names = list(from_module.parametrizations) if tensor_name is None else [tensor_name]
    for name in names:
        given = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name)))
        for parametrization in given:
            register_parametrization(to_module, name, parametrization)
        taken = to_module.parametrizations[name]
        for key, original in (*given._parameters.items(), *given._buffers.items()):
            setattr(taken, key, original)
    return to_module
