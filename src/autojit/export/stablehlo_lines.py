"""Writing lines of StableHLO: values, constants, broadcasting, comparisons, gathers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autojit.core.dtypes import DType
from autojit.core.types import Shape, TensorType
from autojit.export.stablehlo_types import constant_text, tensor_text
from autojit.ir.graph import Node, Value


class StableHloLines:
    """The lines of a function, and the names of its values."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[Value, str] = {}
        self._count = 0

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

    def broadcast(self, name: str, kind: TensorType, shape: Shape) -> str:
        """Repeated along new and single axes; axes agree from the right."""
        if kind.shape == shape:
            return name
        kept = [axis for axis, extent in enumerate(kind.shape) if extent == shape[axis + len(shape) - kind.ndim]]
        squeezed = kind.with_shape(tuple(kind.shape[axis] for axis in kept))
        if squeezed.shape != kind.shape:
            name = self.reshape(name, kind, squeezed.shape)
        dims = ", ".join(str(axis + len(shape) - kind.ndim) for axis in kept)
        wide = kind.with_shape(shape)
        return self.value(
            f"stablehlo.broadcast_in_dim {name}, dims = [{dims}] : ({tensor_text(squeezed)}) -> {tensor_text(wide)}"
        )

    def reshape(self, name: str, kind: TensorType, shape: Shape) -> str:
        if kind.shape == shape:
            return name
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
        result = f"tensor<{''.join(f'{n}x' for n in kind.shape)}i1>"
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
        x, kind = node.inputs[0], node.outputs[0].type
        numbers = (
            f"#stablehlo.gather<offset_dims = [{listed(offsets)}], collapsed_slice_dims = [{listed(axes)}], "
            f"start_index_map = [{listed(axes)}], index_vector_dim = {vector}>"
        )
        kinds = f"({tensor_text(x.type)}, {tensor_text(index[1])}) -> {tensor_text(kind)}"
        return self.value(
            f'"stablehlo.gather"({self.names[x]}, {index[0]}) <{{dimension_numbers = {numbers}, '
            f"slice_sizes = array<i64: {listed(sizes)}>, indices_are_sorted = false}}> : {kinds}"
        )


def listed(numbers: Any) -> str:
    """Numbers between commas."""
    return ", ".join(str(int(n)) for n in numbers)
