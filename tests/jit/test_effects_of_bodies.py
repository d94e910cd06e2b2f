"""What a body changes outside happens as often as eager mode runs it, or the step is refused and nothing changes."""

from __future__ import annotations

import collections
import itertools
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.core.errors import TraceError
from autojit.utils.checkpoint import checkpoint

flag = 0


def _assign_global(s: Any) -> None:
    global flag
    flag += 1


def _delete(s: Any) -> None:
    if hasattr(s, "old"):
        del s.old


def _assign(s: Any) -> None:
    s.flag = True


def _count(s: Any) -> None:
    s.n += 1


def _item(s: Any) -> None:
    s.table["k"] = s.table.get("k", 0) + 1


def _element(s: Any) -> None:
    s.array[0] += 1


def _first(s: Any) -> None:
    s.items[0] = 7


EFFECTS: dict[str, Callable[[Any], Any]] = {
    "append": lambda s: s.log.append(1),
    "extend": lambda s: s.log.extend([1, 2]),
    "clear": lambda s: s.items.clear(),
    "item of a list": _first,
    "add": lambda s: s.members.add(s.n),
    "default": lambda s: s.defaults["q"],
    "item": _item,
    "update": lambda s: s.table.update(k=2),
    "pop": lambda s: s.table.pop("old", None),
    "setdefault": lambda s: s.table.setdefault("z", 4),
    "appendleft": lambda s: s.queue.appendleft(1),
    "Counter": lambda s: s.counter.update(["a"]),
    "array": _element,
    "assign": _assign,
    "count": _count,
    "delete": _delete,
    "global": _assign_global,
    "print": lambda s: print("round"),
    "random": lambda s: random.random(),
    "numpy": lambda s: s.draws.random(),
    "next": lambda s: next(s.numbers),
}


def _things() -> Any:
    return SimpleNamespace(
        log=[], items=[1, 2], members=set(), defaults=collections.defaultdict(float), table={"old": 1}, n=0, old=3,
        queue=collections.deque(), counter=collections.Counter(), flag=False, array=np.zeros(2),
        draws=np.random.default_rng(3), numbers=itertools.count(),
    )  # fmt: skip


def _shown(s: Any, printed: str) -> str:
    held = {**vars(s), "draws": s.draws.random(), "numbers": next(s.numbers)}
    return repr(sorted(held.items())) + str(flag) + printed


Body = Callable[[aj.Tensor], aj.Tensor]
BODIES: dict[str, Callable[[Body], Body]] = {
    "true_fn": lambda body: lambda y: aj.cond(y.sum() > 0, body, lambda z: z * 1.0, (y,)),
    "false_fn": lambda body: lambda y: aj.cond(y.sum() > 0, lambda z: z * 1.0, body, (y,)),
    "scan": lambda body: lambda y: aj.scan(lambda c, v: (c + body(v), c), aj.zeros(()), y)[0],
    "while_loop": lambda body: lambda y: aj.while_loop(
        lambda k, z: k < 3, lambda k, z: (k + 1, body(z)), (aj.tensor(0), y)
    )[1],
    "scan in cond": lambda body: lambda y: aj.cond(
        y.sum() > 0, lambda z: aj.scan(lambda c, v: (c + body(v), c), aj.zeros(()), z)[0], lambda z: z.sum(), (y,)
    ),
    "checkpoint": lambda body: lambda y: checkpoint(body, y * 1.0, use_reentrant=False).sum(),
    "vmap": lambda body: lambda y: aj.vmap(body)(y),
    "grad": lambda body: lambda y: aj.func.grad(lambda z: body(z).sum())(y),
}  # fmt: skip


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("place", BODIES)
def test_a_body_changes_what_eager_mode_changes_or_is_refused(
    place: str, effect: str, capsys: pytest.CaptureFixture[str]
) -> None:
    global flag

    def run(wrap: Callable[[Body], Body]) -> tuple[Any, str, str]:
        global flag
        flag = 0
        random.seed(0)
        things = _things()
        untouched = _shown(_things(), "")

        def body(z: aj.Tensor) -> aj.Tensor:
            found = EFFECTS[effect](things)
            return z * (found if isinstance(found, float) and effect in ("random", "numpy") else 2.0)

        step = wrap(BODIES[place](body))
        found = []
        for k in range(4):
            try:
                found.append(step(aj.tensor([1.0, 2.0, 3.0]) * (-1.0) ** k).tolist())
            except TraceError as error:
                printed = capsys.readouterr().out
                assert _shown(things, printed) == untouched, "a refused call has changed something"
                return str(error), "", ""
        return found, _shown(things, capsys.readouterr().out), "as eager"

    wanted = run(lambda f: f)
    found = run(aj.jit)
    if found[2]:
        assert found == wanted
        assert place in ("checkpoint", "vmap", "grad") or wanted[1] == _shown(_things(), "")
    elif effect != "array":
        assert "the body changes Python state outside it" in found[0]


def test_what_a_body_only_reads_and_what_it_makes_itself_is_no_change() -> None:
    table = {"k": 2.0}
    log: list[int] = []

    def body(z: aj.Tensor) -> aj.Tensor:
        parts = [z]
        parts.append(z * table["k"])
        mine = SimpleNamespace(n=0)
        mine.n += len(log)
        return parts[-1] + mine.n

    step = aj.jit(lambda y: aj.cond(y.sum() > 0, body, lambda z: z * 1.0, (y,)))
    for value in (1.0, -1.0):
        assert step(aj.tensor([value])).item() == (2.0 if value > 0 else -1.0)
    table["k"], log[:] = 3.0, [1]
    assert step(aj.tensor([1.0])).item() == 4.0


def test_changes_before_and_after_a_body_are_the_steps_own() -> None:
    things = _things()

    @aj.jit
    def step(y: aj.Tensor) -> aj.Tensor:
        things.n += 1
        things.log.append(things.n)
        found = aj.cond(y.sum() > 0, lambda z: z * 2.0, lambda z: z * 3.0, (y,))
        things.n += 1
        return found

    for value in (1.0, -1.0, 1.0):
        step(aj.tensor([value]))
    assert things.n == 6
    assert things.log == [1, 3, 5]
