"""Dtypes of torch of which no tensor is made: names that programs compare with; whoever uses one is told."""

from __future__ import annotations

from typing import Any

from autojit.core.dtypes import DType
from autojit.core.errors import UnsupportedDTypeError
from autojit.core.top_level import TOP_LEVEL


class AbsentDType(DType):
    """A dtype that is only a name.

    Args:
        size_bytes: of an element, in torch.
        instead: what takes its place.
    """

    __slots__ = ("_instead",)

    def __init__(self, name: str, kind: str, size_bytes: int, instead: str) -> None:
        super().__init__(name, name, f"V{size_bytes}", kind)
        self._instead = instead
        del self.numpy  # asked for by whatever makes a tensor

    def __getattr__(self, name: str) -> Any:
        if name == "numpy":
            raise self._refusal()
        raise AttributeError(f"a dtype has no attribute {name!r}")

    def to_real(self) -> DType:
        raise self._refusal()

    to_complex = to_real

    def _refusal(self) -> UnsupportedDTypeError:
        return UnsupportedDTypeError(f"there are no tensors of {self.name}", fix=self._instead)


_QUANTISED = "there are no quantised tensors: use float16, bfloat16 or a float8 dtype"
complex32 = chalf = AbsentDType("complex32", "complex", 4, "the narrowest complex numbers are those of complex64")
qint8 = AbsentDType("qint8", "int", 1, _QUANTISED)
quint8 = AbsentDType("quint8", "uint", 1, _QUANTISED)
qint32 = AbsentDType("qint32", "int", 4, _QUANTISED)
quint4x2 = AbsentDType("quint4x2", "uint", 1, _QUANTISED)
quint2x4 = AbsentDType("quint2x4", "uint", 1, _QUANTISED)

ABSENT = {"chalf": chalf} | {dtype.name: dtype for dtype in (complex32, qint8, quint8, qint32, quint4x2, quint2x4)}
"""By their names at the top level, for programs that look there."""

TOP_LEVEL.update(dict.fromkeys(ABSENT, __name__))
