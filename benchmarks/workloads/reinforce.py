"""REINFORCE: a policy acts 32 times in 16 copies of a pole on a cart, and is trained on what it got.

Acting is one compiled call a move; the loss is compiled too, and is differentiated outside of it, by ``backward()``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.workloads.jax_optimizers import jax_state, jax_training
from benchmarks.workloads.jax_parts import linear
from benchmarks.workloads.problem import (
    Array,
    Namespace,
    Optimizer,
    Program,
    Work,
    linear_parameters,
    loss_check,
    on_host,
    set_parameters,
)

COPIES, MOVES, HIDDEN, ACTIONS = 16, 32, 64, 2
DISCOUNT, TIME_S = 0.99, 0.02
OPTIMIZER = Optimizer("Adam", lr=1e-3)
Act = Callable[[Array, Array], Array]


def data() -> tuple[Array, Array, list[Array]]:
    """States at the start; per move the noise that makes an argmax a sample (Gumbel's); the policy."""
    rng = np.random.default_rng(0)
    start = rng.uniform(-0.05, 0.05, (COPIES, 4)).astype(np.float32)
    noise = rng.gumbel(size=(MOVES, COPIES, ACTIONS)).astype(np.float32)
    return start, noise, linear_parameters(rng, 4, HIDDEN) + linear_parameters(rng, HIDDEN, ACTIONS)


def work() -> Work:
    """The policy on every move, then once more with its gradients."""
    return Work(flops=4 * 2 * COPIES * MOVES * HIDDEN * (4 + ACTIONS))


def moved(state: Array, action: Array) -> Array:
    """The pole and its cart a moment later, to first order in the angle."""
    _, speed, angle, turning = state.T
    push = 10 * (2 * action - 1)
    turn = 15.8 * angle - 1.46 * push
    change = np.stack([speed, 0.98 * push - 0.72 * angle, turning, turn], 1)
    return (state + TIME_S * change).astype(np.float32)


def rollout(start: Array, noise: Array, act: Act) -> tuple[Array, Array, Array]:
    """What was seen, what was done, and the standardised discounted rewards that came after."""
    states, actions, rewards = [start], [], []
    for move in range(MOVES):
        actions.append(act(states[-1], noise[move]))
        states.append(moved(states[-1], actions[-1]))
        rewards.append(np.cos(states[-1][:, 2]) - 0.1 * np.square(states[-1][:, 0]))
    returns = np.zeros((MOVES, COPIES))
    later = np.zeros(COPIES)
    for move in reversed(range(MOVES)):
        returns[move] = later = rewards[move] + DISCOUNT * later
    returns = (returns - returns.mean()) / returns.std()
    seen = np.concatenate(states[:-1])
    return seen, np.concatenate(actions).astype(np.int64), returns.reshape(-1).astype(np.float32)


def build(T: Namespace) -> Program:
    start, noise, arrays = data()
    layers = T.nn.Linear(4, HIDDEN), T.nn.Tanh(), T.nn.Linear(HIDDEN, ACTIONS)
    policy = set_parameters(T, T.nn.Sequential(*layers), arrays)

    def make(compile: Callable[..., Any]) -> Callable[[], Any]:
        optimizer = T.optim.Adam(policy.parameters(), lr=OPTIMIZER.lr)
        choose = compile(lambda state, noise: (policy(state) + noise).argmax(-1))

        @compile
        def loss_of(states: Any, actions: Any, returns: Any) -> Any:
            chosen = T.distributions.Categorical(logits=policy(states), validate_args=False)
            return -(chosen.log_prob(actions) * returns).mean()

        def act(state: Array, noise: Array) -> Array:
            with T.no_grad():
                return on_host(choose(T.tensor(state), T.tensor(noise)))

        def call() -> Any:
            batch = map(T.tensor, rollout(start, noise, act))
            optimizer.zero_grad()
            loss = loss_of(*batch)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return call

    return Program(make, loss_check)


def build_jax() -> Program:
    import jax
    import jax.numpy as jnp

    start, noise, arrays = data()

    def policy(parameters: list[Any], state: Any) -> Any:
        return linear(jnp.tanh(linear(state, *parameters[:2])), *parameters[2:])

    def loss_of(parameters: list[Any], states: Any, actions: Any, returns: Any) -> Any:
        logarithms = jax.nn.log_softmax(policy(parameters, states), -1)
        return -(jnp.take_along_axis(logarithms, actions[:, None], 1)[:, 0] * returns).mean()

    def make(compile: Callable[..., Any]) -> Callable[[], Any]:
        state = jax_state(jax, arrays, OPTIMIZER)
        choose = compile(lambda parameters, state, noise: (policy(parameters, state) + noise).argmax(-1))

        run = compile(jax_training(jax, loss_of, OPTIMIZER), donate_argnums=(0,))

        def call() -> Any:
            nonlocal state
            parameters = state[0]
            batch = rollout(start, noise, lambda seen, noise: on_host(choose(parameters, seen, noise)))
            state, loss = run(state, *batch)
            return loss

        return call

    return Program(make, loss_check)
