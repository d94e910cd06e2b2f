"""Writing lines of StableHLO: values, constants, broadcasting, comparisons, gathers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autojit.core.dtypes import DType, bool_, int64
from autojit.core.sizes import is_symbolic, surely_equal
from autojit.core.types import Shape, TensorType
from autojit.export.stablehlo_sizes import OpenSizes
from autojit.export.stablehlo_types import constant_text, tensor_text
from autojit.ir.concrete import is_open
from autojit.ir.graph import Node, Value


class StableHloLines:
    """The lines of a function, and the names of its values."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[Value, str] = {}
        self._count = 0
        self.sizes = OpenSizes(self.value)

    def value(self, text: str) -> str:
        """A line; the name of its value."""
        self._count += 1
        self.lines.append(f"%{self._count - 1} = {text}")
        return f"%{self._count - 1}"

    def constant(self, array: Any, kind: TensorType) -> str:
        return self.value(f"stablehlo.constant {constant_text(array, kind)} : {tensor_text(kind)}")

    def filled(self, number: Any, kind: TensorType) -> str:
        """A tensor of one number."""
        one = kind.with_shape(())
        scalar = self.constant(np.array(number, kind.dtype.numpy), one)
        return scalar if not kind.shape else self.broadcast(scalar, one, kind.shape)

    def filled_with_size(self, n: int, kind: TensorType) -> str:
        """A tensor of one size."""
        if not is_symbolic(n):
            return self.filled(n, kind)
        one = kind.with_shape(())
        scalar = self.convert(self.sizes.number(n), one.with_dtype(int64), kind.dtype)
        return self.broadcast(scalar, one, kind.shape)

    def broadcast(self, name: str, kind: TensorType, shape: Shape) -> str:
        """Repeated along new and single axes; axes agree from the right."""
        if surely_equal(kind.shape, shape):
            return name
        added = len(shape) - kind.ndim
        kept = [k for k, n in enumerate(kind.shape) if not surely_equal(n, 1) or surely_equal(shape[k + added], 1)]
        squeezed = kind.with_shape(tuple(kind.shape[axis] for axis in kept))
        if squeezed.ndim != kind.ndim:
            name = self.reshape(name, kind, squeezed.shape)
        dims = ", ".join(str(axis + added) for axis in kept)
        wide = kind.with_shape(shape)
        if is_open(shape):
            return self.dynamic("dynamic_broadcast_in_dim", [name], [squeezed], [shape], wide, f"dims = [{dims}]")
        return self.value(
            f"stablehlo.broadcast_in_dim {name}, dims = [{dims}] : ({tensor_text(squeezed)}) -> {tensor_text(wide)}"
        )

    def dynamic(
        self,
        name: str,
        operands: Sequence[str],
        kinds: Sequence[TensorType],
        numbers: Sequence[Sequence[int]],
        result: TensorType,
        how: str = "",
    ) -> str:
        """An op that takes sizes as vectors behind its operands."""
        given = ", ".join([*operands, *(self.sizes.vector(vector) for vector in numbers), *([how] if how else [])])
        types = ", ".join([*map(tensor_text, kinds), *(f"tensor<{len(vector)}xi64>" for vector in numbers)])
        return self.value(f"stablehlo.{name} {given} : ({types}) -> {tensor_text(result)}")

    def iota(self, axis: int, kind: TensorType) -> str:
        """Along an axis, the numbers of the places."""
        if is_open(kind.shape):
            return self.dynamic("dynamic_iota", [], [], [kind.shape], kind, f"dim = {axis}")
        return self.value(f"stablehlo.iota dim = {axis} : {tensor_text(kind)}")

    def reshape(self, name: str, kind: TensorType, shape: Shape) -> str:
        if surely_equal(kind.shape, shape):
            return name
        if is_open(kind.shape) or is_open(shape):
            return self.dynamic("dynamic_reshape", [name], [kind], [shape], kind.with_shape(shape))
        return self.value(f"stablehlo.reshape {name} : ({tensor_text(kind)}) -> {tensor_text(kind.with_shape(shape))}")

    def convert(self, name: str, kind: TensorType, dtype: DType) -> str:
        if kind.dtype is dtype:
            return name
        if dtype.name == "bool":
            return self.compare("NE", name, self.filled(0, kind), kind)
        return self.value(f"stablehlo.convert {name} : ({tensor_text(kind)}) -> {tensor_text(kind.with_dtype(dtype))}")

    def apply(self, name: str, kind: TensorType, *operands: str) -> str:
        """An op whose operands and result have one type."""
        return self.value(f"{name} {', '.join(operands)} : {tensor_text(kind)}")

    def compare(self, direction: str, a: str, b: str, kind: TensorType) -> str:
        result = tensor_text(kind.with_dtype(bool_))
        return self.value(
            f"stablehlo.compare {direction}, {a}, {b} : ({tensor_text(kind)}, {tensor_text(kind)}) -> {result}"
        )

    def operands(self, node: Node, shape: Shape | None = None) -> list[str]:
        """Operands of a node, broadcast to its result's shape."""
        wanted = node.outputs[0].type.shape if shape is None else shape
        return [self.broadcast(self.names[v], v.type, wanted) for v in node.inputs]

    def stacked(self, names: Sequence[str], kind: TensorType) -> tuple[str, TensorType]:
        """Tensors of one type side by side on a new last axis."""
        single, whole = kind.with_shape((*kind.shape, 1)), kind.with_shape((*kind.shape, len(names)))
        parts = [self.reshape(name, kind, single.shape) for name in names]
        kinds = ", ".join([tensor_text(single)] * len(parts))
        text = f"stablehlo.concatenate {', '.join(parts)}, dim = {kind.ndim} : ({kinds}) -> {tensor_text(whole)}"
        return self.value(text), whole

    def gather(
        self,
        node: Node,
        index: tuple[str, TensorType],
        offsets: Sequence[int],
        axes: Sequence[int],
        sizes: Sequence[int],
        vector: int,
    ) -> str:
        """Slices of a node's first operand: of ``sizes``, where ``index`` says on ``axes``."""
        x = node.inputs[0]
        numbers = (
            f"#stablehlo.gather<offset_dims = [{listed(offsets)}], collapsed_slice_dims = [{listed(axes)}], "
            f"start_index_map = [{listed(axes)}], index_vector_dim = {vector}>"
        )
        operands, types = f"{self.names[x]}, {index[0]}", f"{tensor_text(x.type)}, {tensor_text(index[1])}"
        result = tensor_text(node.outputs[0].type)
        if is_open(tuple(sizes)):
            return self.value(
                f'"stablehlo.dynamic_gather"({operands}, {self.sizes.vector(sizes)}) <{{dimension_numbers = {numbers}, '
                f"indices_are_sorted = false}}> : ({types}, tensor<{len(sizes)}xi64>) -> {result}"
            )
        return self.value(
            f'"stablehlo.gather"({operands}) <{{dimension_numbers = {numbers}, '
            f"slice_sizes = array<i64: {listed(sizes)}>, indices_are_sorted = false}}> : ({types}) -> {result}"
        )


def listed(numbers: Any) -> str:
    """Numbers between commas."""
    return ", ".join(str(int(n)) for n in numbers)
