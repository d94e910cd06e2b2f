"""Which functions mixed precision casts on CUDA: torch's lists (aten/src/ATen/autocast_mode.h, torch 2.13), no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit.nn import functional as F
from tests.emulated import emulated_cuda

Function = Callable[[aj.Tensor], Any]
FULL: dict[str, Function] = {
    "acos": aj.acos, "asin": aj.asin, "cosh": aj.cosh, "erfinv": aj.erfinv, "exp": aj.exp, "expm1": aj.expm1,
    "log": aj.log, "log10": aj.log10, "log2": aj.log2, "log1p": aj.log1p, "reciprocal": aj.reciprocal,
    "rsqrt": aj.rsqrt, "sinh": aj.sinh, "tan": aj.tan, "pow": lambda x: aj.pow(x, 2), "powers": lambda x: x**x,
    "of a number": lambda x: 2.0**x, "norm": aj.norm, "vector_norm": aj.linalg.vector_norm,
    "matrix_norm": aj.linalg.matrix_norm, "cumsum": lambda x: x.cumsum(0), "cumprod": lambda x: x.cumprod(0),
    "prod": aj.prod, "sum": aj.sum, "sum along": lambda x: x.sum(0, keepdim=True), "dist": lambda x: x.dist(x + 1),
    "pdist": F.pdist, "renorm": lambda x: x.renorm(2, 0, 0.5), "logsumexp": lambda x: x.logsumexp(0),
    "rms_norm": lambda x: F.rms_norm(x, (2,)), "mse_loss": lambda x: F.mse_loss(x, x + 1),
}  # fmt: skip
LOWER: dict[str, Function] = {
    "matmul": lambda x: x @ x, "mv": lambda x: aj.mv(x, x[0]), "addmv": lambda x: aj.addmv(x[0], x, x[0]),
    "addr": lambda x: aj.addr(x, x[0], x[1]), "chain_matmul": lambda x: aj.chain_matmul(x, x, x),
    "multi_dot": lambda x: aj.linalg.multi_dot([x, x, x]), "prelu": lambda x: F.prelu(x, x[0, :1]),
    "gru_cell": lambda x: aj.gru_cell(x, x, x.repeat(3, 1), x.repeat(3, 1)),
    "lstm_cell": lambda x: aj.lstm_cell(x, (x, x), x.repeat(4, 1), x.repeat(4, 1))[1],
}  # fmt: skip
AS_GIVEN: dict[str, Function] = {
    "sqrt": aj.sqrt, "sin": aj.sin, "tanh": aj.tanh, "exp2": aj.exp2, "square": aj.square, "mean": aj.mean,
    "std": aj.std, "amax": aj.amax, "add": lambda x: x + x, "outer": lambda x: aj.outer(x[0], x[1]), "relu": F.relu,
    "gelu": F.gelu, "silu": F.silu, "log_sigmoid": F.logsigmoid, "sigmoid": aj.sigmoid, "erf": aj.erf,
    "logaddexp": lambda x: aj.logaddexp(x, x), "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "exp, into memory": lambda x: x.clone().exp_(), "exp, into another's": lambda x: aj.exp(x, out=aj.empty_like(x)),
    "exp, of a list": lambda x: aj._foreach_exp([x])[0], "cos": aj.cos,
    "pow, into memory": lambda x: x.clone().pow_(2), "product, into memory": lambda x: x.clone().addmm_(x, x),
}  # fmt: skip


@pytest.mark.parametrize(
    ("listed", "given", "expected"),
    [(FULL, aj.float16, aj.float32), (LOWER, aj.float32, aj.float16), (AS_GIVEN, None, None)],
    ids=["full", "lower", "as given"],
)
def test_a_function_computes_in_the_dtype_of_its_list(
    listed: dict[str, Function], given: aj.dtype | None, expected: aj.dtype | None
) -> None:
    with emulated_cuda():
        for dtype in (aj.float16, aj.float32) if given is None else (given,):
            x = aj.tensor([[0.25, 0.5], [0.75, 0.875]], device="cuda", dtype=dtype)
            wanted = dtype if expected is None else expected
            for name, function in listed.items():
                plain = function(x.to(wanted))
                with aj.autocast("cuda"):
                    found = function(x)
                assert found.dtype is wanted, name
                assert aj.equal(found, plain), name


@pytest.mark.parametrize("function", [FULL["exp"], FULL["pow"], FULL["sum"]], ids=["exp", "pow", "sum"])
def test_on_the_cpu_these_keep_their_dtype_and_doubles_do_everywhere(function: Function) -> None:
    x = aj.tensor([[0.25, 0.5], [0.75, 0.875]], dtype=aj.bfloat16, device="cpu")
    with aj.autocast("cpu"):
        assert function(x).dtype is aj.bfloat16
    with emulated_cuda(), aj.autocast("cuda"):
        assert function(x.double().to("cuda")).dtype is aj.float64


def test_gradients_come_back_in_the_dtype_of_the_operand() -> None:
    with emulated_cuda():
        x = aj.tensor([0.25, 0.5], device="cuda", dtype=aj.float16, requires_grad=True)
        with aj.autocast("cuda"):
            x.exp().sum().backward()
        assert x.grad is not None
        assert x.grad.dtype is aj.float16
        assert aj.allclose(x.grad.float(), x.detach().float().exp(), rtol=1e-3)
