"""Open sizes in StableHLO text: they are read off the arguments, and what is computed of them is lines of the function.

An open extent is ``?`` in a type; where an op needs it as a number, it is an operand: ``dynamic_broadcast_in_dim`` and
its like take a vector of 64-bit integers. XLA compiles such text for the extents of a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autojit.core.dtypes import int32, int64
from autojit.core.size_expressions import Atom, Expression
from autojit.core.sizes import expression_of, is_symbolic
from autojit.core.types import TensorType
from autojit.export.refusals import ExportError
from autojit.export.stablehlo_types import constant_text, tensor_text

SCALAR = TensorType((), int64)
_ATOMS = {"quotient": "divide", "remainder": "remainder", "minimum": "minimum", "maximum": "maximum"}


class OpenSizes:
    """The numbers behind open sizes, each worked out once.

    Args:
        line: writes a line and gives the name of its value.
    """

    def __init__(self, line: Callable[[str], str]) -> None:
        self._line = line
        self._known: dict[object, str] = {}  # by number or expression: a scalar
        self._extents: dict[str, tuple[str, TensorType, int]] = {}  # by symbol: the argument that has it, and where

    def add(self, name: str, kind: TensorType) -> None:
        """An argument, which may have open extents."""
        for axis, extent in enumerate(kind.shape):
            if is_symbolic(extent):
                self._extents.setdefault(str(extent), (name, kind, axis))

    def number(self, n: int) -> str:
        """A size as a scalar, ``tensor<i64>``."""
        return self._of(expression_of(n)) if is_symbolic(n) else self._fixed(int(n))

    def vector(self, numbers: Sequence[int]) -> str:
        """Sizes as a vector, ``tensor<nxi64>``."""
        if not any(map(is_symbolic, numbers)):
            kind = SCALAR.with_shape((len(numbers),))
            array = np.array([int(n) for n in numbers], np.int64)
            return self._line(f"stablehlo.constant {constant_text(array, kind)} : {tensor_text(kind)}")
        parts = [self._line(f"stablehlo.reshape {self.number(n)} : (tensor<i64>) -> tensor<1xi64>") for n in numbers]
        kinds = ", ".join(["tensor<1xi64>"] * len(parts))
        return self._line(f"stablehlo.concatenate {', '.join(parts)}, dim = 0 : ({kinds}) -> tensor<{len(parts)}xi64>")

    def _fixed(self, n: int) -> str:
        if n not in self._known:
            self._known[n] = self._line(f"stablehlo.constant dense<{n}> : tensor<i64>")
        return self._known[n]

    def _of(self, expression: Expression) -> str:
        if expression not in self._known:
            terms = [self._product(monomial, coefficient) for monomial, coefficient in expression.terms]
            self._known[expression] = self._folded("add", terms or [self._fixed(0)])
        return self._known[expression]

    def _product(self, monomial: Sequence[Atom], coefficient: int) -> str:
        factors = [self._atom(atom) for atom in monomial]
        return self._folded(
            "multiply", factors if coefficient == 1 and factors else [self._fixed(coefficient), *factors]
        )

    def _folded(self, name: str, operands: Sequence[str]) -> str:
        total = operands[0]
        for operand in operands[1:]:
            total = self._line(f"stablehlo.{name} {total}, {operand} : tensor<i64>")
        return total

    def _atom(self, atom: Atom) -> str:
        if atom not in self._known:
            self._known[atom] = self._symbol(atom.operands[0]) if atom.kind == "symbol" else self._quotient(atom)
        return self._known[atom]

    def _quotient(self, atom: Atom) -> str:
        a, b = atom.operands
        least = a.lower_bound()
        if atom.kind in ("quotient", "remainder") and (least is None or least < 0):
            raise ExportError(  # StableHLO rounds towards zero
                "export: StableHLO text cannot round this size down", {"size": str(atom)}, "export it for one size"
            )
        return self._folded(_ATOMS[atom.kind], [self._of(a), self._of(b)])

    def _symbol(self, name: str) -> str:
        if name not in self._extents:
            raise ExportError(
                "export: StableHLO text has sizes of arguments, and no other ones",
                {"size": name},
                "let the arguments decide the sizes of results, as by a mask, or save the library with save()",
            )
        argument, kind, axis = self._extents[name]
        narrow: Any = SCALAR.with_dtype(int32)
        found = self._line(
            f"stablehlo.get_dimension_size {argument}, dim = {axis} : ({tensor_text(kind)}) -> {tensor_text(narrow)}"
        )
        return self._line(f"stablehlo.convert {found} : ({tensor_text(narrow)}) -> tensor<i64>")
