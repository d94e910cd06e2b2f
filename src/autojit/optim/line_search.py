"""A line search for the strong Wolfe conditions with cubic interpolation.

Source: Nocedal and Wright, Numerical Optimization, 2nd ed., algorithms 3.5 and 3.6; interpolation as in minFunc.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from autojit.tensor import Tensor


class Point(NamedTuple):
    """A step length with the loss, the gradient and the slope (gradient times direction) there."""

    t: float
    loss: float
    gradient: Tensor
    slope: float


def cubic_minimum(a: Point, b: Point, bounds: tuple[float, float] | None = None) -> float:
    """Where the cubic through two points and their slopes is least, within ``bounds`` (default: between them)."""
    low, high = bounds or (min(a.t, b.t), max(a.t, b.t))
    if a.t > b.t:
        a, b = b, a
    if a.t == b.t:
        return (low + high) / 2
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    if not square >= 0:
        return (low + high) / 2
    d2 = math.sqrt(square)
    denominator = b.slope - a.slope + 2 * d2
    if denominator == 0:
        return (low + high) / 2
    found = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / denominator)
    return min(max(found, low), high)


class _Search:
    """One search: the start, the conditions and the count of evaluations."""

    def __init__(
        self,
        evaluate: Callable[[float], tuple[float, Tensor]],
        direction: Tensor,
        start: Point,
        c1: float,
        c2: float,
        max_iterations: int,
    ) -> None:
        self.evaluate = evaluate
        self.direction = direction
        self.start = start
        self.c1 = c1
        self.c2 = c2
        self.max_iterations = max_iterations
        self.iterations = 0
        self.evaluations = 0

    def at(self, t: float) -> Point:
        loss, gradient = self.evaluate(t)
        self.evaluations += 1
        return Point(t, loss, gradient.clone(), float(gradient.dot(self.direction)))

    def falls_too_little(self, point: Point) -> bool:
        return point.loss > self.start.loss + self.c1 * point.t * self.start.slope

    def is_flat(self, point: Point) -> bool:
        return abs(point.slope) <= -self.c2 * self.start.slope

    def bracket(self, t: float) -> tuple[list[Point], bool]:
        """Two points with a good one between them (or one good point, and True)."""
        previous, point = self.start, self.at(t)
        while self.iterations < self.max_iterations:
            if self.falls_too_little(point) or (self.iterations > 1 and point.loss >= previous.loss):
                return [previous, point], False
            if self.is_flat(point):
                return [point], True
            if point.slope >= 0:
                return [previous, point], False
            bounds = (point.t + 0.01 * (point.t - previous.t), point.t * 10)
            previous, point = point, self.at(cubic_minimum(previous, point, bounds))
            self.iterations += 1
        return [self.start, point], False

    def zoom(self, bracket: list[Point], tolerance: float) -> Point:
        """Shrink the bracket until a point meets both conditions; the better end when it gets too narrow."""
        low, high = sorted(bracket, key=lambda point: point.loss)
        stalled = False
        while self.iterations < self.max_iterations and abs(high.t - low.t) >= tolerance:
            t, stalled = _away_from_ends(cubic_minimum(low, high), min(low.t, high.t), max(low.t, high.t), stalled)
            point = self.at(t)
            self.iterations += 1
            if self.falls_too_little(point) or point.loss >= low.loss:
                low, high = sorted((low, point), key=lambda p: p.loss)
                continue
            if self.is_flat(point):
                return point
            if point.slope * (high.t - low.t) >= 0:
                high = low
            low = point
        return low


def _away_from_ends(t: float, low: float, high: float, stalled: bool) -> tuple[float, bool]:
    """A point too near to an end of the bracket twice in a row moves inwards by a tenth of it."""
    margin = 0.1 * (high - low)
    if min(high - t, t - low) >= margin:
        return t, False
    if not stalled and low < t < high:
        return t, True
    return (high - margin if abs(t - high) < abs(t - low) else low + margin), False


def strong_wolfe(
    evaluate: Callable[[float], tuple[float, Tensor]],
    t: float,
    direction: Tensor,
    loss: float,
    gradient: Tensor,
    slope: float,
    tolerance_change: float = 1e-9,
    c1: float = 1e-4,
    c2: float = 0.9,
    max_iterations: int = 25,
) -> tuple[float, Tensor, float, int]:
    """A step length whose loss falls enough (``c1``) and whose slope is flat enough (``c2``), from a first guess ``t``.

    Returns loss, gradient, step length and the number of evaluations used.
    """
    search = _Search(evaluate, direction, Point(0.0, loss, gradient.clone(), slope), c1, c2, max_iterations)
    bracket, is_done = search.bracket(t)
    width = float(direction.abs().max())
    point = bracket[0] if is_done else search.zoom(bracket, tolerance_change / width if width else math.inf)
    return point.loss, point.gradient, point.t, search.evaluations
