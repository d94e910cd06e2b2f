"""Containers of modules and of parameters."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Self, cast, overload

from autojit.core.counted_dict import CountedDict, in_place_of
from autojit.core.user_warnings import warn
from autojit.nn.joined_dicts import JoinedDicts
from autojit.nn.module import Module, _addindent
from autojit.nn.parameter import Parameter, named_pairs
from autojit.tensor import Tensor

__all__ = ["Container", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


def _position(index: Any, length: int, what: str = "index") -> int:
    """A non-negative position; IndexError out of range."""
    place = operator.index(index)
    if not -length <= place < length:
        raise IndexError(f"{what} {place} is out of range")
    return place % length


class Sequential(Module):
    """Modules applied one after the other. Takes modules, or one ordered dict of named ones.

    Example:
        >>> import autojit as aj
        >>> aj.nn.Sequential(aj.nn.Linear(2, 3), aj.nn.ReLU())
        Sequential(
          (0): Linear(in_features=2, out_features=3, bias=True)
          (1): ReLU()
        )
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        named = args[0].items() if len(args) == 1 and isinstance(args[0], OrderedDict) else enumerate(args)
        for name, module in named:
            self.add_module(str(name), module)

    def forward(self, input: Any) -> Any:
        for module in self:
            input = module(input)
        return input

    def _name_at(self, index: Any) -> str:
        return next(islice(self._modules, _position(index, len(self)), None))

    def __getitem__(self, index: slice | int) -> Any:
        if isinstance(index, slice):
            return self.__class__(OrderedDict(list(self._modules.items())[index]))
        return self._modules[self._name_at(index)]

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._name_at(index), module)

    def __delitem__(self, index: slice | int) -> None:
        names = list(self._modules)[index] if isinstance(index, slice) else [self._name_at(index)]
        for name in names:
            delattr(self, name)
        self._renumber()

    def _renumber(self) -> None:
        if all(name.isdigit() for name in self._modules):
            made = CountedDict((str(place), part) for place, part in enumerate(self._modules.values()))
            self.__dict__["_modules"] = in_place_of(self._modules, made)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(cast(Iterable[Module], self._modules.values()))

    def append(self, module: Module) -> Self:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, sequential: Iterable[Module]) -> Self:
        """Add modules at the end."""
        for module in list(sequential):
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Self:
        """Put a module before ``index``; the later ones move up."""
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        if not -len(self) <= index <= len(self):
            raise IndexError(f"Index out of range: {index}")
        modules = list(self)
        modules.insert(index if index >= 0 else index + len(self), module)
        self.__dict__["_modules"] = in_place_of(self._modules, CountedDict())
        return self.extend(modules)

    def pop(self, key: int | slice) -> Any:
        """Remove and return the module (or modules) at ``key``."""
        found = self[key]
        del self[key]
        return found

    def __add__(self, other: Any) -> Sequential:
        if not isinstance(other, Sequential):
            raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
        return Sequential(*self, *other)

    def __iadd__(self, other: Any) -> Self:
        return self.extend(other)

    def __mul__(self, other: int) -> Sequential:
        _check_factor(type(self), other)
        return Sequential(*[module for _ in range(other) for module in self])

    __rmul__ = __mul__

    def __imul__(self, other: int) -> Self:
        _check_factor(type(self), other)
        own = list(self)
        for _ in range(other - 1):
            self.extend(own)
        return self


def _check_factor(kind: type, factor: object) -> None:
    if not isinstance(factor, int):
        raise TypeError(f"unsupported operand type(s) for *: {kind} and {type(factor)}")
    if factor <= 0:
        raise ValueError(f"Non-positive multiplication factor {factor} for {kind}")


class ModuleList(Module):
    """A list of modules. Its ``repr`` folds runs of equal modules, as torch's."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> ModuleList: ...
    def __getitem__(self, index: slice | int) -> Any:
        if isinstance(index, slice):
            return self.__class__(list(self)[index])
        return self._modules[str(_position(index, len(self)))]

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, str(_position(index, len(self))), module)

    def __delitem__(self, index: int | slice) -> None:
        modules = list(self)
        del modules[index if isinstance(index, slice) else _position(index, len(self))]
        self._replace(modules)

    def _replace(self, modules: Iterable[Module]) -> None:
        self.__dict__["_modules"] = in_place_of(self._modules, CountedDict())
        self.extend(modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __iadd__(self, modules: Iterable[Module]) -> Self:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def insert(self, index: int, module: Module) -> None:
        """Put a module before ``index``."""
        modules = list(self)
        modules.insert(index, module)
        self._replace(modules)

    def append(self, module: Module) -> Self:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add modules at the end."""
        if not isinstance(modules, Iterable):
            raise TypeError(f"ModuleList.extend should be called with an iterable, but got {type(modules).__name__}")
        for module in list(modules):
            self.append(module)
        return self

    def pop(self, key: int | slice) -> Any:
        """Remove and return the module at ``key``."""
        found = self[key]
        del self[key]
        return found

    def __repr__(self) -> str:
        runs: list[tuple[int, int, str]] = []
        for place, text in enumerate(map(repr, self)):
            if runs and runs[-1][2] == text:
                runs[-1] = (runs[-1][0], place, text)
            else:
                runs.append((place, place, text))
        if not runs:
            return f"{self._get_name()}()"
        lines = [
            f"({first}): {_addindent(text)}" if first == last
            else f"({first}-{last}): {last - first + 1} x {_addindent(text)}"
            for first, last, text in runs
        ]  # fmt: skip
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"


class ModuleDict(Module):
    """A dict of modules with string keys."""

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Remove everything."""
        for key in list(self._modules):
            delattr(self, key)

    def pop(self, key: str) -> Any:
        """Remove and return the module of ``key``."""
        found = self[key]
        del self[key]
        return found

    def keys(self) -> Iterable[str]:
        """The keys in order of insertion."""
        return self._modules.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Keys and modules in order of insertion."""
        return self._modules.items()

    def values(self) -> Iterable[Any]:
        """The modules in order of insertion."""
        return self._modules.values()

    def update(self, modules: Any) -> None:
        """Add the modules of a mapping or of (key, module) pairs."""
        if not isinstance(modules, Iterable):
            raise TypeError(
                f"ModuleDict.update should be called with an iterable of key/value pairs, but got "
                f"{type(modules).__name__}"
            )
        pairs = modules.items() if hasattr(modules, "items") else modules
        for key, module in pairs:
            self[key] = module


def _kept(value: Any) -> Any:
    """Tensors become parameters; parameters and other values stay."""
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _described(value: Any) -> str:
    if not isinstance(value, Tensor):
        return f"Object of type: {type(value).__name__}"
    size = "x".join(map(str, value.shape))
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    return f"{kind} containing: [{value.dtype!r} of size {size}]"


class ParameterList(Module):
    """A list whose tensors are parameters."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> ParameterList: ...
    def __getitem__(self, index: slice | int) -> Any:
        if isinstance(index, slice):
            return ParameterList(list(self)[index])
        return getattr(self, str(_position(index, self._size)))

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, str(_position(index, self._size)), _kept(value))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, str(place)) for place in range(self._size))

    def __iadd__(self, values: Iterable[Any]) -> Self:
        return self.extend(values)

    def append(self, value: Any) -> Self:
        """Add a value at the end."""
        setattr(self, str(self._size), _kept(value))
        self._size += 1
        return self

    def extend(self, values: Iterable[Any]) -> Self:
        """Add values at the end."""
        if isinstance(values, Tensor) or not isinstance(values, Iterable):
            raise TypeError(f"ParameterList.extend should be called with an iterable, but got {type(values).__name__}")
        for value in list(values):
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(f"  ({place}): {_described(value)}" for place, value in enumerate(self))


class ParameterDict(JoinedDicts, Module):
    """A dict whose tensors are parameters."""

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        setattr(self, key, _kept(value))
        self._keys[key] = None

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def keys(self) -> Iterable[str]:
        """The keys in order of insertion."""
        return self._keys.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Keys and values in order of insertion."""
        return ((key, self[key]) for key in self._keys)

    def values(self) -> Iterable[Any]:
        """The values in order of insertion."""
        return (self[key] for key in self._keys)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of ``key``, or ``default``."""
        return self[key] if key in self else default  # noqa: SIM401  # this is get

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value of ``key``, which becomes ``default`` when absent."""
        if key not in self:
            self[key] = default
        return self[key]

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A new dict with the same value for every key."""
        return ParameterDict(OrderedDict.fromkeys(keys, default))

    def pop(self, key: str) -> Any:
        """Remove and return the value of ``key``."""
        found = self[key]
        del self[key]
        return found

    def popitem(self) -> tuple[str, Any]:
        """Remove and return the newest key and value."""
        key = next(reversed(self))
        return key, self.pop(key)

    def clear(self) -> None:
        """Remove everything."""
        for key in list(self._keys):
            del self[key]

    def copy(self) -> ParameterDict:
        """A new dict of the same parameters."""
        return ParameterDict(OrderedDict(self.items()))

    def update(self, parameters: Any) -> None:
        """Add the values of a mapping or of (key, value) pairs."""
        if isinstance(parameters, OrderedDict | ParameterDict) or not isinstance(parameters, Mapping):
            pairs = parameters.items() if hasattr(type(parameters), "items") else named_pairs(parameters)
        else:
            pairs = sorted(parameters.items())  # as in torch, from when dicts had no order
        for key, value in pairs:
            self[key] = value

    def extra_repr(self) -> str:
        return "\n".join(f"  ({key}): {_described(value)}" for key, value in self.items())


class Container(Module):
    """Child modules by keyword; an older name of what every Module can do."""

    def __init__(self, **kwargs: Any) -> None:
        warn(
            "`nn.Container` is deprecated. All of its functionality is now implemented in `nn.Module`. Subclass that "
            "instead.",
            FutureWarning,
        )
        super().__init__()
        for name, module in kwargs.items():
            self.add_module(name, module)
