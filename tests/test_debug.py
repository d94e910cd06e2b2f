"""Ways out of a step: what users' functions see in compiled steps is what they see in eager mode, in its order."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

T = Any
Note = Callable[..., None]
PROGRAMS: dict[str, Callable[[T, Note], T]] = {}


def program(function: Callable[[T, Note], T]) -> Callable[[T, Note], T]:
    """``function(x, note)`` gives a result of a vector, and has ``note`` called on the way."""
    PROGRAMS[function.__name__.strip("_").replace("_", " ")] = function
    return function


@program
def _scanned(x: T, note: Note) -> T:
    def body(carry: T, z: T) -> tuple[T, T]:
        aj.debug.callback(note, "before", carry, z=z)
        carry = carry * z
        aj.debug.callback(note, "after", carry)
        return carry, carry + 1

    last, every = aj.control_flow.scan(body, x.sum(), x)
    aj.debug.callback(note, "end", every)
    return last + every.sum()


@program
def _scans_in_scans(x: T, note: Note) -> T:
    def inner(carry: T, z: T) -> tuple[T, T]:
        aj.debug.callback(note, "inner")
        return carry * z.cos(), carry

    def outer(carry: T, z: T) -> tuple[T, T]:
        aj.debug.callback(note, "outer", z)
        return aj.control_flow.scan(inner, carry, x)[0] + z, carry

    return aj.control_flow.scan(outer, x.mean(), x)[0]


@program
def _counted_by_the_loop(x: T, note: Note) -> T:
    def body(v: T) -> tuple[T]:
        aj.debug.callback(note, v)
        return (v * 2,)

    return aj.control_flow.while_loop(lambda v: v.sum() < 50, body, (x,))[0].square().sum()


@program
def _branches(x: T, note: Note) -> T:
    def double(v: T) -> T:
        aj.debug.callback(note, "double", v)
        return v * v

    y = aj.control_flow.cond(x.sum() > 5, double, lambda v: v.exp(), (x,))
    aj.debug.callback(note, "chosen", y)
    return y.sum()


@program
def _decided_by_python(x: T, note: Note) -> T:
    aj.debug.callback(note, "a", x)
    if x.sum() > 5:
        aj.debug.callback(note, "b", x * 2)
        return (x * 2).square().sum()
    aj.debug.callback(note, "c", x * 3)
    return (x * 3).square().sum()


@program
def _functions_of_the_step(x: T, note: Note) -> T:
    for k in range(3):
        aj.debug.callback(lambda v: note("round", k, v), x * k)  # noqa: B023  (it keeps this round's)
    return x.square().sum()


@program
def _numbers(x: T, note: Note) -> T:
    aj.debug.callback(note, x.shape[0], x.sum().item(), {"mean": x.mean()}, [x > 1, x.to(aj.bfloat16), x[:0]])
    z = aj.complex(x, x + 1)
    aj.debug.callback(note, z * z, x[::2], x[None].expand(2, -1))
    return (z * z).real.sum()


@program
def _batches_and_gradients(x: T, note: Note) -> T:
    def inner(v: T, w: T) -> T:
        aj.debug.callback(note, v, w)
        return (v * w).square().sum()

    along = aj.func.vmap(aj.func.grad(inner), in_dims=(0, None))(x, aj.ones(2))
    aj.debug.callback(note, along)
    return along.sum() * x.sum()


def seen(run: Callable[[T], T], calls: list[Any], gradient: bool) -> list[Any]:
    """What three calls of two sizes give, and their gradients, and what was noted."""
    found: list[Any] = []
    calls.clear()
    for values in ([1.0, 2.0, 0.5], [1.5, 2.5, 2.0], [0.5, 1.0, 0.25, 1.25], [2.0, 1.0, 3.0, 0.5]):
        x = aj.tensor(values, requires_grad=gradient)
        y = run(x)
        found.append(y.detach().numpy())
        if gradient:
            y.backward()
            found.append(x.grad.numpy())
    return [*found, *calls]


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_calls_are_those_of_eager_mode(name: str, gradient: bool) -> None:
    calls: list[Any] = []
    kinds: list[Any] = []

    def note(*values: Any, **named: Any) -> None:
        for value in (*values, *named.values()):
            kinds.append(value if isinstance(value, str) else (type(value), getattr(value, "dtype", None)))
            calls.extend([] if isinstance(value, str) else [value])

    def run(x: T) -> T:
        return PROGRAMS[name](x, note)

    step = aj.jit(run)
    expected = seen(run, calls, gradient)
    order = kinds[:]
    kinds.clear()
    aj.testing.assert_close(seen(step, calls, gradient), expected)
    assert kinds == order
    stats = step.stats()
    assert stats["captures"] <= 2 * (1 + ("decided" in name)), "two sizes, and outcomes"
    assert stats["specialised_sizes"] == 0
    if not gradient and "decided" not in name:
        assert stats["native_calls"] == 2, "the second call of each size"


def test_a_failing_callback_leaves_everything_as_before() -> None:
    w = aj.nn.Parameter(aj.ones(3))
    optimizer = aj.optim.Adam([w], lr=0.1)
    fails = [False]

    def look(loss: T) -> None:
        if fails[0]:
            raise LookupError(loss.item())

    @aj.jit
    def step(x: T) -> T:
        optimizer.zero_grad()
        loss = (w * w * x).sum()
        aj.debug.callback(look, loss)
        loss.backward()
        optimizer.step()
        return loss.detach()

    for _ in range(3):
        step(aj.ones(3))
    before = w.detach().clone(), w.grad.clone(), optimizer.state[w]["exp_avg"].clone()
    fails[0] = True
    with pytest.raises(LookupError, match=r"\d"):
        step(aj.ones(3))
    aj.testing.assert_close((w.detach(), w.grad, optimizer.state[w]["exp_avg"]), before, rtol=0, atol=0)
    fails[0] = False
    step(aj.ones(3))
    assert step.stats()["captures"] == 1
    assert step.stats()["native_calls"] == 3


def test_formats_are_python_s(capsys: pytest.CaptureFixture[str]) -> None:
    def show(x: T, k: int) -> T:
        aj.debug.print("{} {0!r:>12} {x[1]:.2f} {k:03d}".replace("{}", "{1}"), k, x.sum(), x=x, k=k)
        aj.debug.print("nothing")
        return x * k

    step = aj.jit(show)
    for run in (show, step):
        for k in range(4):
            run(aj.tensor([1.0, k]), k)
    text = capsys.readouterr().out
    half = len(text) // 2
    assert text[:half] == text[half:] and "nothing" in text
    assert step.stats()["captures"] == 2, "an int that counts"


@pytest.mark.parametrize("run", [lambda f: f, aj.jit])
def test_formats_that_do_not_fit_are_refused(run: Any) -> None:
    x = aj.ones(2)
    with pytest.raises(ValueError, match="f-string"):
        run(lambda x: aj.debug.print(f"{1}", x))(x)
    with pytest.raises(ValueError, match="y"):
        run(lambda x: aj.debug.print("{x}", x=x, y=x))(x)
    with pytest.raises(IndexError):
        run(lambda x: aj.debug.print("{} {}", x))(x)
    with pytest.raises(KeyError):
        run(lambda x: aj.debug.print("{a}", x=x))(x)


def test_calls_go_on_within_calls() -> None:
    """A callback may compute, call steps, the same one too, and keep what it is given."""
    kept: list[T] = []
    deep = [0]
    inner = aj.jit(lambda v: (v * 2).sum())

    def again(v: T) -> None:
        kept.append(v)
        if deep[0] < 2:
            deep[0] += 1
            outer(v + inner(v))
            deep[0] -= 1

    @aj.jit
    def outer(x: T) -> T:
        aj.debug.callback(again, x)
        return x.sum()

    for k in range(3):
        assert outer(aj.full((2,), float(k))).item() == 2 * k
    values = [v.tolist() for v in kept]
    assert values == [[n * 5**m + 0.0] * 2 for n in range(3) for m in range(3)]


def test_variables_outside_are_shared_and_steps_are_released() -> None:
    count = 0

    def make() -> Any:
        @aj.jit
        def step(x: T) -> T:
            def tick(v: T) -> None:
                nonlocal count
                count += int(v.sum())

            aj.debug.callback(tick, x)
            return x

        return step

    step = make()
    for _ in range(3):
        step(aj.ones(2))
    assert (count, step.stats()["captures"]) == (6, 1)
    gone = weakref.ref(step)
    del step
    gc.collect()
    assert gone() is None


def test_tensors_of_the_step_are_passed() -> None:
    def step(x: T) -> T:
        y = x * 2
        aj.debug.callback(lambda: y.sum())
        return y

    with pytest.raises(aj.core.errors.TraceError, match="as an argument"):
        aj.jit(step)(aj.ones(2))


def test_on_a_device(device: str) -> None:
    seen: list[float] = []

    def body(c: T, z: T) -> tuple[T, T]:
        aj.debug.callback(lambda v: seen.append(v.item()), c)
        return c + z, c

    step = aj.jit(lambda x: aj.control_flow.scan(body, x.sum(), x)[0])
    for _ in range(2):
        assert step(aj.tensor([1.0, 2.0], device=device)).item() == 6.0
    assert seen == [3.0, 4.0] * 2
    assert step.stats()["native_calls"] == 1
    assert "called back: debug.callback" in step.explain()
