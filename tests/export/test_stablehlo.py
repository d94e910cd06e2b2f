"""StableHLO text: of functions without effects, op by op; XLA computes what eager mode does where JAX is installed."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj

F = aj.nn.functional


def _elementwise(a: aj.Tensor, b: aj.Tensor) -> tuple[aj.Tensor, ...]:
    return (
        a + b, a - b, a * b, a / b, aj.maximum(a, b), aj.minimum(a, b), a.abs() ** 1.5, aj.fmod(a, b), a % b,
        aj.atan2(a, b), -a, a.exp(), aj.expm1(a), a.abs().log(), aj.log1p(a.abs()), a.sin(), a.cos(), a.tanh(),
        a.abs().sqrt(), a.abs().rsqrt(), a.ceil(), a.floor(), a.sign(), a.round(), a.sigmoid(), aj.erf(a), aj.erfc(a),
        aj.lgamma(a.abs() + 1), a.square(), a.reciprocal(), aj.relu(a), aj.where(a > b, a, b), a.to(aj.float32),
        (a * 3).to(aj.int64), aj.isnan(a), aj.isinf(a), aj.isfinite(a), aj.exp2(a), a // b,
    )  # fmt: skip


def _shapes(a: aj.Tensor) -> tuple[aj.Tensor, ...]:
    return (
        a.T.contiguous(), a.reshape(2, 10) * 1, a[1:4:2, ::2] + 0, aj.cat([a, a], 1), aj.flip(a, (0,)),
        aj.stack([a, a]), F.pad(a, (1, 2), value=3.0), a.sum(0), a.prod(1), a.amax(), a.amin(1, keepdim=True),
        (a > 0).all(1), (a > 0).any(), a.mean(1), aj.arange(4) * a[0].long(), a[:, None] * a[:, :, None], a.var(1),
        aj.softmax(a, 1), F.log_softmax(a, 0), aj.logsumexp(a, 1),
    )  # fmt: skip


def _integers(i: aj.Tensor, b: aj.Tensor) -> tuple[aj.Tensor, ...]:
    return i + 1, i // 3, i % 3, i & 3, i | 4, i ^ 1, ~i, ~b, i.float(), b.int(), i.sum(), i.amax(0), i > 2, i.abs()


def _products(a: aj.Tensor, b: aj.Tensor, c: aj.Tensor) -> tuple[aj.Tensor, ...]:
    return a @ b, c @ b, aj.einsum("ij,kij->k", a, c)


def _looked_up(x: aj.Tensor, i: aj.Tensor) -> tuple[aj.Tensor, ...]:
    return (
        x[i],
        x[-i],
        x[:, i].T,
        x[:, -i],
        aj.index_select(x, 1, i),
        aj.take_along_dim(x, i[:, None], 0),
        F.embedding(i, x),
    )


def _convolutions(x: aj.Tensor, w: aj.Tensor, v: aj.Tensor) -> tuple[aj.Tensor, ...]:
    flat = x[:, :, 0].contiguous()
    return F.conv2d(x, w, stride=2, padding=1, groups=2), F.conv1d(flat, v, dilation=2), F.max_pool2d(x, 2)


def _attended(q: aj.Tensor) -> aj.Tensor:
    return F.scaled_dot_product_attention(q, q, q, is_causal=True)


def _normal(*shape: int, dtype: Any = np.float32) -> aj.Tensor:
    return aj.tensor(np.random.default_rng(0).normal(size=shape).astype(dtype))


CASES: dict[str, tuple[Callable[..., Any], tuple[aj.Tensor, ...]]] = {
    "elementwise": (_elementwise, (_normal(5, 4, dtype=np.float64), _normal(4, dtype=np.float64))),
    "shapes": (_shapes, (_normal(5, 4),)),
    "integers": (_integers, (aj.tensor([-7, -3, 0, 2, 5, 9]), aj.tensor([True, False]))),
    "products": (_products, (_normal(3, 4), _normal(4, 5), _normal(2, 3, 4))),
    "looked_up": (_looked_up, (_normal(5, 6), aj.tensor([0, 3, 1]))),
    "convolutions": (_convolutions, (_normal(2, 4, 7, 7), _normal(6, 2, 3, 3), _normal(3, 4, 2))),
    "attention": (_attended, (_normal(2, 3, 5, 4),)),
    "halves": (lambda a: (a * 2 + 1, (a @ a).float()), (_normal(3, 3).to(aj.bfloat16),)),
    "recurrent": (aj.nn.GRUCell(4, 6), (_normal(2, 4), _normal(2, 6))),
}


_KINDS = {"float32": "f32", "float64": "f64", "int64": "i64"}


def _called(text: str, arguments: list[Any]) -> str:
    """A text with open sizes and a function of fixed ones that calls it, which is how JAX calls such texts."""
    head = text[text.index("@main(") :].split("\n")[0]
    given, made = (re.findall(r"tensor<[^>]*>", part) for part in head.split("->"))
    fixed = [f"tensor<{''.join(f'{n}x' for n in a.shape)}{_KINDS[a.dtype.name]}>" for a in arguments]
    lines = [
        f"%c{k} = stablehlo.convert %a{k} : ({a}) -> {b}" for k, (a, b) in enumerate(zip(fixed, given, strict=True))
    ]
    names, results = ", ".join(f"%c{k}" for k in range(len(given))), ", ".join(made)
    found = "%r" if len(made) == 1 else f"%r:{len(made)}"
    back = ", ".join(f"%r#{k}" for k in range(len(made))) if len(made) > 1 else "%r"
    outer = ", ".join(f"%a{k}: {a}" for k, a in enumerate(fixed))
    body = "\n".join([*lines, f"{found} = func.call @open({names}) : ({', '.join(given)}) -> ({results})"])
    call = f"func.func public @main({outer}) -> ({results}) {{\n{body}\nfunc.return {back} : {results}\n}}\n"
    inner = text.replace("func.func public @main(", "func.func private @open(").rstrip()
    return inner.removesuffix("}") + call + "}\n"


def _run(text: str, arguments: list[Any]) -> list[Any]:
    """What XLA computes."""
    if importlib.util.find_spec("jax") is None:
        pytest.skip("StableHLO text is checked by JAX, which is not installed")
    import jax
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from jax._src.lib import _jax, xla_client
    from jax._src.lib.mlir import ir

    with jax.enable_x64(True), mlir.make_ir_context():
        devices = xla_client.DeviceList(tuple(jax.devices("cpu")[:1]))
        options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
        module = ir.Module.parse(_called(text, arguments) if "?x" in text else text)
        if "?x" in text:
            code = mlir.module_to_bytecode(module)
            module = ir.Module.parse(_jax.mlir.refine_polymorphic_shapes(code, True, True))
        program = devices[0].client.compile_and_load(module, devices, options)
        found = program.execute([jax.device_put(a, devices[0]) for a in arguments])
        return [np.asarray(value) for value in found]


@pytest.mark.parametrize("name", CASES)
def test_xla_computes_what_eager_mode_computes(name: str) -> None:
    function, arguments = CASES[name]
    with aj.no_grad():
        text = aj.export.export(function, arguments).stablehlo()
        expected = function(*arguments)
    assert text.count("{") == text.count("}")
    _agree(_run(text, [a.numpy() for a in arguments]), expected)


def _agree(found: list[Any], expected: Any) -> None:
    results = [expected] if isinstance(expected, aj.Tensor) else list(expected)
    assert len(found) == len(results)
    for value, wanted in zip(found, results, strict=True):
        assert value.shape == tuple(wanted.shape)
        a, b = (np.asarray(v, np.float64) for v in (value, wanted.to(aj.float64).numpy()))
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


def _open_shapes(a: aj.Tensor) -> tuple[aj.Tensor, ...]:
    n = a.shape[0]
    return (
        a.T.contiguous(), a.reshape(-1) * 2, a.reshape(n, 2, -1) + 1, a[1:, ::2] * 1, aj.cat([a, a], 0),
        aj.cat([a, aj.ones(2, 4)]), aj.flip(a, (0,)), F.pad(a, (0, 0, 1, 2), value=3.0), a.mean(0), a.mean(),
        a.sum(1, keepdim=True) * a, aj.arange(n) * 2, aj.zeros(n, 3) + a[:, :1], a[:, None] * a[None],
        aj.softmax(a, 0), a.var(0), a[-1] * n, (a > 0).all(0), a @ a.T, F.layer_norm(a, (4,)), a[n // 2 :] + 1,
    )  # fmt: skip


def _open_looked_up(x: aj.Tensor, i: aj.Tensor) -> tuple[aj.Tensor, ...]:
    return x[i], x[:, -i], aj.index_select(x, 1, i), F.embedding(i, x), aj.take_along_dim(x, i[:, None] % 2, 0)


_OPEN: dict[str, tuple[Callable[..., Any], Any, tuple[Any, ...]]] = {
    "shapes": (_open_shapes, lambda n: (_normal(n, 4),), ({0: "n"},)),
    "looked_up": (_open_looked_up, lambda n: (_normal(9, n + 3), aj.arange(n)), ({1: "m"}, {0: "n"})),
    "products": (lambda a, b: a @ b, lambda n: (_normal(n, 3, 4), _normal(n, 4, 5)), ({0: "n"}, {0: "n"})),
    "convolution": (aj.nn.Conv2d(2, 3, 3, padding=1), lambda n: (_normal(n, 2, 5, 5),), ({0: "n"},)),
    "attention": (_attended, lambda n: (_normal(2, 3, n, 4),), ({2: "n"},)),
    "encoder": (
        aj.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), lambda n: (_normal(n, n + 1, 8),),
        ({0: "n", 1: "m"},),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", _OPEN)
def test_open_sizes_are_those_of_the_call(name: str) -> None:
    function, make, shapes = _OPEN[name]
    dims = {symbol: aj.export.Dim(symbol) for axes in shapes for symbol in axes.values()}
    open_axes = tuple({axis: dims[symbol] for axis, symbol in axes.items()} for axes in shapes)
    with aj.no_grad():
        text = aj.export.export(function, make(3), dynamic_shapes=open_axes).stablehlo()
        assert text.startswith("// for sizes: ")
        assert "?x" in text
        for n in (2, 5, 6):
            arguments = make(n)
            _agree(_run(text, [a.numpy() for a in arguments]), function(*arguments))


def test_the_text_is_one_line_an_op() -> None:
    text = aj.export.export(lambda x, y: aj.tanh(x) + y, (aj.ones(2, 3), aj.ones(3))).stablehlo()
    lines = [line.strip() for line in text.splitlines()]
    assert (
        lines[1:-2]
        == [
            "func.func public @main(%arg0: tensor<2x3xf32>, %arg1: tensor<3xf32>) -> (tensor<2x3xf32>) {",
            "%0 = stablehlo.tanh %arg0 : tensor<2x3xf32>",
            "%1 = stablehlo.broadcast_in_dim %arg1, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>",
            "%2 = stablehlo.add %0, %1 : tensor<2x3xf32>",
            "return %2 : tensor<2x3xf32>",
            "}",
        ][:-1]
    )


def test_what_has_no_counterpart_is_refused_by_its_line() -> None:
    with pytest.raises(aj.export.ExportError, match=r"sort has no counterpart[\s\S]*test_stablehlo.py"):
        aj.export.export(lambda x: aj.sort(x)[0], (aj.ones(3),)).stablehlo()
    total = aj.zeros(3)
    with pytest.raises(aj.export.ExportError, match="has no state"):
        aj.export.export(lambda x: total.add_(x) * 2, (aj.ones(3),)).stablehlo()
    with pytest.raises(aj.export.ExportError, match=r"sizes of arguments, and no other|no counterpart"):
        aj.export.export(lambda x: x[x > 0] * 2, (aj.ones(3),)).stablehlo()
