"""The workloads by name. Each module offers ``build(T)`` for torch-like namespaces, ``build_jax()`` and ``work()``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.workloads import (
    black_scholes,
    embedding_bag,
    gpt,
    heat,
    leapfrog,
    lstm,
    mlp,
    newton,
    pinn_burgers,
    resnet,
    rosenbrock,
    softmax_layernorm,
)
from benchmarks.workloads.problem import Problem, Work, Workload


def workload(
    build: Callable[..., Problem], build_jax: Callable[..., Problem], work: Callable[..., Work], **size: object
) -> Workload:
    """A workload with its size bound."""
    return Workload(partial(build, **size), partial(build_jax, **size), partial(work, **size))


WORKLOADS: dict[str, Workload] = {
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
