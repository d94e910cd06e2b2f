"""A tensor that a derivative still needs and that is changed meanwhile is an error inside of transforms as without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.nn import functional as F

KEPT: dict[str, tuple[Callable[[Any, Any], Any], list[Any]]] = {
    "embedding": (lambda w, k: F.embedding(k, w), [0, 2, 1]),
    "index_select": (lambda w, k: w.index_select(0, k), [0, 2, 1]),
    "gather": (lambda w, k: w.gather(0, k), [[0, 2, 1, 0]]),
    "take": (lambda w, k: w.take(k), [0, 7, 3]),
    "indexed": (lambda w, k: w[k], [0, -1, 1]),
    "take_along_dim": (lambda w, k: aj.take_along_dim(w, k, 0), [[0, 2, 1, 0]]),
    "index_add": (lambda w, k: aj.zeros(4, 4, dtype=w.dtype).index_add(0, k, w[:3]), [0, 2, 1]),
    "scatter_add": (lambda w, k: aj.zeros(4, 4, dtype=w.dtype).scatter_add(0, k, w), [[0, 2, 1, 0]]),
    "product": (lambda w, k: w * k, [0.5, 2.0, 1.0, 3.0]),
    "matrix": (lambda w, k: w @ k, [0.5, 2.0, 1.0, 3.0]),
    "where": (lambda w, k: aj.where(k, w, 0), [True, False, True, False]),
    "masked_fill": (lambda w, k: w.masked_fill(k, 0), [True, False, True, False]),
}
TRANSFORMS: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "none": lambda f: f,
    "vmap": aj.func.vmap,
    "grad": aj.func.grad,
    "vmap of grad": lambda f: aj.func.vmap(aj.func.grad(f)),
    "jvp": lambda f: lambda x: aj.func.jvp(f, (x,), (x,))[1],
    "vmap of vmap": lambda f: aj.func.vmap(aj.func.vmap(f)),
}


def _outcome(transform: str, kept: str, is_changed: bool, wrap: Callable[[Any], Any]) -> Any:
    use, elements = KEPT[kept]
    k = aj.tensor(np.array(elements))
    weight = aj.tensor(np.linspace(0.5, 2, 16).reshape(4, 4), requires_grad=True)

    def step() -> None:
        found = TRANSFORMS[transform](lambda z: (z * use(weight, k).sum()).sum())(aj.ones(4, 4, dtype=aj.float64))
        if is_changed:
            k.copy_(k.flip(0))
        found.sum().backward()

    try:
        wrap(step)()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
        return "refused"
    return weight.grad.numpy()


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("kept", KEPT)
def test_what_changed_after_use_is_refused_as_without_transforms(kept: str, transform: str) -> None:
    for is_changed in (True, False):
        without = _outcome("none", kept, is_changed, lambda f: f)
        eager = _outcome(transform, kept, is_changed, lambda f: f)
        compiled = _outcome(transform, kept, is_changed, aj.jit)
        assert isinstance(without, str) == is_changed
        assert isinstance(eager, str) == is_changed, "eager"
        assert isinstance(compiled, str) == is_changed, "compiled"
        if not is_changed:
            np.testing.assert_allclose(compiled, eager, rtol=1e-12)
