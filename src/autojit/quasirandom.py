"""Sobol points, which fill a cube more evenly than random ones: SciPy computes them, so it must be installed.

The sequence (Joe and Kuo's direction numbers, 30 bits) is torch's; scrambled ones are drawn otherwise, and differ.
"""

from __future__ import annotations

import warnings
from typing import Any

import autojit as aj
from autojit.core.dtypes import DType
from autojit.core.errors import TraceError, UsageError
from autojit.tensor import Tensor
from autojit.tensor.state import state

__all__ = ["SobolEngine"]


class SobolEngine:
    """Draws the points of a Sobol sequence one after the other.

    Args:
        dimension: how many coordinates a point has, 21201 at most.
        scramble: permute the points at random, so that means over them have no bias.
        seed: of the scrambling; without one, autojit's generator gives it.

    Raises:
        ValueError: the dimension is out of range.
        UsageError: SciPy is not installed.

    Example:
        >>> import autojit as aj
        >>> engine = aj.quasirandom.SobolEngine(2)
        >>> engine.draw(3)
        tensor([[0.0000, 0.0000],
                [0.5000, 0.5000],
                [0.7500, 0.2500]])
        >>> engine.num_generated
        3
    """

    MAXBIT = 30
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueError(f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}]")
        try:
            from scipy.stats import qmc
        except ImportError:
            raise UsageError(
                "SobolEngine: SciPy computes the points, and is not installed", fix="pip install scipy"
            ) from None
        self.dimension, self.scramble, self.seed = dimension, scramble, seed
        self.num_generated = 0
        if scramble and seed is None:
            self._outside_steps("SobolEngine(scramble=True)")
            seed = int(aj.randint(2**31 - 1, (), device="cpu"))
        self._engine: Any = qmc.Sobol(dimension, scramble=scramble, bits=self.MAXBIT, seed=seed)

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: DType | None = None) -> Tensor:
        """The next ``n`` points, ``[n, dimension]``, in the default dtype if no other is given.

        Raises:
            TraceError: inside of a step, which would have the same points at every call.
        """
        self._outside_steps("SobolEngine.draw")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of numbers of points that are no powers of two: as torch
            points = aj.from_numpy(self._engine.random(n)).to(dtype or aj.get_default_dtype())
        self.num_generated += n
        if out is None:
            return points
        with aj.no_grad():
            return out.resize_(points.shape).copy_(points)

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: DType | None = None) -> Tensor:
        """The next ``2**m`` points.

        Raises:
            ValueError: so many and those before are together no power of two, and not balanced.
        """
        total = self.num_generated + 2**m
        if total & (total - 1):
            raise ValueError(
                "The balance properties of Sobol' points require n to be a power of 2. "
                f"{self.num_generated} points have been previously generated, then: n={self.num_generated}+2**{m}="
                f"{total}. If you still want to do this, please use 'SobolEngine.draw()' instead."
            )
        return self.draw(2**m, out, dtype)

    def reset(self) -> SobolEngine:
        """Begin again."""
        self._engine.reset()
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Leave out ``n`` points."""
        if n:
            self._engine.fast_forward(n)
            self.num_generated += n
        return self

    def _outside_steps(self, what: str) -> None:
        if state.trace is not None:
            raise TraceError(
                f"{what}: points are drawn outside of steps", None, "draw before the step, pass the points"
            )

    def __repr__(self) -> str:
        given = [f"dimension={self.dimension}"]
        given += ["scramble=True"] if self.scramble else []
        given += [] if self.seed is None else [f"seed={self.seed}"]
        return f"SobolEngine({', '.join(given)})"
