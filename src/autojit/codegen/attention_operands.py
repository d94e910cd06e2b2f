"""How attention finds its operands in memory, for every target."""

from __future__ import annotations

from math import prod

from autojit.codegen.function_text import FunctionText, Operand
from autojit.core.dtypes import DType
from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ops.attention import Attending
from autojit.ops.flex_attention import FlexAttending
from autojit.schedule.kernels import Access, StructuredKernel, joint_batch


@record
class AttentionOperands:
    """What is attended to, without values: equal ones are printed alike. Abstract; a target adds what it decides by.

    Args:
        mask: the dtype of the mask, if there is one.
        extents: queries, keys, elements of a key, elements of a value.
        batch: (extent, stride in each operand) from outside to inside.
        places: offset and last two strides of each operand; of the logarithms of sums and the key the last one alone,
            of what a function of scores reads all.
        sizes: elements of each buffer.
    """

    op: Attending
    dtype: DType
    mask: DType | None
    extents: tuple[int, int, int, int]
    batch: tuple[tuple[int, tuple[int, ...]], ...]
    places: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many matrices."""
        return prod(extent for extent, _ in self.batch)

    def number(self, what: str) -> int:
        """The buffer of an operand or a result, by its name."""
        return self.names.index(what)

    @property
    def is_derivative(self) -> bool:
        """Whether results are cotangents."""
        return is_derivative(self.op)

    @property
    def names(self) -> list[str]:
        """Of operands and results, in the order of the buffers."""
        results = ["q_bar", "k_bar", "v_bar"] if self.is_derivative else ["y", "lse"]
        return [*operand_names(self.op), *results]

    @property
    def batched(self) -> list[str]:
        """The operands that ``batch`` has strides of, in their order."""
        return [name for name in operand_names(self.op) if name in BATCHED]


BATCHED = ("q", "k", "v", "mask", "y", "lse", "y_bar")


def is_derivative(op: Attending) -> bool:
    """Whether an op gives the cotangents of q, k and v."""
    return op.n_outputs == 3


def operand_names(op: Attending) -> list[str]:
    """The names of an op's operands; ``table`` and ``read0``, ... are those of a function of scores."""
    found = ["q", "k", "v", *["mask"] * op.has_mask, *["key"] * op.draws]
    if isinstance(op, FlexAttending):
        found += [*["table"] * op.has_table, *[f"read{k}" for k in range(op.read)]]
    return [*found, "y", "lse", "y_bar"] if is_derivative(op) else found


Fields = tuple[
    Attending,
    DType,
    DType | None,
    tuple[int, int, int, int],
    tuple[tuple[int, tuple[int, ...]], ...],
    tuple[tuple[int, ...], ...],
    tuple[int, ...],
]


def operands_of(kernel: StructuredKernel) -> Fields:
    """The fields of `AttentionOperands`, in their order."""
    node, accesses = kernel.node, kernel.accesses
    assert isinstance(node.op, Attending)
    q, _, v = (value.type for value in node.inputs[:3])
    named = list(zip(operand_names(node.op), accesses, node.inputs, strict=True))
    batched = [access for name, access, _ in named if name in BATCHED]
    queries, key_width = q.shape[-2:]
    keys, value_width = v.shape[-2:]
    return (
        node.op,
        q.dtype,
        node.inputs[3].type.dtype if node.op.has_mask else None,
        (queries, keys, key_width, value_width),
        tuple(joint_batch(batched, q.shape)),
        tuple([_place(name, access, value.type, q.ndim) for name, access, value in named]),
        tuple(value.type.size for value in (*[access.value for access in accesses], *node.outputs)),
    )


def _place(name: str, access: Access, of: TensorType, ndim: int) -> tuple[int, ...]:
    """Offset and strides of an operand's matrices; all strides of what a function reads: 0 where nothing moves."""
    if name not in BATCHED and name != "key":
        return (access.offset, *[0 if n == 1 else s for n, s in zip(of.shape, access.strides, strict=True)])
    return (access.offset, *access.strides[-2 if len(access.strides) == ndim else -1 :])


def origins(f: FunctionText, operands: AttentionOperands, matrix: str) -> dict[str, str]:
    """Where a matrix begins in each operand that ``batch`` has strides of."""
    names = operands.batched
    places: dict[str, Operand] = {name: operands.places[operands.number(name)][0] for name in names}
    rest = matrix
    for extent, strides in reversed(operands.batch):
        index, rest = f.remainder(rest, extent), f.quotient(rest, extent)
        for name, stride in zip(names, strides, strict=True):
            places[name] = f.add(places[name], f.mul(index, stride))
    return {name: f.number(place) for name, place in places.items()}
