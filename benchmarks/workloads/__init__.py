"""The workloads by name. Each module offers ``build(T)`` for torch-like namespaces, ``build_jax()`` and ``work()``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.workloads import (
    black_scholes,
    decoding,
    embedding_bag,
    gaussian_process,
    gpt,
    heat,
    hmc,
    leapfrog,
    logreg_newton,
    lstm,
    mlp,
    newton,
    pinn_burgers,
    reinforce,
    resnet,
    rosenbrock,
    seq2seq,
    softmax_layernorm,
    spectral,
)
from benchmarks.workloads.problem import Problem, Work, Workload


def workload(
    build: Callable[..., Problem], build_jax: Callable[..., Problem], work: Callable[..., Work], **size: object
) -> Workload:
    """A workload with its size bound."""
    return Workload(partial(build, **size), partial(build_jax, **size), partial(work, **size))


# One compiled step each; `tests/golden` records them.
STEPS: dict[str, Workload] = {
    "mlp_digits": workload(mlp.build, mlp.build_jax, mlp.work, net=mlp.DIGITS),
    "mlp_mnist": workload(mlp.build, mlp.build_jax, mlp.work, net=mlp.MNIST),
    "gpt": workload(gpt.build, gpt.build_jax, gpt.work, size=gpt.Size()),
    "pinn_burgers": workload(pinn_burgers.build, pinn_burgers.build_jax, pinn_burgers.work, dtype="float32"),
    "pinn_burgers_f64": workload(pinn_burgers.build, pinn_burgers.build_jax, pinn_burgers.work, dtype="float64"),
    "black_scholes": workload(black_scholes.build, black_scholes.build_jax, black_scholes.work),
    "softmax_layernorm": workload(softmax_layernorm.build, softmax_layernorm.build_jax, softmax_layernorm.work),
    "rosenbrock10": workload(rosenbrock.build, rosenbrock.build_jax, rosenbrock.work),
    "heat": workload(heat.build, heat.build_jax, heat.work),
    "lstm": workload(lstm.build, lstm.build_jax, lstm.work),
    "leapfrog": workload(leapfrog.build, leapfrog.build_jax, leapfrog.work),
    "embedding_bag": workload(embedding_bag.build, embedding_bag.build_jax, embedding_bag.work),
    "residual_block": workload(resnet.build, resnet.build_jax, resnet.work, net=resnet.RESIDUAL_BLOCK),
    "resnet18": workload(resnet.build, resnet.build_jax, resnet.work, net=resnet.RESNET18),
    "newton": workload(newton.build, newton.build_jax, newton.work),
}

# What else people run: methods that take gradients in other ways, and programs of several compiled calls.
FURTHER: dict[str, Workload] = {
    "logreg_newton": workload(logreg_newton.build, logreg_newton.build_jax, logreg_newton.work),
    "hmc": workload(hmc.build, hmc.build_jax, hmc.work),
    "gaussian_process": workload(gaussian_process.build, gaussian_process.build_jax, gaussian_process.work),
    "spectral": workload(spectral.build, spectral.build_jax, spectral.work),
    "gpt_bf16": workload(gpt.build, gpt.build_jax, gpt.work, size=gpt.Size(autocast=True)),
    "seq2seq": workload(seq2seq.build, seq2seq.build_jax, seq2seq.work),
    "reinforce": workload(reinforce.build, reinforce.build_jax, reinforce.work),
    "decoding": workload(decoding.build, decoding.build_jax, decoding.work),
}
WORKLOADS = STEPS | FURTHER
