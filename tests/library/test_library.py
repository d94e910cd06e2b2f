"""Operators by name: what their rules say is what calls do, eager, compiled, in batches and on the device meta."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import autojit as aj
from autojit.core.errors import UnsupportedError
from autojit.library.schema import parse

SCHEMAS = [
    "f(Tensor x) -> Tensor",
    "f.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)",
    "f(Tensor(a0!) x, Tensor? y=None) -> ()",
    "f(Tensor[] xs, int[2] size, float eps=1e-05, bool flag=False) -> (Tensor, Tensor[])",
    'f(SymInt n, *, str mode="a, b", Scalar? by=None, Device device="cpu") -> Tensor',
]


@pytest.mark.parametrize("text", SCHEMAS)
def test_a_schema_is_read_as_it_is_written(text: str) -> None:
    schema = parse(text, "ns")
    assert str(schema) == f"ns::{text}"
    assert parse(str(schema), "ns") == schema


def test_a_schema_is_inferred_from_annotations() -> None:
    def f(x: aj.Tensor, ys: Sequence[aj.Tensor], n: int | None = None, *, p: float = 0.5) -> tuple[aj.Tensor, int]: ...

    found = aj.library.infer_schema(f, mutates_args=("ys",))
    assert found == "(Tensor x, Tensor(a1!)[] ys, SymInt? n=None, *, float p=0.5) -> (Tensor, SymInt)"
    with pytest.raises(ValueError, match="Parameter x must have a type annotation"):
        aj.library.infer_schema(lambda x: x, mutates_args=())
    with pytest.raises(ValueError, match="were not found"):
        aj.library.infer_schema(f, mutates_args=("z",))


@pytest.fixture
def weighted() -> Iterator[Any]:
    """Weighted tensors and their sum: a list, a number, a keyword-only argument, two results."""

    @aj.library.custom_op("tested::weighted", mutates_args=())
    def op(xs: Sequence[aj.Tensor], w: aj.Tensor, power: int, *, by: float = 1.0) -> tuple[list[aj.Tensor], aj.Tensor]:
        return [x * w**power * by for x in xs], sum(xs).clone()

    def setup_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
        xs, w, ctx.power = inputs
        ctx.by, ctx.needs = keyword_only_inputs["by"], ctx.needs_input_grad
        ctx.save_for_backward(w, *xs)

    def backward(ctx: Any, grads: Any, total: Any) -> Any:
        w, *xs = ctx.saved_tensors
        assert len(ctx.needs_input_grad[0]) == len(xs) == len(ctx.needs[0])
        slope = sum((g * x).sum() for g, x in zip(grads, xs, strict=True))
        return (
            [g * w**ctx.power * ctx.by + total for g in grads],
            slope * ctx.power * w ** (ctx.power - 1) * ctx.by,
            None,
        )

    def fake(xs: Any, w: Any, power: int, *, by: float = 1.0) -> Any:
        return [aj.empty_like(x) for x in xs], aj.empty_like(xs[0])

    op.register_autograd(backward, setup_context=setup_context)
    op.register_fake(fake)
    yield op


def operands() -> tuple[list[aj.Tensor], aj.Tensor, int]:
    xs = [aj.randn(3, dtype=aj.float64, requires_grad=True) for _ in range(2)]
    return xs, aj.tensor(1.5, dtype=aj.float64, requires_grad=True), 2


def test_rules_agree_with_what_is_computed(weighted: Any) -> None:
    assert set(aj.library.opcheck(weighted, operands(), {"by": 2.0}).values()) == {"SUCCESS"}


def test_the_formula_is_the_derivative_of_any_order(weighted: Any) -> None:
    (a, b), w, power = operands()

    def f(a: Any, b: Any, w: Any) -> Any:
        parts, total = aj.ops.tested.weighted([a, b], w, power, by=0.5)
        return (*parts, total)

    assert aj.autograd.gradcheck(f, (a, b, w))
    assert aj.autograd.gradgradcheck(f, (a, b, w))


def test_a_batch_without_a_rule_is_each_element_for_itself(weighted: Any) -> None:
    (_, b), w, power = operands()
    rows = aj.randn(4, 3, dtype=aj.float64)
    parts, total = aj.vmap(lambda row: weighted([row, b], w, power))(rows)
    for k, row in enumerate(rows):
        expected, sums = weighted([row, b], w, power)
        assert all(aj.equal(p[k], e) for p, e in zip(parts, expected, strict=True))
        assert aj.equal(total[k], sums)


def test_results_must_have_memory_of_their_own() -> None:
    @aj.library.custom_op("tested::same", mutates_args=())
    def same(x: aj.Tensor) -> aj.Tensor:
        return x.view(-1)

    with pytest.raises(RuntimeError, match="may not alias"):
        same(aj.ones(2))


def test_an_operator_without_a_formula_refuses_backward_alone() -> None:
    @aj.library.custom_op("tested::plain", mutates_args=())
    def plain(x: aj.Tensor) -> aj.Tensor:
        return x.exp()

    x = aj.ones(2, requires_grad=True)
    y = plain(x)
    assert y.requires_grad
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        y.sum().backward()
    with pytest.raises(RuntimeError, match="no fake impl"):
        plain(aj.ones(2, device="meta"))


def test_arguments_that_are_changed_are_known_to_be() -> None:
    @aj.library.custom_op("tested::zeroed", mutates_args=("x",))
    def zeroed(x: aj.Tensor, n: int) -> None:
        x[:n] = 0

    x = aj.ones(3, requires_grad=True)
    y = x * 1
    square = y.square()
    zeroed(y, 2)
    assert y.tolist() == [0, 0, 1]
    with pytest.raises(RuntimeError, match=r"changed|modified"):
        square.sum().backward()
    with pytest.raises(RuntimeError, match="leaf"):
        zeroed(x, 1)
    with pytest.raises(RuntimeError, match="non-functional"):
        zeroed.register_autograd(lambda ctx, y_bar: y_bar)

    @aj.library.custom_op("tested::hidden", mutates_args=())
    def hidden(x: aj.Tensor) -> aj.Tensor:
        return x.add_(1).clone()

    with pytest.raises(RuntimeError, match="changes its argument 'x'"):
        aj.library.opcheck(hidden, (aj.ones(2),), test_utils="test_schema")


def test_operators_end_with_their_library() -> None:
    lib = aj.library.Library("tested", "FRAGMENT")
    lib.define("gone(Tensor x, int n=2) -> Tensor")
    lib.impl("gone", lambda x, n=2: x * n, "CPU")
    x = aj.ones(2, requires_grad=True)
    assert aj.ops.tested.gone.default(x, n=3).tolist() == [3, 3]
    assert aj.ops.tested.gone.overloads() == ["default"]
    with pytest.raises(RuntimeError, match="multiple times"):
        lib.define("gone(Tensor x) -> Tensor")
    lib._destroy()
    with pytest.raises(AttributeError, match="gone"):
        _ = aj.ops.tested.gone
    with pytest.raises(RuntimeError, match="no operator"):
        aj.library.impl("tested::gone", "cpu", lambda x: x)


def test_a_kernel_of_composed_ops_has_their_derivative() -> None:
    aj.library.define("tested::composed", "(Tensor x) -> Tensor")
    aj.library.impl("tested::composed", "CompositeImplicitAutograd", lambda x: x.square())
    x = aj.tensor(3.0, requires_grad=True)
    aj.ops.tested.composed(x).backward()
    assert x.grad is not None
    assert x.grad.item() == 6
    aj.library.define("tested::nowhere", "(Tensor x) -> Tensor")
    with pytest.raises(UnsupportedError, match="Could not run"):
        aj.ops.tested.nowhere(x.detach())


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ((3,), {}, "Expected a value of type 'Tensor' for argument 'x'"),
        ((), {}, "is missing value for argument 'x'"),
        ((aj.ones(1), 1.0, 2), {}, "at most 2"),
        ((aj.ones(1),), {"z": 1}, "Unknown keyword argument 'z'"),
    ],
)
def test_calls_that_do_not_fit_are_told(args: Any, kwargs: Any, said: str) -> None:
    @aj.library.custom_op("tested::fits", mutates_args=())
    def fits(x: aj.Tensor, by: float = 1.0) -> aj.Tensor:
        return x * by

    with pytest.raises(RuntimeError, match=said) as caught:
        fits(*args, **kwargs)
    assert "tested::fits(Tensor x, float by=1.0) -> Tensor" in str(caught.value)


def test_a_namespace_takes_no_name_of_autojits_ops() -> None:
    with pytest.raises(ValueError, match="namespace 'matmul'"):
        aj.library.define("matmul::f", "(Tensor x) -> Tensor")


def test_operators_of_a_scope_end_with_it() -> None:
    with aj.library._scoped_library("scoped", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: 2 * x)
        assert aj.ops.scoped.twice(aj.ones(1)).item() == 2
    assert not hasattr(aj.ops.scoped, "twice")


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda part: pickle.loads(pickle.dumps(part))])
def test_what_ops_has_there_is_once(copied: Any) -> None:
    def taken(x: aj.Tensor, by: aj.types.Number) -> aj.Tensor:
        return x * by

    with aj.library._scoped_library("tested_once", "FRAGMENT"):
        assert aj.library.infer_schema(taken, mutates_args=()) == "(Tensor x, Scalar by) -> Tensor"
        aj.library.custom_op("tested_once::taken", taken, mutates_args=())
        ours = aj.ops.tested_once
        for part in (ours, ours.taken, ours.taken.default, aj.ops.aten, aj.ops.aten.add, aj.ops.aten.add.Tensor):
            assert copied(part) is part
            assert copied({"operator": [part]})["operator"][0] is part
