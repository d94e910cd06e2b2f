"""Composites with reductions and changes of shape that eager mode computes by kernels and records as one node.

As in ``fused.py``, the composite is an ordinary function of operands, and its derivatives of every order are the
adjoints of its graph: one node. Large arrays go through a compiled step, small ones through the graph's ops one by one.
A captured step gets the composite itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import autojit.ops.composites_arrays as composites  # by its full name: asking the package would load all of it
from autojit.core.dtypes import float64
from autojit.core.records import record
from autojit.core.sizes import named_size
from autojit.core.types import TensorType
from autojit.ir.op import Ndarray
from autojit.ops.composites_sequences import SEQUENCES, open_extents
from autojit.ops.fused import NamedComposite
from autojit.ops.numpy_program import Program, program_of
from autojit.ops.samples import Samples, draws

if TYPE_CHECKING:
    from autojit.core.dtypes import DType

__all__ = ["ARRAY_COMPOSITES", "FusedArrays"]

ARRAY_COMPOSITES: dict[str, Callable[..., Any]] = {
    **{name: getattr(composites, name) for name in composites.__all__},
    **SEQUENCES,
}
_TYPICAL = 64  # of an open extent; nothing depends on it


@record
class FusedArrays(NamedComposite):
    """The composite ``ARRAY_COMPOSITES[composite](*operands, *options)`` of any ops, or an adjoint of it.

    ``adjoints`` says of each adjoint taken so far of which operands it gives the cotangents, and whether those that it
    is given may be masked; ``wanted`` of which operands the next one does, None: of all that have one.
    """

    functions: ClassVar[Mapping[str, Callable[..., Any]]] = ARRAY_COMPOSITES

    def related(self, types: Sequence[TensorType]) -> tuple[TensorType, ...]:
        """The operands' types with those of cotangents stated by the extents of what they are cotangents of."""
        if not self.adjoints:
            return self._opened(types)
        inner = self.after(self.adjoints[:-1])
        operands = inner.related(types[: len(types) - inner.n_outputs])
        return (*operands, *[v.type for v in inner.graph_of(operands).outputs])

    @property
    def opened_by(self) -> Literal["expand", "open_bodies"]:  # type: ignore[override]
        """Loops are opened before the passes that look for them."""
        return "open_bodies" if self.composite in SEQUENCES else "expand"

    @property
    def is_awaited(self) -> bool:
        """Whether NumPy serves until a kernel was compiled beside."""
        return self.composite in SEQUENCES

    def kind_of_kernel(self, arrays: Sequence[Ndarray]) -> Hashable:
        """What calls have in common that one kernel of an awaited op serves."""
        count = len(arrays) - self._cotangents
        return self, tuple([(tuple(s), a.dtype) for s, a in zip(self._extents(arrays[:count]), arrays, strict=False)])

    @property
    def _cotangents(self) -> int:
        """How many of the operands are cotangents."""
        return sum([self.after(self.adjoints[:k]).n_outputs for k in range(len(self.adjoints))])

    def _extents(self, operands: Sequence[Any]) -> list[list[int | str]]:
        """The extents of operands that are no cotangents; letters in place of those that a kernel leaves open."""
        axes = open_extents(self.composite, self.options, len(operands))
        return [
            [n if n == 1 or letter == "." else letter for n, letter in zip_longest(x.shape, given, fillvalue=".")]
            for x, given in zip(operands, axes, strict=True)
        ]

    def _opened(self, types: Sequence[TensorType]) -> tuple[TensorType, ...]:
        """The operands with extents left open that a kernel of an awaited op need not know."""
        if not self.is_awaited:
            return tuple(types)
        return tuple(
            [
                t.with_shape(tuple([named_size(n, _TYPICAL) if isinstance(n, str) else n for n in shape]))
                for t, shape in zip(types, self._extents(types), strict=True)
            ]
        )

    def eager(self, *arrays: Ndarray) -> Any:
        return self.one_or_all(self.program(arrays).run(*arrays))

    def program(self, arrays: Sequence[Ndarray]) -> Program:
        """The NumPy calls that compute the op on arrays of these extents."""
        return program_of(self, arrays)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if dtype is not float64:  # a kernel and NumPy round differently
            return []
        x, w, y = draws((3, 4), dtype, 1), draws((4,), dtype, 2), draws((3, 4), dtype, 3)
        norm = FusedArrays("normalized", ((1,), 1e-5, True, False), (0, 1))
        return [
            (FusedArrays("normalized", ((0,), 1e-5, False, False)), (x,)),
            (norm, (x, w)),
            (FusedArrays("normalized", norm.options, None, (((0, 1), False),)), (x, w, y)),
        ]
