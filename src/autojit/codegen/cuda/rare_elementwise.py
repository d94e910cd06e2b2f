"""Elementwise ops that no scalar emitter lowers, because they loop or look at bits: a thread for each element."""

from __future__ import annotations

from autojit.codegen.cuda.target import CudaTarget
from autojit.codegen.cuda.thread_items import ItemKernel
from autojit.codegen.grid_text import GridText
from autojit.codegen.scalar import Scalar, register_type
from autojit.core.dtypes import DType
from autojit.ir.graph import Node
from autojit.ops.integer_factors import Lcm


class _Elements(ItemKernel):
    """A thread for each element of the result; operands broadcast."""

    def __init__(self, node: Node) -> None:
        super().__init__(node, node.outputs[0].type.size)
        self.shape = node.outputs[0].type.shape
        self.dtype: DType = node.inputs[0].type.dtype
        self.kind = f"i{8 * self.dtype.size_bytes}"

    def place(self, number: int, element: str) -> str:
        """Where an operand has what belongs to an element of the result."""
        shape = self.node.inputs[number].type.shape
        if shape == self.shape:
            return element
        found, rest, step = "0", element, 1
        for extent, own in zip(reversed(self.shape), reversed(shape), strict=False):
            if own != 1:
                found = self.add(found, self.mul(self.remainder(rest, extent), step))
                step *= own
            rest = self.quotient(rest, extent)
        return found

    def operands(self, element: str) -> list[Scalar]:
        return [self.read(k, self.dtype, self.place(k, element)) for k in range(len(self.node.inputs))]


def print_common_factor(node: Node, target: CudaTarget) -> GridText:
    """The kernel of a ``Gcd`` or an ``Lcm``, by Euclid's algorithm on absolute values."""
    f = _Elements(node)
    kind = register_type(f.dtype)
    with f.item() as element:
        a, b = (f.emit.abs(x).text for x in f.operands(element))
        _, divisor = f.repeat_while(
            (kind, kind),
            (a, b),
            lambda state: f.test("ne", state[0], 0, kind),
            lambda state: [f.remainder(state[1], state[0], kind), state[0]],
        )
        if isinstance(node.op, Lcm):
            is_none = f.test("eq", divisor, 0, kind)
            share = f.quotient(a, f.choose(is_none, 1, divisor, kind), kind)
            divisor = f.choose(is_none, 0, f.binary("mul", share, b, kind), kind)
        f.write(2, Scalar(divisor, f.dtype), element)
    return f.text()


def print_bitcast(node: Node, target: CudaTarget) -> GridText:
    """The kernel of a ``Bitcast``: the bytes of the operand."""
    (x,), (y,) = node.inputs, node.outputs
    size = min(x.type.dtype.size_bytes, y.type.dtype.size_bytes)
    f, kind = ItemKernel(node, x.type.size_bytes // size), f"i{8 * size}"
    with f.item() as item:
        f.store(kind, f.load(kind, f.element(f.buffers[0], kind, item)), f.element(f.buffers[1], kind, item))
    return f.text()
