"""The custom function of an operator: its kernel as ``forward``, the registered formula as ``backward``.

A custom function takes tensors one by one; an operator takes and gives lists of them, too. The arguments are laid out
flat, and the last one of each call, a `_Layout`, says how they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from autojit.autograd.function import Function
from autojit.core.errors import DifferentiationError
from autojit.functions.shape import movedim, stack
from autojit.tensor import Tensor

if TYPE_CHECKING:
    from autojit.library.operators import Operator


class _Layout:
    """Which arguments of a call were lists and how long, its keyword-only arguments, and the same of its results."""

    def __init__(self, operator: Operator, positional: Sequence[Any], named: dict[str, Any]) -> None:
        self.operator = operator
        self.lengths = [len(value) if _is_list(value) else None for value in positional]
        self.named = named
        self.results: list[int | None] = []
        self.is_tuple = False

    def flat(self, output: Any) -> tuple[Any, ...]:
        """The results of the kernel one by one."""
        self.is_tuple = isinstance(output, tuple)
        values = output if self.is_tuple else (output,)
        self.results = [len(value) if _is_list(value) else None for value in values]
        return tuple(_flat(values))

    def output(self, values: Sequence[Any]) -> Any:
        """The results as the kernel returned them."""
        found = _nested(values, self.results)
        return tuple(found) if self.is_tuple else found[0]


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(v is None or isinstance(v, Tensor) for v in value)


def _flat(values: Iterable[Any]) -> list[Any]:
    return [v for value in values for v in (value if _is_list(value) else (value,))]


def _nested(values: Sequence[Any], lengths: Sequence[int | None]) -> list[Any]:
    left = iter(values)
    return [next(left) if n is None else [next(left) for _ in range(n)] for n in lengths]


@contextmanager
def _as_users_see_it(ctx: Any, layout: _Layout) -> Iterator[None]:
    """While a user's function looks, what needs gradients is told argument by argument, of a list in a list."""
    needs = ctx.needs_input_grad
    ctx.needs_input_grad = tuple(_nested(needs[:-1], layout.lengths))
    try:
        yield
    finally:
        ctx.needs_input_grad = needs


class _Generated(Function):
    """What the custom functions of operators have in common."""

    operator: Operator

    @classmethod
    def called(cls, positional: Sequence[Any], named: dict[str, Any]) -> Any:
        """The results of a call, with their history."""
        layout = _Layout(cls.operator, positional, named)
        found = cls.apply(*_flat(positional), layout)
        return layout.output(found)

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Any:
        layout: _Layout = given[-1]
        operator = layout.operator
        positional = _nested(given[:-1], layout.lengths)
        output = operator.run(positional, layout.named)
        ctx.layout = layout
        if operator.setup_context is not None:
            extra = {"keyword_only_inputs": layout.named} if layout.named else {}
            with _as_users_see_it(ctx, layout):
                operator.setup_context(ctx=ctx, inputs=tuple(positional), output=output, **extra)
        plain = [a for a in operator._schema.arguments if not a.kwarg_only]
        changed = _flat(v for a, v in zip(plain, positional, strict=True) if a.is_write)
        if changed:
            ctx.mark_dirty(*changed)
        return (*layout.flat(output), *changed)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        layout: _Layout = ctx.layout
        operator = layout.operator
        if operator.backward is None:
            raise DifferentiationError(
                f"Trying to backward through {operator} but no autograd formula was registered",
                {"declaration": str(operator._schema)},
                "give it one by register_autograd",
            )
        with _as_users_see_it(ctx, layout):
            found = operator.backward(ctx, *_nested(grads, layout.results))
        return (*_gradients(operator, found, layout), None)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        layout: _Layout = args[-1]
        operator = layout.operator
        positional = _nested(args[:-1], layout.lengths)
        dims = _nested(in_dims[:-1], layout.lengths)
        if operator.vmap is not None:
            output, places = operator.vmap(info, tuple(dims), *positional, **layout.named)
        else:
            output, places = _one_by_one(operator, info.batch_size, dims, positional, layout.named)
        found = layout.flat(output)
        places = places if isinstance(output, tuple) else (places,)
        spread = [
            p
            for p, n in zip(places, layout.results, strict=True)
            for p in ((p,) if n is None else p if isinstance(p, list | tuple) else [p] * n)
        ]
        return found, tuple(spread)


def function_of(operator: Operator) -> type[_Generated]:
    """The custom function of an operator."""
    name = f"GeneratedBackwardFor_{operator._namespace}_{operator._opname}_{operator._overloadname}"
    return type(name, (_Generated,), {"operator": operator})


def _gradients(operator: Operator, found: Any, layout: _Layout) -> list[Any]:
    """What the formula returned, one gradient per flat argument."""
    given = list(found) if isinstance(found, tuple) else [found]
    if len(given) != len(layout.lengths):
        raise DifferentiationError(
            f"The backward formula for {operator} returned an incorrect number of gradients (expected "
            f"{len(layout.lengths)}, got {len(given)})",
            {"declaration": str(operator._schema)},
            "return one for each positional input, None for those without a gradient",
        )
    flat: list[Any] = []
    for position, (gradient, length) in enumerate(zip(given, layout.lengths, strict=True)):
        if length is None:
            flat.append(gradient)
            continue
        several = [None] * length if gradient is None else gradient
        if not isinstance(several, list | tuple) or len(several) != length:
            raise DifferentiationError(
                f"Expected the return from backward to be of the same structure as the inputs of {operator}",
                {"input": f"number {position}, a list of {length}", "gradient": type(gradient).__name__},
                "return a list of as many gradients",
            )
        flat += several
    return flat


def _one_by_one(
    operator: Operator, size: int, dims: Sequence[Any], positional: Sequence[Any], named: dict[str, Any]
) -> tuple[Any, Any]:
    """The operator of each element of a batch: what is right for every kernel."""

    def element(value: Any, dim: Any, k: int) -> Any:
        if isinstance(dim, list):
            return [element(v, d, k) for v, d in zip(value, dim, strict=True)]
        return value if dim is None else movedim(value, dim, 0)[k]

    rounds = [
        operator(*[element(v, d, k) for v, d in zip(positional, dims, strict=True)], **named) for k in range(size)
    ]

    def joined(values: Sequence[Any]) -> Any:
        if isinstance(values[0], list):
            return [joined(several) for several in zip(*values, strict=True)]
        return stack(list(values)) if isinstance(values[0], Tensor) else values[0]

    if isinstance(rounds[0], tuple):
        found = tuple(joined(several) for several in zip(*rounds, strict=True))
        return found, tuple(0 for _ in found)
    return joined(rounds), 0
