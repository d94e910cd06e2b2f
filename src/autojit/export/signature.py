"""What a caller of a library sees of a function: arguments, results and open sizes, by names that C can have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autojit.core.dtypes import DType
from autojit.core.records import record
from autojit.core.size_expressions import Expression
from autojit.core.sizes import expression_of, is_symbolic
from autojit.core.types import Shape
from autojit.export.captured_parts import Parts
from autojit.export.dimensions import Dims
from autojit.export.names import identifier
from autojit.export.variants import OpenSize, own_symbol
from autojit.jit.arguments import ArgumentLeaf
from autojit.jit.pytree import TreeSpec

C_TYPES = {
    "bool": "uint8_t", "uint8": "uint8_t", "uint16": "uint16_t", "uint32": "uint32_t", "uint64": "uint64_t",
    "int8": "int8_t", "int16": "int16_t", "int32": "int32_t", "int64": "int64_t", "float16": "uint16_t",
    "bfloat16": "uint16_t", "float32": "float", "float64": "double", "complex64": "float", "complex128": "double",
}  # fmt: skip
"""What C calls an element; complex numbers are two of them, dtypes that C lacks are bits."""


@record
class Field:
    """An argument or result of the C interface.

    Attributes:
        name: in Python.
        field: in C.
        dtype, shape: of the tensor; extents may be expressions of the open sizes.
        order: its axes as they are in memory, the outermost first; None: row-major.
        number: "int" or "float" for what is a number of Python.
        most: elements that a caller has room for where the step counts how many there are.
    """

    name: str
    field: str
    dtype: DType
    shape: Shape
    order: tuple[int, ...] | None = None
    number: str = ""
    most: int | None = None

    @property
    def c_type(self) -> str:
        return C_TYPES.get(self.dtype.name, "uint8_t")


@record(eq=False)
class Signature:
    """A function as its library offers it.

    Attributes:
        arguments: what a call reads.
        leaves: of all that the function is called with, in order: a name, and the number of an argument, or of the leaf
            that is the same tensor, or what the step was captured for.
        results: what it writes.
        sizes: the open sizes that a call names.
        counted: names of sizes that a call gives back.
        outputs: of the function's results in order: the number of a field, or what else it is.
        returns: how these are nested: one value, a tuple, a dictionary with keys; a deeper nest is a flat tuple.
    """

    arguments: list[Field]
    leaves: list[dict[str, Any]]
    results: list[Field]
    sizes: list[OpenSize]
    counted: list[str]
    outputs: list[dict[str, Any]]
    returns: dict[str, Any]


def signature_of(steps: Sequence[Parts], dims: Dims) -> Signature:
    """The signature of a function by its steps, the most general first."""
    parts = steps[0]
    taken: set[str] = set()
    arguments: list[Field] = []
    leaves: list[dict[str, Any]] = []
    for name, leaf in zip(parts.names, parts.leaves, strict=True):
        leaves.append({"name": name, **_leaf(leaf, len(arguments), parts.first_leaf)})
        if leaf.value is not None:
            number = "" if leaf.number_class is None else leaf.number_class.kind.__name__
            kind = leaf.value.type
            arguments.append(Field(name, identifier(name, taken), kind.dtype, kind.shape, None, number))
    sizes = _open_sizes(steps, arguments, taken, dims)
    counted = list(parts.step.segment.executable.counted)
    return Signature(arguments, leaves, _results(parts), sizes, counted, _outputs(parts), _returns(parts.tree))


def _leaf(leaf: ArgumentLeaf, number: int, first: int) -> dict[str, Any]:
    if leaf.value is not None:
        return {"argument": number}
    if leaf.kind == "twin":
        return {"same": leaf.twin - first}
    given = leaf.original
    is_plain = given is None or isinstance(given, bool | int | float | str)
    return {"fixed": given if is_plain else f"the {type(given).__name__} of the capture", "is_plain": is_plain}


def _returns(tree: TreeSpec) -> dict[str, Any]:
    is_flat = all(child.kind is None for child in tree.children)
    if tree.kind is None:
        return {"kind": "value", "keys": []}
    if is_flat and tree.kind is dict:
        return {"kind": "dict", "keys": list(map(str, tree.keys))}
    return {"kind": "tuple", "keys": []}


def _open_sizes(steps: Sequence[Parts], arguments: Sequence[Field], taken: set[str], dims: Dims) -> list[OpenSize]:
    """The extents that differ between calls, each once: where one is written as another in every step, it is that."""
    found: dict[tuple[str, ...], OpenSize] = {}
    for k, argument in enumerate(arguments):
        for axis in range(len(argument.shape)):
            extents = [parts.inputs[k].type.shape[axis] for parts in steps]
            key = tuple(map(str, extents))
            if len(set(key)) == 1 and not is_symbolic(extents[0]):
                continue
            is_own = any(own_symbol(extent) is not None for extent in extents)
            if key not in found and (is_own or not any(map(is_symbolic, extents))):
                dim = dims.get((k, axis))
                name = identifier(f"{argument.field}_size{axis}" if dim is None else dim.name, taken)
                span = (0, None) if dim is None else (dim.min, dim.max)
                found[key] = OpenSize(name, k, axis, *span)
    return list(found.values())


def _results(parts: Parts) -> list[Field]:
    step, results = parts.step, parts.step.results
    taken: set[str] = set()
    found = []
    names = _result_names(parts)
    counted = step.segment.executable.counted
    for k, value in enumerate(results.values[: parts.n_results]):
        order = None if step.call is not None else results.orders[k]
        place = next((p for p in parts.places if p.kind in ("result", "number") and p.index == k), None)
        number = place.number.__name__ if place is not None and place.kind == "number" else ""
        spec = step.segment.executable.outputs[k]
        assert spec.place is None, "check_step refuses results without a bound"
        name = names.get(k, f"result{k}")
        is_counted = any(not set(expression_of(n).symbols()).isdisjoint(counted) for n in value.type.shape)
        most = spec.most if is_counted else None
        kind = value.type
        found.append(Field(name, identifier(name, taken), kind.dtype, kind.shape, order, number, most))
    return found


def _result_names(parts: Parts) -> dict[int, str]:
    """Of graph outputs: the keys by which the function returns them, or their number."""
    tree, places = parts.tree, parts.places
    paths = ["result"] if tree.kind is None else list(_paths(tree, ""))
    found: dict[int, str] = {}
    for path, place in zip(paths, places, strict=True):
        if place.kind in ("result", "number"):
            found.setdefault(place.index, path or "result")
    return found


def _paths(tree: Any, before: str) -> Sequence[str]:
    """The way to each leaf of a nest."""
    if tree.kind is None:
        return [before]
    keys = tree.keys or getattr(tree.kind, "_fields", None) or range(len(tree.children))
    found: list[str] = []
    for key, child in zip(keys, tree.children, strict=True):
        name = f"{before}.{key}" if before else f"result{key}" if isinstance(key, int) else str(key)
        found += _paths(child, name)
    return found


def _outputs(parts: Parts) -> list[dict[str, Any]]:
    """Of each leaf that the function returns: what it is."""
    found: list[dict[str, Any]] = []
    numbers = [k for k, leaf in enumerate(parts.leaves, parts.first_leaf) if leaf.value is not None]
    for place in parts.places:
        if place.kind in ("result", "number"):
            found.append({"result": place.index})
        elif place.kind == "same":
            found.append(found[place.index])
        elif place.kind == "argument" and place.index in numbers:
            found.append({"argument": numbers.index(place.index)})
        else:
            is_plain = place.what is None or isinstance(place.what, bool | int | float | str)
            found.append({"constant": place.what if is_plain else repr(place.what)})
    return found


def postfix(extent: int, renamed: dict[str, Expression]) -> int | list[int | str]:
    """An extent for a manifest: a number, or an expression of sizes with operators behind their operands."""
    if not is_symbolic(extent):
        return int(extent)
    return _postfix(expression_of(extent).substitute(renamed))


_OPERATORS = {"quotient": "//", "remainder": "%", "minimum": "min", "maximum": "max"}


def _postfix(expression: Expression) -> list[int | str]:
    found: list[int | str] = []
    for k, (monomial, coefficient) in enumerate(expression.terms):
        found.append(coefficient)
        for atom in monomial:
            if atom.kind == "symbol":
                found += [atom.operands[0], "*"]
            else:
                left, right = atom.operands
                found += [*_postfix(left), *_postfix(right), _OPERATORS[atom.kind], "*"]
        if k:
            found.append("+")
    return found or [0]
