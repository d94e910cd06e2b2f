"""A scanned LSTM cell against the same cell unrolled and JAX's scan: compile time and time of a training step.

    python -m benchmarks.control_flow [--steps 64 256 1024] [--batch 32] [--width 128] [--tries 20] [--systems ...]

One call computes the mean square of all hidden states and its gradients with respect to the three weights, in float32.
Each system runs in a process of its own; times are the least and the median of the tries. The unrolled form is left out
above ``UNROLLED_LIMIT`` steps, where compiling it takes minutes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

SYSTEMS = ("scan", "unrolled", "jax")
UNROLLED_LIMIT = 256


def arrays(steps: int, batch: int, width: int) -> list[np.ndarray[Any, Any]]:
    """Inputs, then the weights of inputs and of the hidden state, and the bias."""
    rng = np.random.default_rng(0)
    shapes = ((steps, batch, width), (width, 4 * width), (width, 4 * width), (4 * width,))
    return [(0.1 * rng.standard_normal(shape)).astype(np.float32) for shape in shapes]


def autojit_call(steps: int, batch: int, width: int, is_scanned: bool) -> Callable[[], Any]:
    """The compiled call; its first use compiles."""
    import autojit as aj

    xs, *weights = map(aj.tensor, arrays(steps, batch, width))
    wx, wh, b = (w.requires_grad_() for w in weights)

    def cell(carry: Any, x: Any) -> Any:
        h, c = carry
        i, f, o, g = (x @ wx + h @ wh + b).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        return (h, c), h

    def step(xs: Any) -> Any:
        carry = (aj.zeros(batch, width), aj.zeros(batch, width))
        if is_scanned:
            _, ys = aj.scan(cell, carry, xs)
        else:
            rows = []
            for x in xs:
                carry, y = cell(carry, x)
                rows.append(y)
            ys = aj.stack(rows)
        loss = (ys**2).mean()
        return loss, aj.autograd.grad(loss, (wx, wh, b))

    compiled = aj.jit(step)
    return lambda: compiled(xs)[0].item()


def jax_call(steps: int, batch: int, width: int) -> Callable[[], Any]:
    """The same with ``jax.lax.scan``."""
    import jax
    import jax.numpy as jnp

    def loss(weights: Any, xs: Any) -> Any:
        wx, wh, b = weights

        def cell(carry: Any, x: Any) -> Any:
            h, c = carry
            i, f, o, g = jnp.split(x @ wx + h @ wh + b, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        start = jnp.zeros((batch, width), jnp.float32)
        _, ys = jax.lax.scan(cell, (start, start), xs)
        return (ys**2).mean()

    xs, *weights = map(jnp.asarray, arrays(steps, batch, width))
    compiled = jax.jit(jax.value_and_grad(loss))
    return lambda: float(jax.block_until_ready(compiled(weights, xs))[0])


def measure(call: Callable[[], Any], tries: int) -> dict[str, float]:
    """Seconds of the first call, milliseconds of later ones, and the result."""
    start = time.perf_counter()
    value = call()
    first = time.perf_counter() - start
    times = []
    for _ in range(tries):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    return {"first_s": first, "least_ms": min(times), "median_ms": float(np.median(times)), "value": value}


def one(system: str, args: argparse.Namespace, steps: int) -> dict[str, float]:
    """A measurement in this process."""
    if system == "jax":
        return measure(jax_call(steps, args.batch, args.width), args.tries)
    return measure(autojit_call(steps, args.batch, args.width, system == "scan"), args.tries)


def main() -> None:
    """Measure every system at every number of steps, each in a fresh process; print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--tries", type=int, default=20)
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=SYSTEMS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one(args.one, args, args.steps[0])))
        return
    print(f"{'steps':>6} {'system':>10} {'first s':>9} {'least ms':>10} {'median ms':>10} {'value':>12}")
    for steps in args.steps:
        for system in args.systems:
            if system == "unrolled" and steps > UNROLLED_LIMIT:
                continue
            sizes = ["--steps", str(steps), "--batch", str(args.batch), "--width", str(args.width)]
            command = [sys.executable, "-m", "benchmarks.control_flow", "--one", system, "--tries", str(args.tries)]
            done = subprocess.run([*command, *sizes], capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"{steps:>6} {system:>10}  {done.stderr.strip().splitlines()[-1]}")
                continue
            row = json.loads(done.stdout.splitlines()[-1])
            figures = f"{row['first_s']:>9.2f} {row['least_ms']:>10.2f} {row['median_ms']:>10.2f} {row['value']:>12.8f}"
            print(f"{steps:>6} {system:>10} {figures}")


if __name__ == "__main__":
    main()
