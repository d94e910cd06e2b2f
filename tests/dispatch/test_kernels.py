"""Kernels of eager mode: large arrays give the bits of a compiled step, in any layout, with exact derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.dispatch import fast_paths
from autojit.dispatch.kernels import LARGE, in_one_pass
from autojit.ops import fused
from autojit.ops.fused import COMPOSITES

SIDE = 80
assert SIDE * SIDE > LARGE
F = aj.nn.functional
CALLS = {
    "erf": lambda x: x.erf(), "erfinv": lambda x: (x * 0.1).erfinv(), "lgamma": lambda x: x.lgamma(), "sigmoid":
    lambda x: x.sigmoid(), "relu": lambda x: x.relu(), "where": lambda x: aj.where(x > 0, x, 2.0), "remainder":
    lambda x: x % 0.3, "fmod": lambda x: aj.fmod(x, aj.full_like(x, 0.3)), "floor_divide": lambda x: x // 0.3,
    "clamp": lambda x: x.clamp(-0.5, 0.5), "gelu": lambda x: F.gelu(x), "gelu tanh": lambda x: F.gelu(x,
    approximate="tanh"), "hardswish": lambda x: F.hardswish(x), "frac": lambda x: x.frac(),
    "addcmul": lambda x: aj.addcmul(
    x, x, x, value=0.5),
}  # fmt: skip


def draws(dtype: aj.dtype = aj.float64) -> Any:
    return aj.tensor(np.random.default_rng(3).normal(size=(SIDE, SIDE)) * 2, dtype=dtype)


@pytest.mark.parametrize("dtype", [aj.float32, aj.float64], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_a_large_array_gives_the_bits_of_a_compiled_step(name: str, dtype: aj.dtype) -> None:
    x = draws(dtype)
    assert aj.equal(CALLS[name](x), aj.jit(CALLS[name])(x))


@pytest.mark.parametrize("name", CALLS)
def test_every_layout_gives_what_the_parts_give(name: str) -> None:
    call, x = CALLS[name], draws()
    rows = aj.stack([call(row) for row in x])  # small: by NumPy
    np.testing.assert_allclose(call(x.t()).t().numpy(), rows.numpy(), rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(call(x[:, ::1][1:]).numpy(), rows[1:].numpy(), rtol=1e-14, atol=1e-14)
    wide = aj.stack([x, -x], 2)[..., 0]  # neither row-major nor column-major
    np.testing.assert_allclose(call(wide).numpy(), rows.numpy(), rtol=1e-14, atol=1e-14)


def test_a_column_major_operand_keeps_its_order() -> None:
    x = draws().t()
    assert x.erf().stride() == x.stride()


OPTIONS: dict[str, tuple[Any, ...]] = {
    "celu": (1.5,), "elu": (0.7,), "gelu": ("tanh",), "hardshrink": (0.5,), "hardtanh": (-1.0, 1.0), "leaky_relu":
    (0.1,), "softplus": (2.0, 20.0), "softshrink": (0.5,), "threshold": (0.1, 3.0), "clamp": (-0.5, None), "addcmul":
    (0.5,), "addcdiv": (0.5,), "smooth_l1": (0.7,), "huber": (0.7,), "nan_to_num": (0.0, None, None),
    "lerp": (0.3,), "add_scaled": (0.7,),
}  # fmt: skip
COUNTS = {
    "addcmul": 3,
    "addcdiv": 3,
    "smooth_l1": 2,
    "huber": 2,
    "lerp": 2,
    "probability_loss": 2,
    "logit_loss": 2,
    "gated": 2,
    "xlogy": 2,
    "add_scaled": 2,
    "ldexp": 2,
    "logaddexp2": 2,
}
WITHIN_0_AND_1 = ("logit", "probability_loss", "xlogy")


@pytest.mark.parametrize("name", COMPOSITES)
def test_a_composite_in_one_pass_has_the_derivatives_of_its_parts(name: str) -> None:
    options = OPTIONS.get(name, ())
    operands = [
        draws().roll(k, 0).sigmoid() if name in WITHIN_0_AND_1 else draws().roll(k, 0)
        for k in range(COUNTS.get(name, 1))
    ]
    weight = draws().roll(7, 1)

    def derivatives(function: Any) -> list[Any]:
        leaves = [x.clone().requires_grad_() for x in operands]
        result = function(*leaves)
        first = aj.autograd.grad((result * weight).sum(), leaves, create_graph=True)
        second = [g for g in first if g.requires_grad]
        more = aj.autograd.grad(sum((g * weight).sum() for g in second), leaves, allow_unused=True) if second else ()
        return [result, *first, *(aj.zeros_like(weight) if g is None else g for g in more)]

    one = derivatives(lambda *x: in_one_pass(name, options, *x, node="OneBackward0"))
    parts = derivatives(lambda *x: COMPOSITES[name](*x, *options))
    assert one[0].grad_fn.name() == "OneBackward0"
    for found, expected in zip(one, parts, strict=False):
        np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-10, atol=1e-12)


def test_operands_that_no_kernel_serves_go_the_usual_way() -> None:
    x = draws()
    halves = x.to(aj.float16)
    assert F.silu(halves).dtype is aj.float16
    row = x[:1].clone().requires_grad_()
    aj.addcmul(x, x, row.expand(SIDE, SIDE)).sum().backward()
    np.testing.assert_allclose(row.grad.numpy(), x.sum(0, keepdim=True).numpy(), rtol=1e-12)


ONE_NODE: dict[str, tuple[str, Any]] = {
    "cosines": ("SumBackward1", lambda x, y: F.cosine_similarity(x, y)),
    "sinc": ("SincBackward0", lambda x, y: x.sinc()),
    "xlogy": ("XlogyBackward0", lambda x, y: aj.xlogy(x, y)),
    "cross": ("LinalgCrossBackward0", lambda x, y: aj.linalg.cross(x, y)),
}


@pytest.mark.parametrize("name", ONE_NODE)
def test_a_function_of_few_numbers_is_one_node_named_as_torch_names_it(name: str) -> None:
    node, call = ONE_NODE[name]
    x, y = (aj.rand(4, 3, requires_grad=True) for _ in range(2))
    function = call(x, y).grad_fn
    assert function.name() == node
    assert {before.name() for before, _ in function.next_functions} == {"torch::autograd::AccumulateGrad"}


def test_a_composite_of_few_numbers_looks_for_its_program_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    for module in (fast_paths, fused):
        find = module.program_of
        monkeypatch.setattr(module, "program_of", lambda op, arrays, find=find: asked.append(op) or find(op, arrays))
    for count in (3, 63, 64, 1000):
        x = aj.rand(count)
        for call in (F.silu, F.leaky_relu, lambda x: aj.addcmul(x, x, x)):
            asked.clear()
            call(x)
            assert len(asked) == 1
