"""Calls of eager ops on about 100,000 elements, by name: the same for autojit and for torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

COUNT, SIDE = 100_000, 316
UNARY = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "ceil",
    "cos",
    "cosh",
    "deg2rad",
    "digamma",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "frac",
    "i0",
    "isfinite",
    "isinf",
    "isnan",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "logit",
    "neg",
    "nan_to_num",
    "rad2deg",
    "reciprocal",
    "relu",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "signbit",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
    "softmax0",
    "logical_not",
    "clone",
]
BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "floor_divide",
    "remainder",
    "fmod",
    "pow",
    "atan2",
    "hypot",
    "maximum",
    "minimum",
    "fmax",
    "copysign",
    "logaddexp",
    "eq",
    "lt",
    "xlogy",
    "ldexp",
    "nextafter",
    "heaviside",
]
REDUCTIONS = [
    "sum",
    "mean",
    "prod",
    "amax",
    "amin",
    "argmax",
    "argmin",
    "std",
    "var",
    "norm",
    "logsumexp",
    "all",
    "any",
    "max",
    "min",
    "median",
    "nansum",
    "count_nonzero",
    "cumsum",
    "cumprod",
    "logcumsumexp",
    "cummax",
    "sort",
    "argsort",
    "unique",
    "topk10",
    "histc",
    "kthvalue9",
]
NN = [
    "gelu",
    "silu",
    "elu",
    "selu",
    "softplus",
    "mish",
    "hardswish",
    "hardtanh",
    "hardsigmoid",
    "leaky_relu",
    "logsigmoid",
    "softsign",
    "tanhshrink",
    "softshrink",
    "relu6",
    "celu",
    "glu",
]


def operands(aj: Any, *, recorded: bool = False) -> dict[str, Any]:
    """Operands by name in the library ``aj``; ``recorded``: real ones require gradients."""
    draw = np.random.default_rng(0)
    values = {
        "x": draw.uniform(0.05, 0.95, COUNT), "y": draw.uniform(0.05, 0.95, COUNT),
        "m": draw.normal(size=(SIDE, SIDE)), "n": draw.normal(size=(SIDE, SIDE)),
        "image": draw.normal(size=(4, 16, 40, 40)), "kernel": draw.normal(size=(16, 16, 3, 3)),
        "sequence": draw.normal(size=(4, 100, 256)), "above": draw.uniform(1.05, 3.0, COUNT),
    }  # fmt: skip
    found = {name: aj.tensor(value.astype(np.float32)) for name, value in values.items()}
    found["index"] = aj.tensor(draw.integers(0, COUNT, COUNT))
    found["rows"] = aj.tensor(draw.integers(0, SIDE, 300))
    found["mask"] = aj.tensor(draw.uniform(size=COUNT) < 0.5)
    found["labels"] = aj.tensor(draw.integers(0, SIDE, SIDE))
    found["definite"] = found["m"] @ found["m"].T + SIDE * aj.eye(SIDE)
    found["whole"] = aj.tensor(draw.integers(0, 1000, COUNT))
    return {k: x.requires_grad_() if recorded and x.is_floating_point() else x for k, x in found.items()}


def cases(aj: Any, v: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Calls by name in the library ``aj`` (autojit, or torch) on its ``operands``."""
    F = aj.nn.functional
    x, y, m, n, index, mask, image = (v[k] for k in ("x", "y", "m", "n", "index", "mask", "image"))
    found: dict[str, Callable[[], Any]] = {}
    special = {"softmax0": lambda: x.softmax(0), "acosh": lambda: v["above"].acosh()}
    for name in UNARY:
        found[name] = special.get(name) or partial(getattr(aj, name, None) or getattr(aj.special, name), x)
    for name in BINARY:
        found[name] = partial(getattr(aj, name), x, y)
    of_an_axis = {"cumsum", "cumprod", "logcumsumexp", "cummax", "logsumexp"}
    options = {"topk10": lambda: x.topk(10), "kthvalue9": lambda: x.kthvalue(9), "histc": lambda: aj.histc(x, 50)}
    for name in REDUCTIONS:
        found[name] = options.get(name) or partial(getattr(aj, name), x, *([0] if name in of_an_axis else []))
    for name in ("sum", "mean", "amax", "std", "softmax", "log_softmax", "cumsum", "sort", "argmax", "logsumexp"):
        found[f"{name} rows"] = partial(getattr(aj, name), m, 1)
        found[f"{name} columns"] = partial(getattr(aj, name), m, 0)
    for name in NN:
        found[name] = partial(getattr(F, name), x)
    found |= {
        "where": lambda: aj.where(mask, x, y),
        "clamp": lambda: x.clamp(0.2, 0.8),
        "lerp": lambda: aj.lerp(x, y, 0.3),
        "addcmul": lambda: aj.addcmul(x, x, y),
        "x + 1": lambda: x + 1,
        "x * 2.5": lambda: x * 2.5,
        "x ** 3": lambda: x**3,
        "x.double()": lambda: x.double(),
        "x.long()": lambda: x.long(),
        "m + row": lambda: m + n[0],
        "m + column": lambda: m + n[:, :1],
        "m.t() + n": lambda: m.t() + n,
        "cat": lambda: aj.cat([x, y]),
        "stack": lambda: aj.stack([x, y]),
        "gather": lambda: x.gather(0, index),
        "x[index]": lambda: x[index],
        "x[mask]": lambda: x[mask],
        "m[rows]": lambda: m[v["rows"]],
        "index_select": lambda: m.index_select(0, v["rows"]),
        "scatter_add": lambda: x.scatter_add(0, index, y),
        "index_add": lambda: m.index_add(0, v["rows"], n[:300]),
        "index_put": lambda: x.clone().index_put_((index,), y),
        "masked_fill": lambda: x.masked_fill(mask, 0.0),
        "masked_select": lambda: x.masked_select(mask),
        "nonzero": lambda: mask.nonzero(),
        "flip": lambda: x.flip(0),
        "roll": lambda: x.roll(100, 0),
        "tile": lambda: m[:100].tile(2, 2),
        "repeat_interleave": lambda: m[:100].repeat_interleave(3, 0),
        "tril": lambda: m.tril(),
        "diag": lambda: x[:SIDE].diag(),
        "t().contiguous()": lambda: m.t().contiguous(),
        "permute": lambda: image.permute(0, 2, 3, 1).contiguous(),
        "matmul": lambda: m @ n,
        "m @ v": lambda: m @ x[:SIDE],
        "bmm": lambda: v["sequence"] @ v["sequence"].mT,
        "einsum": lambda: aj.einsum("bij,bkj->bik", v["sequence"], v["sequence"]),
        "outer": lambda: aj.outer(x[:SIDE], y[:SIDE]),
        "dot": lambda: x.dot(y),
        "conv2d": lambda: F.conv2d(image, v["kernel"], padding=1),
        "max_pool2d": lambda: F.max_pool2d(image, 2),
        "avg_pool2d": lambda: F.avg_pool2d(image, 2),
        "layer_norm": lambda: F.layer_norm(m, (SIDE,)),
        "batch_norm": lambda: F.batch_norm(image, None, None, training=True),
        "group_norm": lambda: F.group_norm(image, 4),
        "cross_entropy": lambda: F.cross_entropy(m, v["labels"]),
        "mse_loss": lambda: F.mse_loss(x, y),
        "smooth_l1": lambda: F.smooth_l1_loss(x, y),
        "bce": lambda: F.binary_cross_entropy(x, y),
        "embedding": lambda: F.embedding(v["rows"], m),
        "interpolate": lambda: F.interpolate(image, scale_factor=2),
        "bilinear": lambda: F.interpolate(image, scale_factor=2, mode="bilinear"),
        "pad": lambda: F.pad(image, (1, 1, 1, 1)),
        "unfold": lambda: F.unfold(image, 3),
        "one_hot": lambda: F.one_hot(v["labels"], SIDE),
        "dropout": lambda: F.dropout(x, 0.5),
        "attention": lambda: F.scaled_dot_product_attention(v["sequence"], v["sequence"], v["sequence"]),
        "cdist": lambda: aj.cdist(m[:, :3], n[:, :3]),
        "rand": lambda: aj.rand(COUNT),
        "randn": lambda: aj.randn(COUNT),
        "randperm": lambda: aj.randperm(COUNT),
        "bernoulli": lambda: aj.bernoulli(x),
        "arange": lambda: aj.arange(COUNT),
        "zeros": lambda: aj.zeros(COUNT),
        "bincount": lambda: v["whole"].bincount(),
        "searchsorted": lambda: aj.searchsorted(y.sort().values, x),
        "bucketize": lambda: aj.bucketize(x, y[:100].sort().values),
        "isin": lambda: aj.isin(v["whole"], v["rows"]),
        "quantile": lambda: aj.quantile(x, 0.3),
        "cholesky": lambda: aj.linalg.cholesky(v["definite"]),
        "solve": lambda: aj.linalg.solve(v["definite"], m),
        "inv": lambda: aj.linalg.inv(v["definite"]),
        "det": lambda: aj.linalg.det(v["definite"]),
        "qr": lambda: aj.linalg.qr(m),
        "svd": lambda: aj.linalg.svd(m),
        "eigh": lambda: aj.linalg.eigh(v["definite"]),
        "fft": lambda: aj.fft.fft(x),
        "rfft2": lambda: aj.fft.rfft2(m),
        "diff": lambda: x.diff(),
        "kron": lambda: aj.kron(m[:20, :16], n[:20, :16]),
        "trapezoid": lambda: aj.trapezoid(x),
        "cov": lambda: m[:50].cov(),
        "normalize": lambda: F.normalize(m),
        "chunk": lambda: [p + 1 for p in m.chunk(4)],
    }
    return found
