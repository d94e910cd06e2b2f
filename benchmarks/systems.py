"""The systems under test: how each is imported, how a workload becomes a step on it, and the environment it runs in.

``X@malloc`` is system X with an allocator that keeps freed memory: fresh pages are costly on virtual machines, and a
comparison should not hang on which allocator a peer happened to get.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.workloads.jax_optimizers import jax_state, jax_training
from benchmarks.workloads.problem import (
    Check,
    Function,
    Namespace,
    Optimizer,
    Problem,
    Program,
    Training,
    Workload,
    loss_check,
)

OURS = ("autojit", "autojit-eager")
PEERS = ("torch-eager", "torch-eager@malloc", "torch-compile", "torch-compile@malloc", "jax")
MODULES = {
    "autojit": "autojit",
    "autojit-eager": "autojit",
    "torch-eager": "torch",
    "torch-compile": "torch",
    "jax": "jax",
}
REFERENCE = "torch-eager"  # whose numbers the others must agree with

KEEP_FREED_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
    "MALLOC_TOP_PAD_": str(1 << 26),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}


@dataclass(frozen=True)
class Step:
    """A workload ready to run: ``call`` does one step, ``wait`` blocks until its result is there."""

    call: Callable[[], Any]
    check: Check
    wait: Callable[[Any], object] = lambda _: None


def base_name(system: str) -> str:
    return system.partition("@")[0]


def is_installed(system: str) -> bool:
    return importlib.util.find_spec(MODULES[base_name(system)]) is not None


def environment(system: str, cache: Path, threads: int, device: str = "cpu") -> dict[str, str]:
    """A child's environment: every cache under ``cache``, every thread pool limited to ``threads``."""
    pools = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "AUTOJIT_NUM_THREADS")
    scratch = cache / "tmp"
    scratch.mkdir(parents=True, exist_ok=True)
    return {
        **os.environ,
        **dict.fromkeys(pools, str(threads)),
        **(KEEP_FREED_MEMORY if system.endswith("@malloc") else {}),
        "HOME": str(cache),
        "XDG_CACHE_HOME": str(cache / "xdg"),
        "AUTOJIT_CACHE_DIR": str(cache / "autojit"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "JAX_PLATFORMS": device,
        "JAX_COMPILATION_CACHE_DIR": str(cache / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "TMPDIR": str(scratch),
        "PYTHONWARNINGS": "ignore",
    }


def load(system: str, threads: int, device: str = "cpu") -> Namespace:
    """Import the system with its threads set, and the device where it makes its tensors."""
    module = importlib.import_module(MODULES[base_name(system)])
    if hasattr(module, "set_num_threads"):
        module.set_num_threads(threads)
    if device != "cpu" and hasattr(module, "set_default_device"):
        module.set_default_device(device)
    return module


def prepare(system: str, module: Namespace, workload: Workload, device: str = "cpu") -> Step:
    """Build the workload's step on an imported system."""
    base = base_name(system)
    if base == "jax":
        return jax_step(module, workload.build_jax())
    problem = workload.build(module)
    wait: Callable[[Any], object] = (lambda _: None) if device == "cpu" else (lambda _: module.cuda.synchronize())
    if isinstance(problem, Program):
        return Step(problem.make(compiler(base, module)), problem.check, wait)
    check = problem.check if isinstance(problem, Function) else loss_check
    make = whole_torch_step if base == "torch-compile" else plain_step
    step = make(module, problem)
    if base == "torch-compile":
        step = module.compile(step, fullgraph=True)
    if base == "autojit":
        step = module.jit(step)
    return Step(partial(step, *problem.args), check, wait)


def compiler(base: str, module: Namespace) -> Callable[..., Any]:
    """What a user puts on a function that is to be compiled."""
    compilers = {"autojit": "jit", "torch-compile": "compile", "jax": "jit"}
    if base in compilers:
        return getattr(module, compilers[base])  # type: ignore[no-any-return]
    return lambda function: function


def plain_step(T: Namespace, problem: Training | Function) -> Callable[..., Any]:
    """The step as a user writes it."""
    if isinstance(problem, Function):
        return problem.function
    loss_of = problem.loss
    optimizer = getattr(T.optim, problem.optimizer.kind)(problem.parameters, **problem.optimizer.options())

    def step(*args: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(*args)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def whole_torch_step(torch: Namespace, problem: Training | Function) -> Callable[..., Any]:
    """The step in the form torch.compile does best: one graph, by its private flag, with the update written out."""
    torch._dynamo.config.trace_autograd_ops = True
    if isinstance(problem, Function):
        return problem.function
    loss_of, parameters = problem.loss, list(problem.parameters)
    update = torch_update(torch, parameters, problem.optimizer)

    def step(*args: Any) -> Any:
        loss = loss_of(*args)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            update(gradients)
        return loss.detach()

    return step


def torch_update(torch: Namespace, parameters: list[Any], optimizer: Optimizer) -> Callable[[Sequence[Any]], None]:
    """The update in traceable form. ``sub_``, not ``add_``: torch 2.13 fuses ``mm`` with ``add_`` and drops alpha."""
    first = [torch.zeros_like(p) for p in parameters]
    second = [torch.zeros_like(p) for p in parameters]
    steps = torch.zeros(())

    def sgd(gradients: Sequence[Any]) -> None:
        for p, g, momentum in zip(parameters, gradients, first, strict=True):
            p.sub_(optimizer.lr * momentum.mul_(optimizer.momentum).add_(g))

    def adam(gradients: Sequence[Any]) -> None:
        steps.add_(1)
        correction1, correction2 = 1 - 0.9**steps, (1 - 0.999**steps).sqrt()
        for p, g, m, v in zip(parameters, gradients, first, second, strict=True):
            p.mul_(1 - optimizer.lr * optimizer.weight_decay)
            m.lerp_(g, 0.1)
            v.mul_(0.999).addcmul_(g, g, value=0.001)
            p.sub_(optimizer.lr / correction1 * m / (v.sqrt() / correction2 + 1e-8))

    return sgd if optimizer.kind == "SGD" else adam


def jax_step(jax: Namespace, problem: Problem) -> Step:
    """A jitted step; a training problem's state is donated, so that it is updated in place."""
    if isinstance(problem, Program):
        return Step(problem.make(compiler("jax", jax)), problem.check, jax.block_until_ready)
    if isinstance(problem, Function):
        if problem.x64:
            jax.config.update("jax_enable_x64", True)
        args = tuple(map(jax.numpy.array, problem.args))
        return Step(partial(jax.jit(problem.function), *args), problem.check, jax.block_until_ready)
    args = tuple(map(jax.numpy.array, problem.args))
    run = jax.jit(jax_training(jax, problem.loss, problem.optimizer), donate_argnums=(0,))
    state = jax_state(jax, problem.parameters, problem.optimizer)

    def call() -> Any:
        nonlocal state
        state, loss = run(state, *args)
        return loss

    return Step(call, loss_check, jax.block_until_ready)
