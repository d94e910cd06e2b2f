"""Graph attention finds the two factions of a karate club from two labelled members.

    python examples/graph_attention.py [--steps N] [--small] [--eager] [--device DEVICE]

The graph is Zachary's (J. Anthropol. Res. 33(4), 1977): 34 members, 78 friendships, and the faction each member joined
when the club split. Attention over edges is a softmax per receiving node, written with ``index_add`` over an edge list.
Source: Velickovic et al., ICLR 2018.
"""

from __future__ import annotations

import time
from argparse import Namespace

import numpy as np
from _setup import initialize, program, show

import autojit as aj
from autojit import nn
from autojit.nn import functional as F

FRIENDS = (  # of each member, those with greater numbers
    "1 2 3 4 5 6 7 8 10 11 12 13 17 19 21 31;2 3 7 13 17 19 21 30;3 7 8 9 13 27 28 32;7 12 13;6 10;6 10 16;16;;"
    "30 32 33;33;;;;33;32 33;32 33;;;32 33;33;32 33;;32 33;25 27 29 32 33;25 27 31;31;29 33;33;31 33;32 33;32 33;"
    "32 33;33;"
)
OFFICERS_SIDE = (9, 14, 15, 18, 20, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33)
LABELLED = (0, 33)  # the instructor and the president


def karate_club() -> tuple[np.ndarray, np.ndarray]:
    """Edges ``i64[2, 190]`` in both directions and from every member to itself; factions ``i64[34]``."""
    pairs = [(a, int(b)) for a, found in enumerate(FRIENDS.split(";")) for b in found.split()]
    edges = pairs + [(b, a) for a, b in pairs] + [(a, a) for a in range(34)]
    faction = np.zeros(34, np.int64)
    faction[list(OFFICERS_SIDE)] = 1
    return np.array(edges).T, faction


class GraphAttention(nn.Module):
    """Node features ``f32[n, i]`` to ``f32[n, heads * width]``: a weighted mean over the neighbours."""

    def __init__(self, inputs: int, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.width = heads, width
        self.project = nn.Linear(inputs, heads * width, bias=False)
        self.sender, self.receiver = nn.Parameter(aj.empty(heads, width)), nn.Parameter(aj.empty(heads, width))

    def forward(self, x: aj.Tensor, edges: aj.Tensor) -> aj.Tensor:
        source, target = edges
        h = self.project(x).view(-1, self.heads, self.width)
        score = (h * self.sender).sum(-1)[source] + (h * self.receiver).sum(-1)[target]
        weight = F.leaky_relu(score, 0.2).exp()
        total = aj.zeros(len(x), self.heads).index_add(0, target, weight)
        message = h[source] * (weight / total[target]).unsqueeze(-1)
        return aj.zeros_like(h).index_add(0, target, message).flatten(1)


class Network(nn.Module):
    """Two layers of attention; the second has one head and gives the logits of the factions."""

    def __init__(self, inputs: int, width: int, heads: int) -> None:
        super().__init__()
        self.first = GraphAttention(inputs, width, heads)
        self.second = GraphAttention(heads * width, 2, 1)

    def forward(self, x: aj.Tensor, edges: aj.Tensor) -> aj.Tensor:
        return self.second(F.elu(self.first(x, edges)), edges)


@program("graph attention on the karate club")
def main(o: Namespace) -> list[float]:
    width, heads, steps = (4, 2, 60) if o.small else (8, 4, 200)
    edge_array, faction_array = karate_club()
    edges, faction = aj.tensor(edge_array), aj.tensor(faction_array)
    features, labelled = aj.eye(34), aj.tensor(LABELLED)
    model = initialize(Network(34, width, heads))
    optimizer = aj.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)

    def step() -> tuple[aj.Tensor, aj.Tensor]:
        optimizer.zero_grad()
        logits = model(features, edges)
        loss = F.cross_entropy(logits[labelled], faction[labelled])
        loss.backward()
        optimizer.step()
        return loss, (logits.argmax(dim=1) == faction).float().mean()

    run = step if o.eager else aj.jit(step)
    start = time.perf_counter()
    losses: list[float] = []
    for number in range(o.steps or steps):
        loss, accuracy = run()
        losses.append(loss.item())
        if number % 50 == 0:
            print(f"step {number:4d}  loss {losses[-1]:.4f}  {accuracy.item():.1%} of the members")
    print(f"{len(losses)} steps in {time.perf_counter() - start:.1f} s; {accuracy.item():.1%} of the members are right")
    show(model=model, features=features, edges=edges, faction=faction_array)
    assert o.steps or losses[-1] < 0.5 * losses[0]
    assert o.steps or accuracy.item() > 0.85
    return losses


if __name__ == "__main__":
    main()
