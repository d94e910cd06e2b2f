"""Users' code in a backward pass outside of the step, wherever it is registered: as in eager mode whatever it does."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import autojit as aj
from autojit import nn
from autojit.utils.checkpoint import checkpoint
from tests.covering import covering

Code = Callable[[Any], Any]
Jit = Callable[[Any], Any]
FACTOR = 2.0


def of_tensor(x: Any, w: Any, code: Code) -> Any:
    y = x * w
    y.register_hook(code)
    return y.exp()


def of_node(x: Any, w: Any, code: Code) -> Any:
    y = (x * w).exp()
    y.grad_fn.register_hook(lambda inputs, outputs: tuple(None if g is None else code(g) for g in inputs))
    return y


def before_node(x: Any, w: Any, code: Code) -> Any:
    y = (x * w).exp()
    y.grad_fn.register_prehook(lambda outputs: (code(outputs[0]),))
    return y


def of_function(x: Any, w: Any, code: Code) -> Any:
    class Same(aj.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return code(g)

    return Same.apply(x * w).exp()


class Kept(aj.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, code: Code) -> Any:
        ctx.code = code
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return ctx.code(g * x.exp()), None


def of_context(x: Any, w: Any, code: Code) -> Any:
    return Kept.apply(x * w, code)


def of_module(x: Any, w: Any, code: Code) -> Any:
    m = nn.Identity()
    m.register_full_backward_hook(lambda m, inputs, outputs: (code(inputs[0]),))
    return m(x * w).exp()


def of_saved(x: Any, w: Any, code: Code) -> Any:
    with aj.autograd.graph.saved_tensors_hooks(lambda t: t, code):
        return (x * w).exp()


def of_checkpoint(x: Any, w: Any, code: Code) -> Any:
    return checkpoint(lambda t: code(t.sin()).exp(), x * w, use_reentrant=False)


def of_dropout(x: Any, w: Any, code: Code) -> Any:
    x = nn.functional.dropout(x.expand(64), 0.3)
    return checkpoint(lambda t: code(nn.functional.dropout(t * 3, 0.3).sin()).exp(), x * w, use_reentrant=False)


def of_reentrant(x: Any, w: Any, code: Code) -> Any:
    return checkpoint(lambda t: code(t.sin()).exp(), x * w, use_reentrant=True)


PLACES = [
    of_tensor,
    of_node,
    before_node,
    of_function,
    of_context,
    of_module,
    of_saved,
    of_checkpoint,
    of_dropout,
    of_reentrant,
]


class Settings:
    factor = 2.0


def codes() -> dict[str, tuple[Callable[[SimpleNamespace], Code], bool]]:
    """By name: what users' code does, given a place for its state; whether it may be compiled."""

    def with_nonlocal(st: Any) -> Code:
        count = 0

        def code(g: Any) -> Any:
            nonlocal count
            count += 1
            st.seen = count
            return g * count

        return code

    def statement(text: str) -> Callable[[SimpleNamespace], Code]:
        def make(st: Any) -> Code:
            names: dict[str, Any] = {"st": st, "aj": aj, "random": random, "Settings": Settings}
            lines = "\n".join(f"    {line}" for line in text.replace("\n", "; ").split("; "))
            exec(f"def code(g):\n{lines}\n    return g", names)
            return names["code"]  # type: ignore[no-any-return]

        return make

    return {
        "nothing": (statement("pass"), True),
        "pure": (statement("g = (g * 3).clamp(-4, 4)"), True),
        "own list": (statement("parts = [g]; parts.append(g * 2); g = parts[0] + parts[1]"), True),
        "tensor outside": (statement("g = g * st.scale"), True),
        "attribute": (statement("g = g * st.factor"), True),
        "item": (statement("g = g * st.items[0]"), True),
        "key": (statement("g = g * st.table['k']"), True),
        "length": (statement("g = g * len(st.items)"), True),
        "class attribute": (statement("g = g * Settings.factor"), True),
        "branch": (statement("g = g * 5 if st.flag else g"), True),
        "counter": (statement("st.n += 1"), False),
        "counted factor": (statement("st.n += 1; g = g * st.n"), False),
        "nonlocal": (with_nonlocal, False),
        "number kept": (statement("st.log.append(g.sum().item())"), False),
        "tensor kept": (statement("st.log.append(g.detach())"), False),
        "assigned": (statement("st.last = g.detach()"), False),
        "key assigned": (statement("st.table['last'] = 4"), False),
        "constant assigned": (statement("st.factor = 7.0"), False),
        "in place": (statement("st.total.add_(g.detach().sum())"), False),
        "printed": (statement("print('backward')"), False),
        "drawn": (statement("g = g * random.random()"), False),
        "popped": (statement("g = g * st.items.pop(); st.items.append(3.0)"), False),
        "by value": (statement("g = g * 2 if g.sum() > 0.5 else g"), False),
        "by text": (statement("st.log.append(str(g.detach()))"), False),
        "random tensor": (statement("g = g * aj.rand(1, dtype=aj.float64)"), False),
        "only when told": (statement("g = g * 2\nif st.step: st.n += 1"), True),
    }


CODES = codes()


def run(place: Any, make: Any, change: Any, jit: Jit, times: int = 4) -> tuple[Any, Any]:
    Settings.factor = 2.0
    random.seed(3)
    aj.manual_seed(3)
    st = SimpleNamespace(
        n=0, step=0, factor=2.0, items=[2.0, 3.0], table={"k": 2.0}, flag=False, log=[], last=None, seen=0
    )
    st.scale, st.total = aj.full((1,), 2.0, dtype=aj.float64), aj.zeros(1, dtype=aj.float64)
    w = aj.ones(1, dtype=aj.float64, requires_grad=True)
    code = make(st)
    f = jit(lambda x: place(x, w, code))
    found = []
    for k in range(times):
        w.grad = None
        y = f(aj.full((1,), 0.5 + k / 8, dtype=aj.float64))
        change(st, k)
        y.sum().backward()
        found.append(w.grad.item())
    logged = [v.tolist() if isinstance(v, aj.Tensor) else v for v in (*st.log, st.last)]
    return (found, st.n, st.seen, logged, st.total.tolist(), st.table, st.items, st.factor), f


def unchanged(st: Any, k: int) -> None:
    pass


def changed(st: Any, k: int) -> None:
    st.factor, st.flag = st.factor + 1, not st.flag
    st.items[0] += 1
    st.items.append(1.0)
    st.table["k"] += 1
    Settings.factor += 1
    st.scale = st.scale + 1


def changed_in_place(st: Any, k: int) -> None:
    st.scale.add_(1)


def given_other_memory(st: Any, k: int) -> None:
    st.scale.data = st.scale.detach() + 1


CHANGES = [unchanged, changed, changed_in_place, given_other_memory]


def agree(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(agree, a, b))
    return bool(abs(a - b) <= 1e-9 * abs(a)) if isinstance(a, float) else bool(a == b)


@pytest.mark.filterwarnings("ignore:None of the inputs")
@covering("place, what, change", PLACES, CODES, CHANGES, every=3)
def test_users_code_does_at_every_pass_what_it_does_in_eager_mode(
    place: Any, what: str, change: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    make, _ = CODES[what]
    wanted, _ = run(place, make, change, lambda f: f)
    printed = capsys.readouterr().out
    if place in (of_checkpoint, of_dropout) and what == "tensor outside" and change is changed_in_place:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            run(place, make, change, aj.jit)  # an operand of the step, too, which would have to be as it was
        return
    found, f = run(place, make, change, aj.jit)
    assert agree(wanted, found), f"{f.explain()}\n{wanted}\n{found}"
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize("what", [name for name, (_, is_compiled) in CODES.items() if is_compiled])
@pytest.mark.parametrize("place", PLACES[:-1], ids=lambda p: p.__name__)
def test_code_that_changes_nothing_stays_compiled(place: Any, what: str) -> None:
    _, f = run(place, CODES[what][0], unchanged, aj.jit)
    assert f.stats()["captures"] == 1 and "ran line by line" not in f.explain()


@pytest.mark.parametrize("place", PLACES[:-2], ids=lambda p: p.__name__)
def test_what_no_capture_could_foresee_is_refused_and_says_so(place: Any) -> None:
    def told(st: Any, k: int) -> None:
        st.step = 1

    with pytest.raises(RuntimeError, match="changes what is outside a compiled step") as caught:
        run(place, CODES["only when told"][0], told, aj.jit)
    assert "call backward inside the step" in str(caught.value)


@pytest.mark.parametrize("place", PLACES[:-2], ids=lambda p: p.__name__)
def test_what_changes_often_does_not_hold_on_to_all_that_was_recorded(place: Any) -> None:
    wanted, _ = run(place, CODES["attribute"][0], changed, lambda f: f, times=30)
    found, f = run(place, CODES["attribute"][0], changed, aj.jit, times=30)
    assert agree(wanted, found)
    assert f.stats()["captures"] > 1 and "has changed 8 times" in f.explain()


@pytest.mark.parametrize("place", PLACES[:-2], ids=lambda p: p.__name__)
def test_second_derivatives_run_the_same_code(place: Any) -> None:
    def second(jit: Jit, factor: float) -> float:
        st = SimpleNamespace(factor=factor)
        w = aj.ones(1, dtype=aj.float64, requires_grad=True)
        f = jit(lambda x: place(x, w, CODES["attribute"][0](st)))
        found = []
        for _ in range(3):
            (first,) = aj.autograd.grad(f(aj.full((1,), 0.5, dtype=aj.float64)).sum(), w, create_graph=True)
            st.factor += 1
            if first.requires_grad:
                (more,) = aj.autograd.grad(first.sum(), w, allow_unused=True)
                found.append(None if more is None else more.item())
            found.append(first.item())
        return found

    assert agree(second(lambda f: f, 2.0), second(aj.jit, 2.0))


@pytest.mark.parametrize("place", PLACES[:-3], ids=lambda p: p.__name__)
def test_what_code_does_before_it_raises_is_done(place: Any) -> None:
    def seen(jit: Jit) -> list[Any]:
        log: list[Any] = []

        def code(g: Any) -> Any:
            log.append("backward")
            raise ValueError(str(len(log)))

        w = aj.ones(1, dtype=aj.float64, requires_grad=True)
        f = jit(lambda x: place(x, w, code))
        for _ in range(3):
            y = f(aj.ones(1, dtype=aj.float64))
            with pytest.raises(ValueError) as caught:
                y.sum().backward()
            log.append(str(caught.value))
        return log

    assert seen(lambda f: f) == seen(aj.jit)
