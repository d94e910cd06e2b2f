"""What a step prints to streams and warns of: at every call the same texts in the same places as in eager mode."""

from __future__ import annotations

import contextlib
import io
import queue
import random
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit.nn import functional as F

Step = Callable[[aj.Tensor], Any]
Case = Callable[[Any], tuple[Step, Callable[[], Any]]]
STREAMS: dict[str, Case] = {}
WARNINGS: dict[str, Callable[[aj.Tensor], Any]] = {}


def stream(function: Case) -> Case:
    """``function(stream)`` gives a step, and what to look at besides the stream."""
    STREAMS[function.__name__.strip("_").replace("_", " ")] = function
    return function


@stream
def _printed_to_a_file(out: Any) -> tuple[Step, Callable[[], Any]]:
    def step(x: aj.Tensor) -> aj.Tensor:
        print("loss", x.sum().item(), f"{x[0].item():.1f}", file=out, sep="|", end=";", flush=True)
        return x * 2

    return step, lambda: None


@stream
def _printed_to_a_file_of_an_object(out: Any) -> tuple[Step, Callable[[], Any]]:
    class Log:
        def __init__(self) -> None:
            self.out = out

        def say(self, *what: Any) -> None:
            print(*what, file=self.out)

    log = Log()

    def step(x: aj.Tensor) -> aj.Tensor:
        log.say("tensor", x * 2)
        return x * 2

    return step, lambda: None


@stream
def _printed_where_the_step_has_led_it(out: Any) -> tuple[Step, Callable[[], Any]]:
    def step(x: aj.Tensor) -> aj.Tensor:
        with contextlib.redirect_stdout(out):
            print("a", x.sum().item())
        before, sys.stdout = sys.stdout, out
        print("b", x.sum().item())
        sys.stdout = before
        return x * 2

    return step, lambda: sys.stdout is not out


@stream
def _printed_where_the_caller_has_led_it(out: Any) -> tuple[Step, Callable[[], Any]]:
    jitted: list[Step] = []

    def step(x: aj.Tensor) -> aj.Tensor:
        print("a", x.sum().item(), file=sys.stderr)
        print("b", x.sum().item())
        return x * 2

    def led(x: aj.Tensor) -> Any:
        with contextlib.redirect_stderr(out), contextlib.redirect_stdout(out):
            return jitted[0](x)

    led.step, led.jitted = step, jitted  # type: ignore[attr-defined]
    return led, lambda: None


@stream
def _read_again_by_the_step(out: Any) -> tuple[Step, Callable[[], Any]]:
    texts: list[str] = []

    def step(x: aj.Tensor) -> aj.Tensor:
        mine = io.StringIO("ab")
        print("c", x.sum().item(), file=mine)
        with contextlib.redirect_stdout(io.StringIO()) as other:
            print("d", x.sum().item())
        texts.append(mine.getvalue())
        return x * len(mine.getvalue()) * len(other.getvalue())

    return step, lambda: texts


@stream
def _streams_and_queues_kept_in_containers_of_the_step(out: Any) -> tuple[Step, Callable[[], Any]]:
    waiting: Any = queue.Queue()

    def step(x: aj.Tensor) -> aj.Tensor:
        items: list[Any] = []
        items.append(out)
        items.insert(0, waiting)
        items.extend([out, waiting])
        named: dict[str, Any] = {}
        named.update(a=out)
        named.setdefault("b", waiting)
        some: set[Any] = set()
        some.add(out)
        return x * len(items) * len(named) * len(some)

    return step, lambda: None


@stream
def _printed_before_an_error(out: Any) -> tuple[Step, Callable[[], Any]]:
    generator = random.Random(0)

    def step(x: aj.Tensor) -> aj.Tensor:
        k = generator.randrange(int(x.sum().item()) + 1)  # what is drawn hangs on the step: it runs line by line
        print("before", k, file=out)
        if k == 3:
            raise ValueError("three")
        return x * k

    return step, lambda: None


def _streamed(case: Case, jit: Any) -> Any:
    out = io.StringIO()
    step, see = case(out)
    if hasattr(step, "step"):
        step.jitted.append(jit(step.step))  # type: ignore[attr-defined]
    else:
        step = jit(step)
    found: list[Any] = []
    for k in range(1, 7):
        try:
            found.append(step(aj.full((2,), float(k))).tolist())
        except ValueError as error:
            found.append(str(error))
    return found, out.getvalue(), see()


@pytest.mark.parametrize("name", STREAMS)
def test_texts_go_where_eager_mode_lets_them_go(name: str) -> None:
    assert _streamed(STREAMS[name], aj.jit) == _streamed(STREAMS[name], lambda function: function)


def test_a_text_of_a_number_costs_no_capture() -> None:
    out = io.StringIO()

    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        print(f"{x.sum().item():.3f}", file=out)
        warnings.warn(f"{x.sum().item():.3f}", stacklevel=1)
        return x * 2

    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        for k in range(9):
            step(aj.full((2,), float(k)))
    assert step.stats()["captures"] <= 2


# ---- warnings


def warning(function: Callable[[aj.Tensor], Any]) -> Callable[[aj.Tensor], Any]:
    WARNINGS[function.__name__.strip("_").replace("_", " ")] = function
    return function


def _of_two(x: aj.Tensor) -> None:
    warnings.warn("about the caller", DeprecationWarning, 2)


@warning
def _plain(x: aj.Tensor) -> aj.Tensor:
    warnings.warn("plain", stacklevel=1)
    return x * 2


@warning
def _of_a_number(x: aj.Tensor) -> aj.Tensor:
    warnings.warn(f"sum {x.sum().item():.1f}", RuntimeWarning, stacklevel=1)
    return x * 2


@warning
def _about_lines_further_out(x: aj.Tensor) -> aj.Tensor:
    _of_two(x)
    for level in (1, 2, 3):
        warnings.warn(f"level {level}", stacklevel=level)
    return x * 2


@warning
def _an_object(x: aj.Tensor) -> aj.Tensor:
    warnings.warn(FutureWarning("object"), stacklevel=2)
    return x * 2


@warning
def _of_autojit(x: aj.Tensor) -> aj.Tensor:
    return F.mse_loss(x, x.sum()[None])


@warning
def _counted(x: aj.Tensor) -> Any:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warnings.warn("one", stacklevel=1)
        y = F.mse_loss(x, x.sum()[None])
    return x * len(seen) + y, len(seen), str(seen[0].message)


@warning
def _ignored(x: aj.Tensor) -> aj.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("hidden", stacklevel=1)
        y = F.mse_loss(x, x.sum()[None])
    warnings.warn("shown", stacklevel=1)
    return y


@warning
def _ignored_by_text(x: aj.Tensor) -> aj.Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="hid", category=UserWarning)
        warnings.warn("hidden", stacklevel=1)
        warnings.warn("open", stacklevel=1)
    return x


@warning
def _made_an_error_and_caught(x: aj.Tensor) -> aj.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            warnings.warn("error", stacklevel=1)
            return x
        except UserWarning:
            return x * 3


def _warned(step: Step, action: str) -> Any:
    found: list[Any] = []
    for k in range(1, 5):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter(action)  # type: ignore[arg-type]
            try:
                result: Any = step(aj.full((2,), float(k)))
                warnings.warn("after", stacklevel=1)
            except Warning as error:
                result = repr(error)
        found.append((repr(result), [(str(w.message), w.category, w.filename, w.lineno) for w in seen]))
    return found


@pytest.mark.parametrize("action", ["always", "error", "ignore"])
@pytest.mark.parametrize("name", WARNINGS)
def test_warnings_are_those_of_eager_mode_at_every_call(name: str, action: str) -> None:
    assert _warned(aj.jit(WARNINGS[name]), action) == _warned(WARNINGS[name], action)


def test_a_warning_is_about_the_line_of_each_call() -> None:
    def step(x: aj.Tensor) -> aj.Tensor:
        warnings.warn("called here", stacklevel=2)
        return x

    def lines(step: Step) -> list[int]:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("default")
            for _ in range(3):
                step(aj.ones(2))
            step(aj.ones(2))
        return [w.lineno for w in seen]

    assert len(lines(step)) == 2
    assert lines(aj.jit(step)) == lines(step)


def _raising(k: float, log: list[Any], out: Any) -> Callable[[aj.Tensor], aj.Tensor]:
    def step(x: aj.Tensor) -> aj.Tensor:
        y = x * 2
        print("sum", y.sum().item(), f"{y[0].item():.2f}", file=out)
        warnings.warn(f"half {x.sum().item() / 2}", stacklevel=1)
        print("tensor", y, file=out)
        log.append(y.sum().item())
        if y.sum() > k:
            raise ValueError("too large")
        print("end", file=out)
        return y

    return step


@pytest.mark.parametrize("limit", [-1.0, 14.0, 1e9])
def test_what_a_step_tells_before_it_raises_is_told(limit: float) -> None:
    def run(jit: Any) -> Any:
        out, found = io.StringIO(), []
        step = jit(_raising(limit, [], out))
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for k in (1.0, 2.0, 5.0, 3.0, 6.0, 1.0):
                for size in (2, 3):
                    with contextlib.suppress(ValueError):
                        found.append(step(aj.full((size,), k)).tolist())
        return found, out.getvalue(), [str(w.message) for w in seen]

    assert run(aj.jit) == run(lambda function: function)
