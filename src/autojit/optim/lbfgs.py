"""L-BFGS: a quasi-Newton method that evaluates the closure several times per step."""

from __future__ import annotations

from typing import Any

import numpy as np

import autojit as aj
from autojit.jit.pieces import in_pieces, piece
from autojit.optim.given import options, refuse
from autojit.optim.line_search import strong_wolfe
from autojit.optim.optimizer import Closure, Optimizer, Params
from autojit.tensor import Tensor

SHORT = 2**14  # elements: of 64 KB one pass takes some 10 µs, measured at 10 GB/s; several times more changes little


class LBFGS(Optimizer):
    """Limited-memory BFGS over all parameters as one vector; ``line_search_fn`` is None or ``"strong_wolfe"``.

    A step evaluates the closure ``max_eval`` times at most, but for one more where a line search begins.

    Branches on values: a jitted function that calls it runs line by line, with the closure as a step of its own. One
    parameter group only.
    Source: Nocedal and Wright, Numerical Optimization, 2nd ed., algorithms 7.4 and 7.5.
    """

    _keeps_numbers = True

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
        *,
        maximize: bool = False,
    ) -> None:
        refuse(not isinstance(lr, Tensor) and lr < 0.0, "Invalid learning rate: {}", lr)
        if line_search_fn not in (None, "strong_wolfe"):
            raise RuntimeError("only 'strong_wolfe' is supported")
        max_eval = max_iter * 5 // 4 if max_eval is None else max_eval
        names = "lr max_iter max_eval tolerance_grad tolerance_change history_size line_search_fn maximize"
        super().__init__(params, options(names, locals()))
        refuse(len(self.param_groups) != 1, "LBFGS doesn't support per-parameter options (parameter groups)")
        self._params: list[Tensor] = self.param_groups[0]["params"]

    # ---- the parameters as one vector

    def _gradient(self) -> Tensor:
        parts = [
            aj.zeros_like(as_real(p)) if p.grad is None else as_real(p.grad.detach().to_dense()) for p in self._params
        ]
        found = aj.cat([part.reshape(-1) for part in parts])
        return -found if self._maximizes else found

    @property
    def _maximizes(self) -> bool:
        return bool(self.param_groups[0].get("maximize", False))

    def _least(self, loss: Any) -> float:
        """The number that is to become least."""
        return -float(loss) if self._maximizes else float(loss)

    def _position(self) -> list[Tensor]:
        return [as_real(p.detach()).clone() for p in self._params]

    def _move(self, start: list[Tensor], direction: Tensor, t: float) -> None:
        """Set the parameters to ``start + t direction``."""
        offset = 0
        for p, origin in zip(self._params, start, strict=True):
            size = origin.numel()
            as_real(p).copy_(origin + direction[offset : offset + size].view_as(origin) * t)
            offset += size

    # ---- one step

    def step(self, closure: Closure | None = None) -> Any:
        """Up to ``max_iter`` iterations; ``closure`` clears gradients, calls backward on the loss and returns it."""
        if closure is None:
            raise RuntimeError("LBFGS.step() needs a closure that reevaluates the model and returns the loss")
        in_pieces("LBFGS.step()")
        evaluate = aj.enable_grad()(piece(closure))
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        with aj.no_grad():
            original = evaluate()
            self._iterate(evaluate, self._least(original), state)
        return original

    def _iterate(self, closure: Closure, loss: float, state: dict[str, Any]) -> None:
        group = self.param_groups[0]
        evaluations = 1
        state["func_evals"] += 1
        gradient = self._gradient()
        if float(gradient.abs().max()) <= group["tolerance_grad"]:
            return
        for iteration in range(group["max_iter"]):
            state["n_iter"] += 1
            self._update_direction(state, gradient)
            direction, lr = state["d"], float(group["lr"])
            state["prev_flat_grad"] = gradient.clone()
            state["prev_loss"] = previous_loss = loss
            first = state["n_iter"] == 1
            t = min(1.0, 1.0 / float(gradient.abs().sum())) * lr if first else lr
            slope = float(gradient.dot(direction))
            if slope > -group["tolerance_change"]:
                break
            if group["line_search_fn"] == "strong_wolfe":
                left = group["max_eval"] - evaluations
                loss, gradient, t, used = self._search(closure, t, direction, loss, gradient, slope, left)
            else:
                self._move(self._position(), direction, t)
                used = 0
                if iteration != group["max_iter"] - 1:  # nobody reads the gradient after the last one
                    loss = self._least(closure())
                    gradient = self._gradient()
                    used = 1
            state["t"] = t
            evaluations += used
            state["func_evals"] += used
            if self._is_done(evaluations, gradient, direction, t, loss, previous_loss):
                break

    def _search(
        self, closure: Closure, t: float, direction: Tensor, loss: float, gradient: Tensor, slope: float, most: int
    ) -> tuple[float, Tensor, float, int]:
        """``most``: how many points it may try after the first."""
        start = self._position()

        def evaluate(length: float) -> tuple[float, Tensor]:
            self._move(start, direction, length)
            found = self._least(closure()), self._gradient()
            self._move(start, direction, 0.0)
            return found

        tolerance = self.param_groups[0]["tolerance_change"]
        loss, gradient, t, used = strong_wolfe(
            evaluate, t, direction, loss, gradient, slope, tolerance, max_iterations=most
        )
        self._move(start, direction, t)
        return loss, gradient, t, used

    def _is_done(
        self, evaluations: int, gradient: Tensor, direction: Tensor, t: float, loss: float, previous_loss: float
    ) -> bool:
        group = self.param_groups[0]
        return bool(
            evaluations >= group["max_eval"]
            or float(gradient.abs().max()) <= group["tolerance_grad"]
            or float((direction * t).abs().max()) <= group["tolerance_change"]
            or abs(loss - previous_loss) < group["tolerance_change"]
        )

    def _update_direction(self, state: dict[str, Any], gradient: Tensor) -> None:
        """The quasi-Newton direction ``state["d"]`` from the history of steps and gradient changes."""
        if state["n_iter"] == 1:
            state.update(d=-gradient, old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
            return
        changes, steps, inverse = state["old_dirs"], state["old_stps"], state["ro"]
        change = gradient - state["prev_flat_grad"]
        step = state["d"] * state["t"]
        curvature = float(change.dot(step))
        if curvature > 1e-10:  # otherwise the update would not stay positive definite
            if len(changes) == self.param_groups[0]["history_size"]:
                for history in (changes, steps, inverse):
                    history.pop(0)
            changes.append(change)
            steps.append(step)
            inverse.append(1.0 / curvature)
            state["H_diag"] = curvature / float(change.dot(change))
        if _is_short(gradient):
            changes, steps = ([t.numpy() for t in vectors] for vectors in (changes, steps))
            state["d"] = aj.from_numpy(_two_loops(gradient.numpy(), changes, steps, inverse, state["H_diag"]))
        else:
            state["d"] = _two_loops(gradient, changes, steps, inverse, state["H_diag"])


def as_real(x: Tensor) -> Tensor:
    """Complex numbers as pairs of real ones, which the parameters' one vector holds."""
    return aj.view_as_real(x) if x.is_complex() else x


def _is_short(vector: Tensor) -> bool:
    """Whether NumPy computes with a vector in less time than an op of a tensor takes to begin, some 10 µs."""
    return (
        isinstance(vector._array, np.ndarray) and vector.dtype in (aj.float32, aj.float64) and vector.numel() <= SHORT
    )


def _two_loops(gradient: Any, changes: list[Any], steps: list[Any], inverse: list[float], h: float) -> Any:
    """Minus the product of the gradient and the inverse Hessian that the history tells, with ``h`` as its start.

    Of tensors, or of arrays: a history of 100 steps is 400 operations on vectors.
    """
    q = -gradient
    weights = [0.0] * len(changes)
    for place in reversed(range(len(changes))):
        weights[place] = float(steps[place].dot(q)) * inverse[place]
        q = q - changes[place] * weights[place]
    q = q * h
    for place in range(len(changes)):
        correction = float(changes[place].dot(q)) * inverse[place]
        q = q + steps[place] * (weights[place] - correction)
    return q
