"""Texts of tensors of a step, however they are made and wherever they go: eager mode's at every call."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import autojit as aj
from autojit import nn
from autojit.core.errors import TraceError

FORMS: dict[str, Callable[[Any], str]] = {
    "str": lambda t: str(t),
    "repr": lambda t: repr(t),
    "ascii": lambda t: ascii(t),
    "format": lambda t: format(t),
    "format of one": lambda t: format(t.sum(), ".2f"),
    "method": lambda t: t.__repr__(),
    "f-string": lambda t: f"{t}",
    "f-string of one": lambda t: f"{t.sum():.2f} {t.sum()!r:>20}",
    "f-string of a list": lambda t: f"{[t, t.sum()]} {dict(zip('a', [t], strict=True))}",
    "percent": lambda t: "%s" % t,  # noqa: UP031
    "percent of several": lambda t: "%s and %r" % (t, t[0]),  # noqa: UP031
    "str.format": lambda t: "{} {!r}".format(t, t[0]),  # noqa: UP032
    "in a list": lambda t: str([t, {"a": (t, 1)}]),
    "joined": lambda t: ", ".join([str(t), repr(t[0])]),
    "other dtypes": lambda t: f"{t > 2} {t.long()} {t.to(aj.bfloat16)} {t[:0]}",
}


class Error(Exception):
    pass


def _raised(text: str) -> None:
    raise Error(text)


def _assigned(world: Any, text: str) -> None:
    world.last = text


def _item(world: Any, text: str) -> None:
    world.table["last"] = text


def _local(text: str) -> Any:
    again = text + "!"
    return {"again": [again]}


WAYS: dict[str, Callable[[Any, str], Any]] = {
    "returned": lambda world, text: text,
    "returned in a nest": lambda world, text: {"a": [text], "b": (text, 1)},
    "returned in an object": lambda world, text: vars(SimpleNamespace(text=text)),
    "as a key": lambda world, text: {text: 1},
    "appended": lambda world, text: world.log.append(text),
    "assigned": _assigned,
    "item": _item,
    "changed": lambda world, text: _local(text),
    "length": lambda world, text: len(text),
    "decided on": lambda world, text: world.scale if "3." in text else world.scale * 2,
    "printed": lambda world, text: print(text),
    "raised": lambda world, text: _raised(text),
}


def outcome(call: Callable[[], Any]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            found: Any = repr(call())
        except Exception as error:
            found = type(error), str(error)
    return f"{found} {out.getvalue()}"


def agree(function: Callable[[Any, Any], Any], is_once: bool = False) -> Any:
    """Runs a function eagerly and compiled on worlds of their own; the jitted function."""
    worlds = [SimpleNamespace(log=[], table={}, last=None, scale=aj.ones(2), w=nn.Parameter(aj.ones(2))) for _ in "12"]
    step = aj.jit(function)
    values = ([1.0, 2.0], [3.0, 4.0]) if is_once else ([1.0, 2.0], [3.0, 4.0], [1.0, 2.0], [5.5, 1e-3])
    for values_now in values:
        eager = outcome(lambda: function(worlds[0], aj.tensor(values_now)))  # noqa: B023
        assert outcome(lambda: step(worlds[1], aj.tensor(values_now))) == eager  # noqa: B023
        assert repr(worlds[1]) == repr(worlds[0])
    return step


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", ["str", "f-string", "percent", "in a list"])
def test_a_text_is_eager_modes_wherever_it_goes(form: str, way: str) -> None:
    make, use = FORMS[form], WAYS[way]
    agree(lambda world, x: use(world, make(x * world.scale)))


@pytest.mark.parametrize("form", FORMS)
def test_a_text_is_eager_modes_however_it_is_made(form: str) -> None:
    make = FORMS[form]
    agree(lambda world, x: [make(x), make(x * 2)])


@pytest.mark.parametrize("of", ["parameter", "result", "gradient", "spent", "outside", "whole"])
def test_a_text_tells_histories(of: str) -> None:
    def step(world: Any, x: Any) -> Any:
        total = (x * world.w).sum()
        if of in ("gradient", "spent"):
            total.backward()
        t = {"parameter": world.w, "gradient": world.w.grad, "outside": world.scale, "whole": x.long()}.get(of, total)
        print(t, f"{t}", repr(t))
        return str(t), len(repr(t))

    agree(step)


def plain(world: Any, x: Any) -> Any:
    return f"{x * 2}"


def nest(world: Any, x: Any) -> Any:
    loss = (x * world.w).sum()
    text = f"loss {loss:.3f}"
    print(text)
    return {"loss": loss.detach(), "text": [text, str(loss.item())]}, repr(loss), "%s" % x  # noqa: UP031


@pytest.mark.parametrize("function", [plain, nest])
def test_what_is_returned_as_it_is_costs_one_capture(function: Any) -> None:
    step = agree(function)
    assert step.stats()["captures"] == 1 and "line by line" not in step.explain()


def test_a_text_of_a_helper_is_looked_at_by_its_caller() -> None:
    def told(x: Any) -> str:
        return f"{x}"

    agree(lambda world, x: told(x)[7:])
    agree(lambda world, x: told(x))


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "result": lambda world, y: y.add_(1),
    "part": lambda world, y: y[0].fill_(7),
    "argument": lambda world, y: world.x.mul_(2),
    "state": lambda world, y: world.scale.add_(y),
    "item": lambda world, y: world.scale.__setitem__(0, y[1]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_printed_is_what_it_was_then(change: str) -> None:
    make = CHANGES[change]
    texts: list[str] = []
    log = logging.Logger("tests.texts_of_tensors")
    log.addHandler(handler := logging.Handler())
    handler.emit = lambda record: texts.append(record.getMessage())  # type: ignore[method-assign]

    def step(world: Any, x: Any) -> Any:
        changed = SimpleNamespace(scale=world.scale, x=x)
        y = x * 2
        shown = [y, {"x": x}]
        for _ in range(2):
            print(world.scale, x, y, y[0], shown, f"{y} {world.scale} {x.sum():.1f}")
            print("%s %r %.2f" % (y, world.scale, y[0]), str(shown))  # noqa: UP031
            log.warning("%s %s %.2f", world.scale, y, x[0])
            make(changed, y)
            shown.append(1)
        print(world.scale, x, y, shown)

    agree(step)
    assert texts[0::4] == texts[2::4] and texts[1::4] == texts[3::4]  # eager mode's two, then the step's


def test_a_parameter_that_an_update_changes_is_printed_before_and_after() -> None:
    def step(world: Any, x: Any) -> Any:
        print(world.w, f"{world.w}", [world.w])
        (world.w * x).sum().backward()
        print(world.w.grad, f"{world.w.grad}")
        with aj.no_grad():
            world.w -= world.w.grad
        world.w.grad = None
        print(world.w, f"{world.w}", [world.w])

    assert agree(step).stats()["captures"] <= 2


def _told(world: Any, *message: Any) -> None:
    world.logger.warning(*message, stacklevel=2)


def _logged(world: Any, x: Any) -> None:
    world.logger.warning("a %s %.2f", x * 2, x[0])
    _told(world, "b %d", x.sum().item())
    world.logger.log(30, f"c {x}", extra={"more": 1})
    logging.warning("d %s", x)


def _error_logged(world: Any, x: Any) -> None:
    try:
        raise ValueError(x.sum().item())
    except ValueError:
        world.logger.exception("e %s", x)


@pytest.mark.parametrize("function", [_logged, _error_logged])
def test_records_of_logs_name_the_line_that_made_them(function: Any) -> None:
    found = []
    step = aj.jit(function)
    for call in (function, step):
        stream = io.StringIO()
        handler = logging.StreamHandler(stream)
        handler.setFormatter(logging.Formatter("%(pathname)s:%(lineno)d %(funcName)s %(module)s %(message)s"))
        world = SimpleNamespace(logger=logging.Logger("tests.lines"))
        world.logger.addHandler(handler)
        logging.getLogger().addHandler(handler)
        try:
            for values in ([1.0, 2.0], [3.0, 4.0], [5.0, 6.0]):
                call(world, aj.tensor(values))
        finally:
            logging.getLogger().removeHandler(handler)
        found.append(stream.getvalue())
    assert found[0] == found[1]
    assert (step.stats()["captures"] == 1) == (function is _logged)


def test_options_of_printing_count_when_the_call_is_made() -> None:
    for function in (plain, lambda world, x: len(str(x / 3)), lambda world, x: print(x / 3)):
        step = aj.jit(function)
        try:
            for digits in (4, 2, 6):
                aj.set_printoptions(precision=digits)
                x = aj.tensor([1.0, 2.0])
                assert outcome(lambda: step(None, x)) == outcome(lambda: function(None, x))  # noqa: B023
        finally:
            aj.set_printoptions(precision=4)


def test_a_function_that_looks_at_texts_runs_line_by_line_and_says_where() -> None:
    step = agree(lambda world, x: len(str(x)))
    assert step.stats()["captures"] == 0
    told = step.explain()
    assert (
        "Python looks at the text of a tensor" in told
        and "test_texts_of_tensors.py:" in told
        and "ran line by line" in told
    )


def test_a_branch_that_looks_at_texts_leaves_the_others_compiled() -> None:
    def step(world: Any, x: Any) -> Any:
        world.scale.add_(1)
        return len(str(x)) if x.sum() > 6 else x * world.scale

    assert agree(step).stats()["captures"] == 1


def test_a_failing_call_tells_its_tensors_and_changes_nothing() -> None:
    scale = aj.zeros(2)

    @aj.jit
    def step(x: Any) -> Any:
        scale.add_(x)
        assert x.sum() < 6, f"too large: {x} {scale} {x.sum().item()}"
        return x

    for k in range(3):
        step(aj.ones(2))
        with pytest.raises(AssertionError) as failed:
            step(aj.tensor([4.0, 5.0 - k]))
        assert f"tensor([4., {5 - k}.]) tensor([{5 + k}., 6.]) {9.0 - k}" in str(failed.value)
        assert scale.tolist() == [k + 1.0] * 2


def test_a_text_in_a_body_is_refused() -> None:
    def step(x: Any) -> Any:
        return aj.cond(x.sum() > 3, lambda y: y * len(str(y)), lambda y: y, (x,))

    assert step(aj.ones(2)).tolist() == [1.0, 1.0]
    with pytest.raises(TraceError, match="the text of a tensor in the body"):
        aj.jit(step)(aj.ones(2))
