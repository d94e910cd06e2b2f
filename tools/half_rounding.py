"""How float16 and bfloat16 are rounded: how many results are torch's own, and how many are float32's rounded once.

    python -m tools.half_rounding [NAME ...] [--under 0.97]

Runs under a Python that has torch. Each expression and its derivative by ``x`` are computed from the same halves by
autojit and by torch; of their elements the table tells the share that is equal: autojit's and torch's (a = t),
autojit's and what torch computes in float32 from the same numbers, rounded once (a = once), and torch's and that.
``--under`` leaves out what equals torch's in this share of elements or more.
"""

from __future__ import annotations

import argparse
import importlib
from typing import Any, NamedTuple

import numpy as np

EXPRESSIONS = """
F.gelu(x); F.gelu(x, approximate='tanh'); F.silu(x); F.mish(x); F.softplus(x); F.logsigmoid(x); F.leaky_relu(x)
F.elu(x, 1.3); F.celu(x, 1.3); F.selu(x); F.hardsigmoid(x); F.hardswish(x); F.glu(x); F.softsign(x); F.tanhshrink(x)
T.sigmoid(x); T.tanh(x); T.softmax(x, 1); T.softmax(x, 0); T.log_softmax(x, 1); T.logsumexp(x, 1)
T.exp(x); T.sin(x); T.cos(x); T.erf(x); T.expm1(x); T.atan(x); T.log1p(x.abs()); T.sqrt(x.abs()); T.rsqrt(x.abs())
x * 0.3; x / 0.3; x + 0.3; x * T.tensor(0.3); x ** 3; x.abs() ** 2.5; T.rad2deg(x); x * y; x / y; T.atan2(x, y)
T.add(x, y, alpha=0.3); T.sub(x, y, alpha=0.3); T.lerp(x, y, 0.3); T.lerp(x, y, y.abs()); T.logaddexp(x, y)
T.logaddexp2(x, y); T.addcmul(x, y, y, value=0.3); T.addcdiv(x, y, y.abs().clamp(0.5), value=0.3)
x.sum(1); x.mean(1); x.mean(); x.var(1); x.std(1); x.norm(dim=1); T.cumsum(x, 1); T.cumprod(x, 1)
F.layer_norm(x, (24,), y[0], y[1]); F.rms_norm(x, (24,), y[0]); F.group_norm(x, 3, y[0], y[1])
F.batch_norm(x, None, None, y[0], y[1], training=True); F.normalize(x, dim=1); F.cosine_similarity(x, y, dim=1)
F.mse_loss(x, y); F.l1_loss(x, y); F.smooth_l1_loss(x, y); F.huber_loss(x, y); F.cross_entropy(x, T.arange(36) % 24)
F.binary_cross_entropy_with_logits(x, (y > 0).to(y.dtype)); F.kl_div(x, T.softmax(y, 1), reduction='sum')
F.linear(x, y[:7]); F.linear(x, y[:7], y[0, :7]); F.linear(x.view(2, 18, 24), y[:7], y[0, :7]); x @ y.mT
T.addmm(x[:, :7], x, y[:7].mT, beta=0.3); T.addmv(x[:, 0], x, y[0]); T.baddbmm(x[None, :, :7], x[None], y[None, :7].mT)
F.conv1d(x[None, :8], y.reshape(-1)[:96].view(4, 8, 3), y[0, :4]); F.conv1d(x[None, :36], y.view(24, 36, 1))
F.avg_pool1d(x, 3, padding=1); F.avg_pool2d(x[None], 3, 2); F.adaptive_avg_pool1d(x, 5)
F.interpolate(x.view(1, 2, 18, 24), (23, 17), mode='bilinear'); F.interpolate(x[None], 17, mode='linear')
F.interpolate(x.view(1, 2, 18, 24), (23, 17), mode='area'); F.embedding_bag(T.arange(36).view(9, 4), x, mode='mean')
F.scaled_dot_product_attention(x[None, None], y[None, None], y[None, None])
"""
CASES = [case.strip() for case in EXPRESSIONS.strip().replace("\n", ";").split(";")]
SHAPE = (36, 24)
MOST = 36 * 24 * 4  # elements of a result


class Library(NamedTuple):
    """autojit or torch."""

    tensors: Any
    functions: Any

    @classmethod
    def named(cls, name: str) -> Library:
        """The library of that name."""
        return cls(importlib.import_module(name), importlib.import_module(f"{name}.nn.functional"))

    def run(self, case: str, dtype: str, arrays: list[Any]) -> list[Any]:
        """The value of an expression and its derivative by ``x``, as float32."""
        kind = getattr(self.tensors, dtype)
        x, y, weight = [self.tensors.from_numpy(array.copy()).to(kind) for array in arrays]
        x.requires_grad_()
        value = eval(case, {"T": self.tensors, "F": self.functions, "x": x, "y": y})
        (slope,) = self.tensors.autograd.grad(value, (x,), weight[: value.numel()].view(value.shape).to(value.dtype))
        return [value.detach().float().numpy(), slope.float().numpy()]

    def rounded(self, array: Any, dtype: str) -> Any:
        """The nearest halves."""
        return self.tensors.from_numpy(np.array(array)).to(getattr(self.tensors, dtype)).float().numpy()


def share(a: Any, b: Any) -> float:
    """How many elements of two arrays are equal."""
    return float(np.mean((a == b) | (np.isnan(a) & np.isnan(b))))


def shares(case: str, dtype: str, ours: Library, theirs: Library) -> list[tuple[float, float, float]]:
    """Of the value and the derivative: a = t, a = once, t = once."""
    rng = np.random.default_rng(0)
    arrays = [theirs.rounded(rng.standard_normal(shape).astype(np.float32), dtype) for shape in (SHAPE, SHAPE, (MOST,))]
    a, t = ours.run(case, dtype, arrays), theirs.run(case, dtype, arrays)
    once = [theirs.rounded(array, dtype) for array in theirs.run(case, "float32", arrays)]
    return [(share(p, q), share(p, r), share(q, r)) for p, q, r in zip(a, t, once, strict=True)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tools.half_rounding", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="of the expressions that have it")
    parser.add_argument("--under", type=float, default=2.0, metavar="SHARE")
    options = parser.parse_args()
    ours, theirs = Library.named("autojit"), Library.named("torch")
    found: list[tuple[float, float, float]] = []
    print(f"{'':62}          value: a = t, a = once, t = once   derivative")
    for case in CASES:
        if options.names and not any(name in case for name in options.names):
            continue
        for dtype in ("float16", "bfloat16"):
            value, slope = shares(case, dtype, ours, theirs)
            found += [value, slope]
            if min(value[0], slope[0]) < options.under:
                print(f"{case:62} {dtype:9} " + "   ".join("{:.2f} {:.2f} {:.2f}".format(*s) for s in (value, slope)))
    for k, kind in enumerate(("values", "derivatives")):
        means = [float(np.mean(column)) for column in zip(*found[k::2], strict=True)]
        print(f"mean share of {kind}: a = t {means[0]:.3f}, a = once {means[1]:.3f}, t = once {means[2]:.3f}")


if __name__ == "__main__":
    main()
