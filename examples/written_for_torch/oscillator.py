"""Second derivatives and a function with a backward of its own: a spring learned from its equation, then by L-BFGS."""

import numpy as np
import torch
from torch.autograd import Function, grad


class Sine(Function):
    """sin with a hand-written derivative, which can itself be differentiated."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.sin(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * torch.cos(x)


torch.set_default_dtype(torch.float64)
rng = np.random.default_rng(4)
w1 = torch.from_numpy(rng.normal(scale=1.0, size=(1, 16))).requires_grad_()
b1 = torch.from_numpy(rng.normal(scale=1.0, size=16)).requires_grad_()
w2 = torch.from_numpy(rng.normal(scale=0.3, size=(16, 1))).requires_grad_()
parameters = [w1, b1, w2]
t = torch.linspace(0, 3, 24)[:, None].requires_grad_()


def position(t):
    return 1 + t**2 * (Sine.apply(t @ w1 + b1) @ w2)  # starts at rest at 1


def residual_loss():
    x = position(t)
    (v,) = grad(x.sum(), t, create_graph=True)
    (a,) = grad(v.sum(), t, create_graph=True)
    return ((a + 4 * x) ** 2).mean()


adam = torch.optim.Adam(parameters, lr=0.02)


def train_step():
    adam.zero_grad()
    loss = residual_loss()
    loss.backward()
    adam.step()
    return loss


for it in range(30):
    loss = train_step()
    if it % 5 == 0:
        print(f"adam {it} loss {loss.item():.8f}")
lbfgs = torch.optim.LBFGS(parameters, lr=1.0, max_iter=5, line_search_fn="strong_wolfe")


def closure():
    lbfgs.zero_grad()
    loss = residual_loss()
    loss.backward()
    return loss


for it in range(3):
    print(f"lbfgs {it} loss {lbfgs.step(closure).item():.8f}")
with torch.no_grad():
    print(f"error {(position(t) - torch.cos(2 * t)).abs().max().item():.6f}")
