"""torch's names of the layers that a call goes through, for libraries that leave one out while they call."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from enum import Enum
from typing import Any

from autojit.amp import autocast
from autojit.core.errors import UnsupportedError


class DispatchKey(Enum):
    """A layer or a device, by torch's name."""

    Undefined, CPU, CUDA, XPU, Meta = "Undefined", "CPU", "CUDA", "XPU", "Meta"
    Autograd, AutogradCPU, AutogradCUDA = "Autograd", "AutogradCPU", "AutogradCUDA"
    AutocastCPU, AutocastCUDA, AutocastXPU = "AutocastCPU", "AutocastCUDA", "AutocastXPU"
    CompositeImplicitAutograd = "CompositeImplicitAutograd"
    CompositeExplicitAutograd = "CompositeExplicitAutograd"


class DispatchKeySet:
    """Some of them.

    Example:
        >>> from autojit.library.dispatch_keys import DispatchKey, DispatchKeySet
        >>> both = DispatchKeySet(DispatchKey.AutocastCPU) | DispatchKeySet(DispatchKey.CPU)
        >>> both.has(DispatchKey.CPU), both
        (True, DispatchKeySet(AutocastCPU, CPU))
    """

    def __init__(self, keys: DispatchKey | Iterable[DispatchKey]) -> None:
        self._keys = frozenset([keys] if isinstance(keys, DispatchKey) else keys)

    def has(self, key: DispatchKey) -> bool:
        """Whether a key is one of them."""
        return key in self._keys

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self._keys | other._keys)

    def __and__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self._keys & other._keys)

    def __sub__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self._keys - other._keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DispatchKeySet) and self._keys == other._keys

    def __hash__(self) -> int:
        return hash(self._keys)

    def __repr__(self) -> str:
        return f"DispatchKeySet({', '.join(sorted(key.name for key in self._keys))})"


class ExcludeDispatchKeyGuard:
    """Inside of its ``with`` block calls do not go through autocast.

    Raises:
        UnsupportedError: on entering, a set with other keys: there are no such layers here.
    """

    def __init__(self, keys: DispatchKeySet) -> None:
        self._keys = keys
        self._inside = ExitStack()

    def __enter__(self) -> ExcludeDispatchKeyGuard:
        for key in sorted(self._keys._keys, key=lambda key: key.name):
            kind = key.name.removeprefix("Autocast")
            if kind == key.name:
                raise UnsupportedError(f"calls go through no layer {key.name} here", {"keys": self._keys})
            if kind != "XPU":
                self._inside.enter_context(autocast(kind.lower(), enabled=False))
        return self

    def __exit__(self, *exception: Any) -> None:
        self._inside.close()
