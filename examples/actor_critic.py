"""An actor and a critic learn to balance a pole on a cart; the cart is NumPy.

    python examples/actor_critic.py [--steps N] [--small] [--eager] [--device DEVICE]

The policy that acts is compiled, and so is the update after each round. Rounds differ in length, so they are padded to
the longest and weighted; one program serves them all. Source of the equations of motion: Barto, Sutton and Anderson,
IEEE Trans. SMC 13(5), 1983.
"""

from __future__ import annotations

import time
from argparse import Namespace

import numpy as np
from _setup import initialize, program

import autojit as aj
from autojit import nn
from autojit.distributions import Categorical
from autojit.nn import functional as F


class CartPole:
    """State: position, velocity, angle, angular velocity. A round ends when the pole falls or the cart leaves."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def reset(self) -> np.ndarray:
        self.state = self.rng.uniform(-0.05, 0.05, 4)
        return self.state.astype(np.float32)

    def step(self, action: int) -> tuple[np.ndarray, bool]:
        x, v, angle, spin = self.state
        force, cos, sin = (10.0 if action else -10.0), np.cos(angle), np.sin(angle)
        push = (force + 0.05 * spin**2 * sin) / 1.1
        turn = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        drive = push - 0.05 * turn * cos / 1.1
        self.state = self.state + 0.02 * np.array([v, drive, spin, turn])
        x, _, angle, _ = self.state
        return self.state.astype(np.float32), bool(abs(x) > 2.4 or abs(angle) > 0.2095)


class ActorCritic(nn.Module):
    """States ``f32[..., 4]`` to the logits of the two actions and the value of the state."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Linear(4, width)
        self.actor, self.critic = nn.Linear(width, 2), nn.Linear(width, 1)

    def forward(self, state: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        x = F.relu(self.body(state))
        return self.actor(x), self.critic(x).squeeze(-1)


def returns(length: int, longest: int) -> np.ndarray:
    """Discounted sums of a reward of 1 per move, standardised; zero after the end."""
    found = np.zeros(longest, np.float32)
    found[:length] = (1 - 0.99 ** np.arange(length, 0, -1)) / (1 - 0.99)
    found[:length] = (found[:length] - found[:length].mean()) / (found[:length].std() + 1e-6)
    return found


@program("an actor and a critic on a cart-pole")
def main(o: Namespace) -> list[float]:
    width, longest, rounds = (32, 120, 60) if o.small else (64, 500, 300)
    cart, rng = CartPole(seed=0), np.random.default_rng(0)
    model = initialize(ActorCritic(width))
    optimizer = aj.optim.Adam(model.parameters(), lr=1e-2)

    def act(state: aj.Tensor) -> aj.Tensor:
        with aj.no_grad():
            return Categorical(logits=model(state)[0]).probs[1]

    def update(states: aj.Tensor, actions: aj.Tensor, gains: aj.Tensor, weight: aj.Tensor) -> aj.Tensor:
        logits, values = model(states)
        advantage = gains - values.detach()
        policy_loss = -(Categorical(logits=logits).log_prob(actions) * advantage * weight).sum()
        value_loss = (F.smooth_l1_loss(values, gains, reduction="none") * weight).sum()
        optimizer.zero_grad()
        loss = policy_loss + value_loss
        loss.backward()
        optimizer.step()
        return loss

    run_act, run_update = (act, update) if o.eager else (aj.jit(act), aj.jit(update))
    start = time.perf_counter()
    lengths: list[float] = []
    for number in range(o.steps or rounds):
        states, actions = np.zeros((longest, 4), np.float32), np.zeros(longest, np.int64)
        state, has_ended, length = cart.reset(), False, 0
        while not has_ended and length < longest:
            action = int(rng.random() < run_act(aj.tensor(state)).item())
            states[length], actions[length] = state, action
            state, has_ended = cart.step(action)
            length += 1
        weight = (np.arange(longest) < length).astype(np.float32)
        run_update(*(aj.tensor(a) for a in (states, actions, returns(length, longest), weight)))
        lengths.append(float(length))
        if number % 20 == 0:
            print(f"round {number:3d}  balanced for {np.mean(lengths[-20:]):.0f} moves")
    first, last = np.mean(lengths[:20]), np.mean(lengths[-20:])
    print(f"{len(lengths)} rounds in {time.perf_counter() - start:.1f} s; balanced for {first:.0f} -> {last:.0f} moves")
    assert o.steps or last > (1.5 if o.small else 5) * first
    return lengths


if __name__ == "__main__":
    main()
