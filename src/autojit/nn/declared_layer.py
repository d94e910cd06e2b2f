"""What layers have in common: class keywords for what a family differs in, ``repr`` by names, making parameters."""

from __future__ import annotations

from typing import Any, ClassVar

import autojit as aj
from autojit.core.dtypes import DType
from autojit.nn import init
from autojit.nn.module import Module
from autojit.nn.parameter import Parameter


class DeclaredLayer(Module):
    """A module that says in its class statement what distinguishes it: ``class LPPool2d(_LPPool, ndim=2)``.

    Args:
        ndim: how many spatial axes its inputs have; as ``self._ndim``.
        ranks: how many axes its inputs may have in all; as ``self._ranks``.
        shows: the attributes in its ``repr``, separated by spaces. One that begins with a star is shown without its
            name; ``bias`` is whether there is one.
    """

    _ndim: ClassVar[int]
    _ranks: ClassVar[tuple[int, ...]] = ()
    _shows: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(
        cls, *, ndim: int | None = None, ranks: tuple[int, ...] | None = None, shows: str | None = None, **others: Any
    ) -> None:
        super().__init_subclass__(**others)
        if ndim is not None:
            cls._ndim = ndim
        if ranks is not None:
            cls._ranks = ranks
        if shows is not None:
            cls._shows = tuple(shows.split())

    def extra_repr(self) -> str:
        return ", ".join(map(self._shown, self._shows))

    def _shown(self, name: str) -> str:
        if name.startswith("*"):
            return f"{getattr(self, name[1:])}"
        value = getattr(self, name)
        return f"{name}={value is not None if name == 'bias' else value}"

    def _unlike(self, **usual: object) -> list[str]:
        """``name=value`` of the attributes that are not as usual."""
        return [f"{name}={getattr(self, name)}" for name, value in usual.items() if getattr(self, name) != value]

    def _add_parameters(self, device: Any, dtype: DType | None, **shapes: tuple[int, ...] | None) -> None:
        """Parameters with undefined elements, by name; None where there is none."""
        for name, shape in shapes.items():
            made = None if shape is None else Parameter(aj.empty(shape, device=device, dtype=dtype))
            self.register_parameter(name, made)


class AffineLayer(DeclaredLayer):
    """A layer that may scale and shift what it computes."""

    weight: Parameter | None
    bias: Parameter | None

    def _add_affine(self, shape: tuple[int, ...] | None, bias: bool, device: Any, dtype: DType | None) -> None:
        """A scale, and with ``bias`` a shift; without a shape neither."""
        self._add_parameters(device, dtype, weight=None, bias=None)
        if shape is not None:
            self._add_parameters(device, dtype, weight=shape, **({"bias": shape} if bias else {}))

    def reset_parameters(self) -> None:
        """Scale 1, shift 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)
