"""Products are cast down and losses up, by torch's list; compiled steps know the mode; derivatives stay in float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn
from autojit.nn import functional as F
from tests.emulated import emulated_cuda


def draws(*shape: int, seed: int = 0) -> aj.Tensor:
    return aj.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


@pytest.fixture(autouse=True)
def _on_the_cpu() -> Iterator[None]:
    """What its lists say; those of CUDA are longer: `test_lists_for_cuda.py`."""
    with aj.device("cpu"):
        yield


X, V, B = draws(4, 4), draws(4), draws(2, 4, 4)
LOWER: dict[str, Any] = {
    "matmul": lambda c: aj.matmul(c(X), c(X)),
    "operator": lambda c: c(X) @ c(X),
    "mm": lambda c: aj.mm(c(X), c(X)),
    "bmm": lambda c: aj.bmm(c(B), c(B)),
    "addmm": lambda c: aj.addmm(c(V), c(X), c(X), beta=2, alpha=3),
    "baddbmm": lambda c: c(B).baddbmm(c(B), c(B)),
    "addbmm": lambda c: aj.addbmm(c(X), c(B), c(B)),
    "inner": lambda c: aj.inner(c(X), c(X)),
    "einsum": lambda c: aj.einsum("ij,jk->ik", c(X), c(X)),
    "linear": lambda c: F.linear(c(X), c(X), c(V)),
    "conv1d": lambda c: F.conv1d(c(B), c(draws(3, 4, 2)), c(draws(3))),
    "conv_transpose1d": lambda c: F.conv_transpose1d(c(B), c(draws(4, 3, 2))),
    "attention": lambda c: F.scaled_dot_product_attention(c(B), c(B), c(B)),
    "vecdot": lambda c: aj.linalg.vecdot(c(X), c(X)),
}
FULL: dict[str, Any] = {
    "mse_loss": lambda c: F.mse_loss(c(X), c(X) * 2),
    "l1_loss": lambda c: F.l1_loss(c(X), c(X) * 2),
    "cross_entropy": lambda c: F.cross_entropy(c(X), aj.tensor([0, 1, 2, 3])),
    "kl_div": lambda c: F.kl_div(c(X), c(X).softmax(-1), reduction="sum"),
    "trace": lambda c: aj.trace(c(X)),
    "inverse": lambda c: aj.inverse(c(X)),
    "cdist": lambda c: aj.cdist(c(X), c(X) + 1),
    "svd": lambda c: aj.linalg.svdvals(c(X)),
    "solve": lambda c: aj.linalg.solve(c(X), c(X)),
    "nanquantile": lambda c: aj.nanquantile(c(V), 0.5),
    "polar": lambda c: aj.polar(c(V).abs(), c(V)).real,
}
OTHER: dict[str, Any] = {
    "exp": lambda c: c(X).exp(),
    "softmax": lambda c: c(X).softmax(-1),
    "sum": lambda c: c(X).sum(),
    "layer_norm": lambda c: F.layer_norm(c(X), (4,)),
    "add": lambda c: c(X) + c(V),
}


def kept(x: aj.Tensor) -> aj.Tensor:
    return x


@pytest.mark.parametrize("dtype", [aj.bfloat16, aj.float16])
@pytest.mark.parametrize("name", LOWER)
def test_products_compute_in_the_narrower_dtype(name: str, dtype: aj.dtype) -> None:
    with aj.autocast("cpu", dtype=dtype):
        found = LOWER[name](kept)
        assert LOWER[name](aj.Tensor.double).dtype is aj.float64
    assert found.dtype is dtype
    np.testing.assert_array_equal(found.float().numpy(), LOWER[name](lambda x: x.to(dtype)).float().numpy())
    assert LOWER[name](kept).dtype is aj.float32


@pytest.mark.parametrize("name", FULL)
def test_losses_and_decompositions_compute_in_float32(name: str) -> None:
    with aj.autocast("cpu"):
        found = FULL[name](aj.Tensor.bfloat16)
        assert FULL[name](aj.Tensor.double).dtype is aj.float64
    assert found.dtype is aj.float32


@pytest.mark.parametrize("name", OTHER)
def test_other_functions_keep_the_dtype_of_their_operands(name: str) -> None:
    with aj.autocast("cpu"):
        assert OTHER[name](aj.Tensor.bfloat16).dtype is aj.bfloat16
        assert OTHER[name](kept).dtype is aj.float32


def test_blocks_nest_and_end_by_exceptions() -> None:
    with aj.autocast("cpu"):
        assert aj.is_autocast_enabled("cpu")
        with aj.autocast("cpu", enabled=False):
            assert (X @ X).dtype is aj.float32
        with aj.autocast("cpu", dtype=aj.float16):
            assert aj.get_autocast_dtype("cpu") is aj.float16
            assert (X @ X).dtype is aj.float16
        assert (X @ X).dtype is aj.bfloat16
        with pytest.raises(ZeroDivisionError), aj.autocast("cpu", dtype=aj.float16):
            raise ZeroDivisionError
        assert aj.get_autocast_dtype("cpu") is aj.bfloat16
    assert not aj.is_autocast_enabled("cpu")
    assert aj.autocast("cpu")(lambda: (X @ X).dtype)() is aj.bfloat16


def test_gradients_are_those_of_the_casts() -> None:
    w = draws(4, 4, seed=1).requires_grad_()
    with aj.amp.autocast("cpu"):
        loss = F.mse_loss(X @ w, X)
    assert loss.dtype is aj.float32
    loss.backward()
    assert w.grad is not None
    assert w.grad.dtype is aj.float32
    v = w.detach().bfloat16().requires_grad_()
    F.mse_loss((X.bfloat16() @ v).float(), X).backward()
    assert v.grad is not None
    np.testing.assert_array_equal(w.grad.numpy(), v.grad.float().numpy())


def test_compiled_functions_are_kept_by_mode() -> None:
    @aj.jit
    def product(x: aj.Tensor) -> aj.Tensor:
        return x @ x

    for _ in range(3):
        assert product(X).dtype is aj.float32
        with aj.autocast("cpu"):
            assert product(X).dtype is aj.bfloat16
        with aj.autocast("cpu", dtype=aj.float16):
            assert product(X).dtype is aj.float16
    assert product.stats()["captures"] == 3


def test_a_compiled_step_holds_the_block() -> None:
    aj.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = aj.optim.SGD(model.parameters(), lr=0.1)

    @aj.jit
    def step(x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        with aj.autocast("cpu"):
            loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    losses = [step(X, X[:, :2]).item() for _ in range(20)]
    assert losses[-1] < 0.5 * losses[0]
    assert step.stats()["fallbacks"] == 0
    assert model[0].weight.dtype is aj.float32


def test_custom_functions_choose_their_mode() -> None:
    seen: list[aj.dtype] = []

    class Product(aj.autograd.Function):
        @staticmethod
        @aj.amp.custom_fwd(device_type="cpu")
        def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
            ctx.save_for_backward(x)
            return x @ x

        @staticmethod
        @aj.amp.custom_bwd(device_type="cpu")
        def backward(ctx: Any, slope: aj.Tensor) -> aj.Tensor:
            (x,) = ctx.saved_tensors
            seen.append((x @ x).dtype)
            return slope.to(x.dtype)

    x = draws(4, 4).requires_grad_()
    with aj.autocast("cpu"):
        y = Product.apply(x)
    y.sum().backward()
    assert (y.dtype, seen) == (aj.bfloat16, [aj.bfloat16])
    forward = aj.amp.custom_fwd(lambda ctx, x: (x @ x).dtype, device_type="cpu", cast_inputs=aj.float32)
    with aj.autocast("cpu"):
        assert forward(SimpleNamespace(), X.bfloat16()) is aj.float32


def test_what_does_not_fit_is_refused_or_switched_off() -> None:
    with pytest.raises(ValueError, match="str"):
        aj.autocast(3)
    with pytest.raises(RuntimeError, match="device type"):
        aj.autocast("foo")
    with pytest.raises(RuntimeError, match="unsupported"):
        aj.get_autocast_dtype("meta")
    with pytest.warns(UserWarning, match="Disabling"), aj.autocast("cpu", dtype=aj.float32):
        assert (X @ X).dtype is aj.float32
    if not aj.cuda.is_available():
        with pytest.warns(UserWarning, match="Disabling"), aj.autocast("cuda"):
            assert (X @ X).dtype is aj.float32
    assert aj.amp.is_autocast_available("cpu")
    assert not aj.is_autocast_enabled()


def test_scaled_losses_give_the_same_step_and_overflow_skips_it() -> None:
    w = aj.ones(2, requires_grad=True)
    optimizer = aj.optim.SGD([w], lr=0.5)
    scaler = aj.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    for expected in (8.0, 16.0):
        optimizer.zero_grad()
        scaler.scale((w * w).sum()).backward()
        scaler.unscale_(optimizer)
        with pytest.raises(RuntimeError, match="already"):
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        with pytest.raises(RuntimeError, match="already"):
            scaler.step(optimizer)
        scaler.update()
        assert w.tolist() == [0.0, 0.0]
        assert scaler.get_scale() == expected
    optimizer.zero_grad()
    scaler.scale((w * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert w.tolist() == [0.0, 0.0]
    assert scaler.get_scale() == 8.0
    other = aj.amp.GradScaler("cpu")
    other.load_state_dict(scaler.state_dict())
    assert other.state_dict() == scaler.state_dict()
    with pytest.raises(RuntimeError, match="No inf checks"):
        other.update()
    other.update(4.0)
    assert other.get_scale() == 4.0
    assert [t.item() for t in other.scale([aj.tensor(1.0), aj.tensor(2.0)])] == [4.0, 8.0]


def test_a_scaler_that_is_off_passes_everything_through() -> None:
    if aj.cuda.is_available():
        scaler = aj.amp.GradScaler(enabled=False)
    else:
        with pytest.warns(UserWarning, match="Disabling"):
            scaler = aj.amp.GradScaler()
    assert not scaler.is_enabled()
    assert scaler.scale(X) is X
    assert scaler.get_scale() == 1.0
    assert scaler.state_dict() == {}
    with pytest.raises(ValueError, match="growth"):
        aj.amp.GradScaler("cpu", growth_factor=1.0)
    with pytest.raises(ValueError, match="backoff"):
        aj.amp.GradScaler("cpu", backoff_factor=1.0)


def test_the_mode_is_switched_without_a_block() -> None:
    aj.set_autocast_enabled("cpu", True)
    try:
        assert aj.is_autocast_cpu_enabled()
        aj.set_autocast_dtype("cpu", aj.float16)
        assert aj.get_autocast_cpu_dtype() is aj.float16
        assert (X @ X).dtype is aj.float16
    finally:
        aj.set_autocast_dtype("cpu", aj.bfloat16)
        aj.set_autocast_enabled("cpu", False)
    assert (X @ X).dtype is aj.float32
    aj.set_autocast_cache_enabled(True)
    aj.clear_autocast_cache()
    assert not aj.is_autocast_cache_enabled()
    aj.set_autocast_enabled("cuda", False)
    if not aj.cuda.is_available():
        with pytest.raises(RuntimeError, match="no device"):
            aj.set_autocast_enabled("cuda", True)
    with pytest.raises(RuntimeError, match="not supported"):
        aj.set_autocast_dtype("cpu", aj.float32)
    assert aj.GradScaler is aj.amp.GradScaler


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_take_what_products_give(layer: Any) -> None:
    net = layer(4, 3)
    with aj.autocast("cpu"):
        output, _ = net(B @ X)
        output.square().sum().backward()
    assert net.weight_ih_l0.grad.dtype is aj.float32
    with pytest.raises(ValueError, match="dtype"):
        net(B.bfloat16())


FULL_ON_DEVICES: dict[str, Callable[[aj.Tensor], aj.Tensor]] = {
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: aj.nn.functional.log_softmax(x, dim=-1),
    "softmin": lambda x: aj.nn.functional.softmin(x, dim=-1),
    "softplus": aj.nn.functional.softplus,
    "layer_norm": lambda x: aj.nn.functional.layer_norm(x, (4,), aj.ones(4, device=x.device)),
    "group_norm": lambda x: aj.nn.functional.group_norm(x, 2),
    "normalize": aj.nn.functional.normalize,
    "cosine_similarity": lambda x: aj.nn.functional.cosine_similarity(x, x),
}


@pytest.mark.parametrize("name", FULL_ON_DEVICES)
def test_what_torch_computes_in_full_precision_on_cuda_alone_is_so(name: str) -> None:
    function = FULL_ON_DEVICES[name]
    with emulated_cuda():
        x = aj.linspace(-1, 1, 12, device="cuda").reshape(3, 4)
        half = x.half()
        expected = function(half.float())
        with aj.autocast("cuda"):
            found = function(half)
            compiled = aj.jit(function)(half)
        assert found.dtype is compiled.dtype is aj.float32
        assert aj.allclose(found, expected, atol=1e-6) and aj.allclose(compiled, expected, atol=1e-6)
        on_host = half.cpu()
    if name != "layer_norm":  # whose parameters must have the dtype of its input there
        with aj.autocast("cpu", dtype=aj.float16):
            assert function(on_host).dtype is aj.float16
