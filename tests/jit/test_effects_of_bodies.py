"""What a body changes outside it happens as often as eager mode runs it."""

from __future__ import annotations

import collections
import heapq
import io
import itertools
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autojit as aj
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
def test_a_body_changes_what_eager_mode_changes(place: str, effect: str, capsys: pytest.CaptureFixture[str]) -> None:
    global flag

    def run(wrap: Callable[[Body], Body]) -> tuple[Any, str]:
        global flag
        flag = 0
        random.seed(0)
        things = _things()

        def body(z: aj.Tensor) -> aj.Tensor:
            found = EFFECTS[effect](things)
            return z * (found if isinstance(found, float) and effect in ("random", "numpy") else 2.0)

        step = wrap(BODIES[place](body))
        found = [step(aj.tensor([1.0, 2.0, 3.0]) * (-1.0) ** k).tolist() for k in range(4)]
        return found, _shown(things, capsys.readouterr().out)

    (found, held), (wanted, wanted_held) = run(aj.jit), run(lambda f: f)
    assert found == [pytest.approx(row) for row in wanted]
    assert held == wanted_held


MADE = {  # made by the step; what the body does, whose tensor is z; what is asked afterwards
    "append": ("a = []", "a.append(1)", "len(a)"),
    "append a tensor": ("a = []", "a.append(z.sum())", "sum(a)"),
    "a method that hides it": ("a = []; add = a.append", "add(1)", "len(a)"),
    "by a library": ("a = []", "heapq.heappush(a, 1)", "len(a)"),
    "dict": ("a = {}", "a[len(a)] = 1", "len(a)"),
    "set": ("a = set()", "a.add(len(a))", "len(a)"),
    "deque": ("a = collections.deque()", "a.append(1)", "len(a)"),
    "Counter": ("a = collections.Counter()", "a['k'] += 1", "a['k']"),
    "attribute": ("a = SimpleNamespace(n=0)", "a.n += 1", "a.n"),
    "attribute of a tensor": ("a = x * 1; a.n = 0", "a.n += 1", "a.n"),
    "list of an object": ("a = SimpleNamespace(items=[])", "a.items.append(2)", "len(a.items)"),
    "variable": ("a = 0", "nonlocal a; a += 1", "a"),
    "variable that is a tensor": ("a = x.sum() * 0", "nonlocal a; a = a + z.sum()", "a"),
    "tensor": ("a = x * 0", "a.add_(1)", "a.sum()"),
    "iterator": ("a = iter([1.0, 2.0, 3.0, 4.0, 5.0])", "z = z * next(a)", "next(a)"),
    "generator": ("a = (k for k in range(9))", "z = z + next(a)", "next(a)"),
    "random": ("a = random.Random(0)", "z = z + a.random()", "a.random()"),
    "array": ("a = np.zeros(3)", "a[0] += 1", "float(a[0])"),
    "text": ("a = io.StringIO()", "a.write('x')", "len(a.getvalue())"),
    "layer": ("a = aj.nn.BatchNorm1d(3)", "a(z.expand(2, 3))", "a.num_batches_tracked"),
    "decision": ("a = 1.0", "z = z + a if z.sum() > 8 else z - a", "a"),
    "digits": ("a = x", "z = z + float(z.sum())", "a"),
}
AROUND = {
    "while_loop": "aj.while_loop(lambda k, z: k < 3, lambda k, z: (k + 1, body(z)), (aj.tensor(0), x))[1]",
    "cond": "aj.cond(x.sum() > 0, body, lambda z: z * 3, (x,))",
    "scan": "aj.scan(lambda c, v: (body(c) + v, v), x, aj.ones(3, 3))[0]",
    "cond in while_loop": "aj.while_loop(lambda k, z: k < 3, lambda k, z: (k + 1, aj.cond(z.sum() > 0, body, "
    "lambda z: z * 3, (z,))), (aj.tensor(0), x))[1]",
}


@pytest.mark.parametrize("change", MADE)
@pytest.mark.parametrize("place", AROUND)
def test_a_body_changes_what_the_step_has_made_as_often_as_it_is_taken(place: str, change: str) -> None:
    make, do, ask = MADE[change]
    text = "\n".join((
        "def step(x):", f"    {make}", "    def body(z):", f"        {do}", "        return z * 2",
        f"    found = {AROUND[place]}", f"    return found, {ask}",
    ))  # fmt: skip
    names: dict[str, Any] = {
        "aj": aj, "np": np, "random": random, "collections": collections, "heapq": heapq, "io": io,
        "SimpleNamespace": SimpleNamespace,
    }  # fmt: skip
    exec(text, names)

    def run(step: Callable[[aj.Tensor], Any]) -> str:
        return repr([step(aj.tensor([1.0, 2.0, 3.0]) * sign) for sign in (1.0, -1.0, 1.0)])

    assert run(aj.jit(names["step"])) == run(names["step"])


def test_a_loop_that_runs_turn_by_turn_is_named_and_stays_native() -> None:
    @aj.jit
    def step(x: aj.Tensor) -> Any:
        seen: list[Any] = []

        def body(c: aj.Tensor, v: aj.Tensor) -> Any:
            seen.append(c * v)
            return c + v, c

        return aj.scan(body, x, aj.ones(3, 3))[0], seen

    for _ in range(4):
        found, seen = step(aj.ones(3))
        assert found.tolist() == [4.0] * 3
        assert len(seen) == 3
    assert step.stats()["captures"] == 1
    assert step.stats()["native_calls"] >= 2
    assert "scan at" in str(step.explain(verbose=True))
    assert "runs turn by turn" in str(step.explain(verbose=True))


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
