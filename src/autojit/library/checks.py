"""`opcheck`: whether an operator's rules agree with what it computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autojit.autograd.derivatives import grad
from autojit.core.errors import ArgumentError, UsageError
from autojit.jit.function import jit
from autojit.library.operators import COMPOSITE, Operator, tensors_of
from autojit.library.registration import OpIdentifier, operator_of
from autojit.tensor import Tensor
from autojit.tensor.state import grad_mode

DIGITS = {2: 1e-2, 4: 1e-5, 8: 1e-7, 16: 1e-7}  # relative differences, by the bytes of an element


def opcheck(
    op: OpIdentifier,
    args: Sequence[Any],
    kwargs: dict[str, Any] | None = None,
    *,
    test_utils: str | Sequence[str] = (),
    raise_exception: bool = True,
    atol: float | None = None,
    rtol: float | None = None,
) -> dict[str, Any]:
    """Hold an operator against its rules: call it with operands for which it works, with and without gradients.

    ``test_schema``: it changes the arguments that its schema names and no others, and no result shares their memory.
    ``test_autograd_registration``: where an operand wants a gradient, there is a formula. ``test_faketensor``: what
    `register_fake` was given makes results of the same shapes and dtypes. ``test_aot_dispatch_dynamic``: a compiled
    step has the same results and gradients.

    Args:
        op: an operator, or its name.
        args, kwargs: what to call it with; they are left as they are.
        test_utils: the names of the tests to run, or of one; all by default.
        raise_exception: False: the exceptions are among the results.
        atol, rtol: how far results of the compiled step may be away; by default by their dtype.

    Returns:
        ``"SUCCESS"``, or the exception, by the name of the test.

    Raises:
        ArgumentError: there is no test of a name.
        UsageError: a rule does not agree; what the operator itself raises.

    Example:
        >>> import autojit as aj
        >>> @aj.library.custom_op("docs::scaled", mutates_args=())
        ... def scaled(x: aj.Tensor, by: float) -> aj.Tensor:
        ...     return x * by
        >>> scaled.register_fake(lambda x, by: aj.empty_like(x)) and None
        >>> scaled.register_autograd(
        ...     lambda ctx, y_bar: (y_bar * ctx.by, None),
        ...     setup_context=lambda ctx, inputs, output: setattr(ctx, "by", inputs[1]),
        ... )
        >>> aj.library.opcheck(scaled, (aj.ones(3, requires_grad=True), 2.0))["test_faketensor"]
        'SUCCESS'
    """
    chosen = [test_utils] if isinstance(test_utils, str) else list(test_utils) or list(TESTS)
    unknown = [name for name in chosen if name not in TESTS]
    if unknown:
        raise ArgumentError(f"opcheck: no test {unknown[0]!r}", fix=f"one of {', '.join(TESTS)}")
    operator, results = operator_of(op, "opcheck"), dict[str, Any]()
    for name in chosen:
        try:
            TESTS[name](operator, args, kwargs or {}, (atol, rtol))
            results[name] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                raise
            results[name] = error
    return results


Limits = tuple[float | None, float | None]


def _copied(values: Any) -> Any:
    """The same arguments with memory of their own; leaves stay leaves."""
    if isinstance(values, Tensor):
        return values.detach().clone().requires_grad_(values.requires_grad)
    if isinstance(values, list | tuple):
        return type(values)(_copied(v) for v in values)
    return {k: _copied(v) for k, v in values.items()} if isinstance(values, dict) else values


def _test_schema(operator: Operator, args: Sequence[Any], kwargs: dict[str, Any], limits: Limits) -> None:
    args, kwargs = _copied(args), _copied(kwargs)
    positional, named = operator._schema.bound(args, kwargs)
    before = _copied([*positional, *named.values()])
    with grad_mode(False):
        output = operator(*args, **kwargs)
    operator.check_results(output, tensors_of([*positional, *named.values()]))
    for argument, old, new in zip(operator._schema.arguments, before, [*positional, *named.values()], strict=True):
        pairs = zip(tensors_of([old]), tensors_of([new]), strict=True)
        if not argument.is_write and any(not _equal(a, b) for a, b in pairs):
            raise UsageError(
                f"opcheck: {operator.name()} changes its argument '{argument.name}', and its schema does not say so",
                {"declaration": str(operator._schema)},
                f'mutates_args=("{argument.name}",), or leave it as it is',
            )


def _equal(a: Tensor, b: Tensor) -> bool:
    return bool(((a == b) | ((a != a) & (b != b))).all())


def _test_registration(operator: Operator, args: Sequence[Any], kwargs: dict[str, Any], limits: Limits) -> None:
    wants = any(t.requires_grad for t in tensors_of([*args, *kwargs.values()]))
    rules = operator.backward is not None or operator._schema.is_mutable or not _gives_gradients(operator, args, kwargs)
    if wants and not rules and not {COMPOSITE, "Autograd"} & set(operator.kernels):
        raise UsageError(
            f"opcheck: an operand of {operator.name()} wants a gradient, and it has no formula",
            {"declaration": str(operator._schema)},
            "give it one by register_autograd",
        )


def _gives_gradients(operator: Operator, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    return any(t.requires_grad for t in _results(operator(*_copied(args), **_copied(kwargs))))


def _results(output: Any) -> list[Tensor]:
    return tensors_of(output if isinstance(output, tuple) else (output,))


def _test_fake(operator: Operator, args: Sequence[Any], kwargs: dict[str, Any], limits: Limits) -> None:
    def moved(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(moved(v) for v in value)
        return value.to("meta") if isinstance(value, Tensor) else value

    real = _results(operator(*_copied(args), **_copied(kwargs)))
    made = operator(*[moved(a) for a in args], **{k: moved(v) for k, v in kwargs.items()})
    fake = _results(made)
    shown = [[(tuple(t.shape), str(t.dtype)) for t in each] for each in (real, fake)]
    if shown[0] != shown[1]:
        raise UsageError(
            f"opcheck: results of {operator.name()} are not what its fake form says",
            {"results": shown[0], "fake": shown[1]},
            "mend the function given to register_fake",
        )


def _test_compiled(operator: Operator, args: Sequence[Any], kwargs: dict[str, Any], limits: Limits) -> None:
    compiled = jit(lambda *given, **options: operator(*given, **options))
    found = [_values_and_gradients(call, _copied(args), _copied(kwargs)) for call in (operator, compiled)]
    for k, (eager, native) in enumerate(zip(*found, strict=True)):
        digits = DIGITS.get(eager.element_size(), 1e-7)
        atol, rtol = (digits if limit is None else limit for limit in limits)
        if eager.shape != native.shape or not eager.allclose(native, rtol=rtol, atol=atol, equal_nan=True):
            raise UsageError(
                f"opcheck: a compiled step has another result of {operator.name()}",
                {
                    "which": f"number {k} of results, gradients and changed arguments",
                    "eager": eager,
                    "compiled": native,
                },
                "its function must depend on its arguments alone",
            )


def _values_and_gradients(call: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> list[Tensor]:
    given = tensors_of([*args, *kwargs.values()])
    results = _results(call(*args, **kwargs))
    leaves = [t for t in given if t.requires_grad]
    total = [t.sum().abs() if t.is_complex() else t.sum() for t in results if t.requires_grad]
    slopes = grad(total, leaves, allow_unused=True) if total and leaves else ()
    return [t.detach() for t in (*results, *given, *slopes) if t is not None]


Test = Callable[[Operator, Sequence[Any], dict[str, Any], Limits], None]
TESTS: dict[str, Test] = {
    "test_schema": _test_schema,
    "test_autograd_registration": _test_registration,
    "test_faketensor": _test_fake,
    "test_aot_dispatch_dynamic": _test_compiled,
}
