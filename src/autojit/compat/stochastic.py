"""Stochastic nodes of 0.3: samples whose derivative is the score function times a reward.

A sample's node pushes ``-reward * d log p(sample) / d parameter`` to the parameters of its distribution, whatever
arrives from the sample's uses: the gradient of the loss ``-reward * log p(sample)`` (REINFORCE).

Source: Williams, Machine Learning 8, 1992.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import autojit as aj
from autojit.compat.variables import as_variable, is_volatile
from autojit.core.errors import ArgumentError, DifferentiationError, UsageError
from autojit.core.source import here
from autojit.history.recording import edge_of, wants_grad
from autojit.tensor import Tensor
from autojit.tensor.node import Node
from autojit.tensor.state import grad_mode, state
from autojit.tensor.tensor import alias, type_of


class Sampled(Node):
    """The node of a sample: knows the parameters, the sample, and the reward once it is given."""

    takes_reward = True
    reward: Tensor | None = None

    def __init__(self, samples: Tensor, parameters: Sequence[Tensor]) -> None:
        super().__init__()
        self.samples = alias(samples)
        self.parameters = tuple(parameters)
        self.edges = [edge_of(p) for p in parameters]
        self.out_metas = (type_of(samples).with_dtype(aj.float32),)
        self.source = here(True)

    def run(self, grads: list[Any], wanted: tuple[bool, ...]) -> Sequence[Any]:
        """The score times the negative reward; what arrived at the sample is not used.

        Raises:
            RuntimeError: there is no reward.
        """
        if self.reward is None:
            raise DifferentiationError(
                "differentiating stochastic functions requires providing a reward",
                {"sampled by": self.name(), "at": self.source},
                "call sample.reinforce(reward) before backward",
            )
        found = self.score(self.reward.neg(), *self.parameters)
        return tuple(g.sum_to_size(p.shape) for g, p in zip(found, self.parameters, strict=True))

    def score(self, weight: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        """``weight * d log p(sample) / d parameter`` for each parameter."""
        raise NotImplementedError


class Bernoulli(Sampled):
    """Zeros and ones."""

    def score(self, weight: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        (p,) = parameters
        return (weight * (self.samples - p) / (p * (1 - p)),)


class Normal(Sampled):
    """Normal numbers."""

    def score(self, weight: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        mean, std = parameters
        z = (self.samples - mean) / std
        return weight * z / std, weight * (z * z - 1) / std


class Multinomial(Sampled):
    """Indices of categories, drawn in proportion to weights, which need not sum to one."""

    def score(self, weight: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        (p,) = parameters
        drawn = weight / p.gather(-1, self.samples)
        return (aj.zeros_like(p).scatter_add(-1, self.samples, drawn) - weight.sum(-1, True) / p.sum(-1, True),)


def bernoulli(probs: Tensor) -> Tensor:
    """Zeros and ones, one with probability ``probs``; takes a ``reward`` if gradients flow into ``probs``.

    Example:
        >>> import autojit as aj
        >>> from autojit.compat import v0_3
        >>> probs = v0_3.Variable(aj.tensor([0.5, 0.5]), requires_grad=True)
        >>> actions = v0_3.bernoulli(probs)
        >>> actions.reinforce(aj.tensor([1.0, -1.0]))
        >>> v0_3.backward(actions)
        >>> probs.grad.abs()
        tensor([2., 2.])
    """
    with grad_mode(False):
        samples = aj.bernoulli(alias(probs))
    return _sampled(Bernoulli, samples, probs)


def normal(mean: Tensor, std: Any = 1.0) -> Tensor:
    """Normal numbers of the given mean and deviation; takes a ``reward`` if gradients flow into one of them."""
    deviation = std if isinstance(std, Tensor) else aj.full_like(alias(mean), std)
    with grad_mode(False):
        samples = aj.normal(alias(mean), alias(deviation))
    return _sampled(Normal, samples, mean, deviation)


def multinomial(probs: Tensor, num_samples: int = 1, replacement: bool = False) -> Tensor:
    """Indices drawn in proportion to weights along the last axis; takes a ``reward`` if gradients flow into them."""
    with grad_mode(False):
        samples = aj.multinomial(alias(probs), num_samples, replacement)
    return _sampled(Multinomial, samples, probs)


def _sampled(kind: type[Sampled], samples: Tensor, *parameters: Tensor) -> Tensor:
    volatile = any(is_volatile(p) for p in parameters)
    made: Tensor = as_variable(samples, volatile)
    if state.grad_enabled and not volatile and any(wants_grad(p) for p in parameters):
        made._grad_fn, made._output_nr = kind(made, parameters), 0
        made._requires_grad = True
    return made


def reinforce(sample: Tensor, reward: Any) -> None:
    """Register the reward of a sample: a number, or a tensor of the sample's shape on its device.

    Raises:
        RuntimeError: the tensor is not a sample of a stochastic function.
        ValueError: shape or device differ.
    """
    node: Any = sample.grad_fn  # a `Sampled`, or what stands for it where the sample is an argument of a step
    if node is None or not node.takes_reward:
        raise UsageError(
            "reinforce() can be only called on outputs of stochastic functions", {"tensor": sample},
            "draw it with bernoulli, normal or multinomial from a Variable that requires gradients",
        )  # fmt: skip
    if not isinstance(reward, Tensor):
        reward = aj.full(sample.shape, float(reward), device=sample.device)
    for what in ("shape", "device"):
        have, want = getattr(reward, what), getattr(sample, what)
        if have != want:
            raise ArgumentError(
                f"reinforce: the reward's {what} differs from the sample's", {"reward": have, "sample": want}
            )
    node.reward = reward.detach()
