"""Loops and branches whose results nobody reads still refuse what eager mode refuses in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit.nn import functional as F

X = aj.linspace(-1, 1, 12).reshape(3, 4)
OUTSIDE, ZEROS = aj.tensor([0, 5, 1]), aj.tensor([1, 0, 2])


def _looked_up(x: Any) -> Any:
    return x[0][OUTSIDE].sum()


def _divided(x: Any) -> Any:
    return (x.long()[0, :3] // ZEROS).sum().to(x.dtype)


def _lost(x: Any) -> Any:
    return F.binary_cross_entropy(x * 3, x)


def _classes(x: Any) -> Any:
    return F.cross_entropy(x, OUTSIDE)


REFUSED: list[Callable[[Any], Any]] = [_looked_up, _divided, _lost, _classes]


def _unread_scan(x: Any, f: Any) -> None:
    aj.scan(lambda c, z: (c + f(x), c.sin()), aj.zeros(()), x)


def _scan_without_a_carry(x: Any, f: Any) -> None:
    aj.scan(lambda c, z: (c, f(x) + z), aj.zeros(()), x)


def _scan_of_another_result(x: Any, f: Any) -> Any:
    return aj.scan(lambda c, z: (c + z, f(x)), aj.zeros(4), x)[0]


def _scan_that_drops_it(x: Any, f: Any) -> Any:
    def body(c: Any, z: Any) -> Any:
        f(x + c.sum())
        return c + z, z

    return aj.scan(body, aj.zeros(4), x)


def _scan_in_a_scan(x: Any, f: Any) -> None:
    aj.scan(lambda c, z: (aj.scan(lambda d, y: (d + f(x), y), c, x)[0], z), aj.zeros(()), x)


def _unread_while(x: Any, f: Any) -> None:
    aj.while_loop(lambda k, z: k < 3, lambda k, z: (k + 1, z + f(x)), (aj.tensor(0), x[0]))


def _while_without_a_step(x: Any, f: Any) -> None:
    aj.while_loop(lambda k, z: k < 0, lambda k, z: (k + 1, z + f(x)), (aj.tensor(0), x[0]))


def _unread_branch(x: Any, f: Any) -> None:
    aj.cond(x.sum() < 100, lambda z: f(z), lambda z: z.sum(), (x,))


def _branch_not_taken(x: Any, f: Any) -> None:
    aj.cond(x.sum() > 100, lambda z: f(z), lambda z: z.sum(), (x,))


def _branch_of_another_result(x: Any, f: Any) -> Any:
    return aj.cond(x.sum() < 100, lambda z: (f(z), z + 1), lambda z: (z.sum(), z), (x,))[1]


PLACES: list[Callable[[Any, Any], Any]] = [
    _unread_scan, _scan_without_a_carry, _scan_of_another_result, _scan_that_drops_it, _scan_in_a_scan, _unread_while,
    _while_without_a_step, _unread_branch, _branch_not_taken, _branch_of_another_result,
]  # fmt: skip


@pytest.mark.parametrize("place", PLACES, ids=lambda f: f.__name__)
def test_an_unread_body_refuses_what_eager_mode_refuses(place: Callable[[Any, Any], Any]) -> None:
    for refused in REFUSED:
        kinds = []
        for jit in (lambda f: f, aj.jit):
            try:
                jit(lambda x, refused=refused: place(x, refused))(X)
                kinds.append("no error")
            except (RuntimeError, IndexError, ZeroDivisionError) as error:
                kinds.append(type(error).__name__)
        assert kinds[0] == kinds[1], refused.__name__
        assert (kinds[0] == "no error") is (place in (_while_without_a_step, _branch_not_taken))
