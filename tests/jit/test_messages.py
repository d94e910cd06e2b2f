"""What a compiled step says when it fails: the user's word, value, position, range and line, in few frames."""

from __future__ import annotations

import inspect
import os
import pydoc
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit import nn
from autojit.core.config import config
from autojit.core.device import is_cpu_alone
from autojit.core.source import is_own

F = nn.functional
MOST_FRAMES = 6  # between the user's line and the message
TO_DEVICES = 3  # more of them, once a program has met another device than the CPU: its tensors may be anywhere


def _failure(call: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as caught:
        call()
    return caught.value


def _most_frames() -> int:
    return MOST_FRAMES if is_cpu_alone() else MOST_FRAMES + TO_DEVICES


def _own_frames(error: BaseException) -> int:
    """The longest run of autojit's frames in a traceback."""
    longest = run = 0
    for frame, _ in traceback.walk_tb(error.__traceback__):
        run = run + 1 if is_own(frame.f_code) else 0
        longest = max(longest, run)
    return longest


def _line_of(function: Callable[..., object], below: int = 0) -> str:
    return f"{os.path.basename(__file__)}:{function.__code__.co_firstlineno + below}"  # type: ignore[attr-defined]


def _select(x: Any, i: Any) -> Any:
    return aj.index_select(x, 0, i)


def _gather(x: Any, i: Any) -> Any:
    return x.gather(0, i[:, None])


def _subscript(x: Any, i: Any) -> Any:
    return x[i]


def _embedding(x: Any, i: Any) -> Any:
    return F.embedding(i, x)


def _classes(x: Any, i: Any) -> Any:
    return F.cross_entropy(x.sum() + aj.zeros(3, 5), i)


def _scatter(x: Any, i: Any) -> Any:
    return aj.zeros(5).scatter_add(0, i, aj.ones(3))


def _added(x: Any, i: Any) -> Any:
    return x.index_add(0, i, aj.ones(3, 2))


def _put(x: Any, i: Any) -> Any:
    return (x * 1).index_put((i,), aj.zeros(2))


def _computed(x: Any, i: Any) -> Any:
    return aj.index_select(x, 0, (i * 2).flip(0) // 2)


LOOKUPS = {
    _select: "index_select", _gather: "gather", _subscript: "getitem", _embedding: "embedding",
    _classes: "cross_entropy", _scatter: "scatter_add", _added: "index_add", _put: "index_put",
    _computed: "index_select",
}  # fmt: skip


@pytest.mark.parametrize("bad", [7, 5, -3])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", LOOKUPS)
def test_a_bad_index_is_told_with_its_op_value_position_range_and_line(
    function: Callable[..., Any], dynamic: bool | None, bad: int
) -> None:
    if bad < 0 and function in (_subscript, _put):
        bad -= 5  # they count from the end
    x = aj.ones(5, 2)
    step = aj.jit(function, dynamic=dynamic)
    step(x, aj.tensor([0, 1, 2]))
    eager = _failure(lambda: function(x, aj.tensor([0, bad, 2])))
    for _ in range(2):
        error = _failure(lambda: step(x, aj.tensor([0, bad, 2])))
        assert isinstance(error, IndexError)
        assert isinstance(eager, IndexError)
        said = str(error)
        assert said.splitlines()[0] == str(eager).splitlines()[0]
        told = f"Target {bad}" if function is _classes else f"{LOOKUPS[function]}: index {bad}"
        assert said.startswith(f"{told} is out of bounds")
        assert "position  (1,)" in said or "position  (1, 0)" in said
        assert "valid     0 to 4" in said
        assert f"{_line_of(function, 1)}, calling {LOOKUPS[function]}()" in said
        assert _own_frames(error) <= _most_frames()


def test_a_bad_index_in_a_loop_is_told_with_its_round() -> None:
    table = aj.arange(4.0)

    def body(carry: Any, i: Any) -> Any:
        return carry + table[i], carry

    def loop(indices: Any) -> Any:
        return aj.scan(body, aj.zeros(()), indices)[0]

    step = aj.jit(loop)
    step(aj.tensor([0, 1, 2, 3, 0]))
    said = str(_failure(lambda: step(aj.tensor([0, 1, 2, 9, 0]))))
    assert said.startswith("getitem: index 9 is out of bounds")
    assert " round " in said
    assert " 3\n" in said
    assert _line_of(body, 1) in said


def test_a_jitted_module_and_a_jitted_function_of_autojits_give_the_line_of_the_call() -> None:
    layer = nn.Embedding(5, 2)
    for step, arguments, wrong in (
        (aj.jit(layer), (aj.tensor([1]),), (aj.tensor([9]),)),
        (aj.jit(aj.index_select), (aj.ones(4), 0, aj.tensor([1])), (aj.ones(4), 0, aj.tensor([9]))),
        (aj.jit(nn.Linear(5, 2)), (aj.ones(5),), (aj.ones(3),)),
        (aj.jit(aj.matmul), (aj.ones(2, 2), aj.ones(2, 2)), (aj.ones(2, 3), aj.ones(2, 3))),
    ):
        for given in (arguments, wrong):
            calling = lambda: step(*given)  # noqa: B023 - called at once
            if given is arguments:
                calling()
            else:
                assert _line_of(calling) in str(_failure(calling))


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Sequential(nn.Linear(3, 3), nn.Linear(4, 3)), nn.ReLU())

    def forward(self, x: Any) -> Any:
        return self.inner(x)


def _trained(x: Any) -> None:
    (x * 2).backward()


FAILING: list[Callable[[Any], Any]] = [
    lambda x: x @ x,
    lambda x: x.reshape(7),
    lambda x: aj.cat([x, aj.ones(2, 2)]),
    lambda x: x[5],
    lambda x: x[aj.tensor([9])],
    lambda x: x.sum(9),
    lambda x: F.cross_entropy(x, aj.tensor([0, 9])),
    lambda x: F.conv2d(x, aj.ones(2, 2)),
    lambda x: F.linear(x, aj.ones(2, 5)),
    lambda x: nn.Linear(4, 3)(x),
    lambda x: nn.Sequential(nn.Sequential(nn.Sequential(nn.Linear(4, 3))))(x),
    lambda x: _Block()(x),
    lambda x: nn.LSTM(4, 3)(x),
    lambda x: nn.TransformerEncoderLayer(8, 2)(x[None]),
    lambda x: aj.linalg.cholesky(x),
    lambda x: aj.einsum("ij,jk->ik", x, x),
    lambda x: x + aj.ones(7),
    lambda x: x.add_(aj.ones(7)),
    lambda x: aj.zeros(2, 2).copy_(aj.ones(3)),
    lambda x: aj.ones(2).to("nowhere"),
    lambda x: aj.zeros(-1),
    lambda x: aj.vmap(lambda row: row @ aj.ones(7))(x),
    lambda x: aj.func.grad(lambda y: (y @ y).sum())(x),
    lambda x: aj.autograd.grad((x * 2).sum(), aj.ones(2, requires_grad=True)),
    lambda x: aj.stack([x, x[0]]),
    lambda x: aj.softmax(x, 5),
    lambda x: nn.functional.layer_norm(x, (7,)),
    lambda x: aj.scan(lambda c, r: (c + r, c), aj.zeros(7), x),
    _trained,
]


@pytest.mark.parametrize("function", FAILING)
def test_few_frames_are_between_the_users_line_and_the_message(function: Callable[[Any], Any]) -> None:
    for make in (lambda: aj.ones(2, 3), lambda: aj.ones(2, 3, requires_grad=True)):
        x = make()
        plain = _failure(lambda: function(x))  # noqa: B023
        assert _own_frames(plain) <= _most_frames()
        compiled = _failure(lambda: aj.jit(function)(x))  # noqa: B023
        assert _own_frames(compiled) <= _most_frames()
        assert isinstance(compiled, type(plain).__mro__[-3]) or type(compiled) is type(plain)


def test_an_error_of_the_users_keeps_the_users_frames() -> None:
    def inner(x: Any) -> Any:
        raise KeyError("mine")

    class Mine(nn.Module):
        def forward(self, x: Any) -> Any:
            return inner(x)

    model = nn.Sequential(nn.Sequential(Mine()))

    @aj.jit
    def step(x: Any) -> Any:
        return model(x)

    error = _failure(lambda: step(aj.ones(2)))
    names = [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]
    assert names[-3:] == ["__call__", "forward", "inner"] or names[-2:] == ["forward", "inner"]
    assert "step" in names
    assert _own_frames(error) <= _most_frames()


def test_a_full_traceback_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    step = aj.jit(lambda x: x @ x)
    short = len(traceback.extract_tb(_failure(lambda: step(aj.ones(2, 3))).__traceback__))
    monkeypatch.setattr(config, "full_traceback", True)
    full = len(traceback.extract_tb(_failure(lambda: step(aj.ones(2, 3))).__traceback__))
    assert full > short + 5


def test_the_environment_asks_for_full_tracebacks() -> None:
    code = "from autojit.core.config import config; print(config.full_traceback)"
    environment = {**os.environ, "AUTOJIT_FULL_TRACEBACK": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "True"


TOO_MANY = 10**13
LARGE: dict[str, Callable[[Any], Any]] = {
    "ones": lambda x: aj.ones(TOO_MANY),
    "empty": lambda x: aj.empty(TOO_MANY),
    "arange": lambda x: aj.arange(TOO_MANY),
    "rand": lambda x: aj.rand(TOO_MANY),
    "eye": lambda x: aj.eye(10**7),
    "contiguous": lambda x: x.expand(TOO_MANY).contiguous(),
    "clone": lambda x: x.expand(TOO_MANY).clone(),
    "resize_": lambda x: aj.ones(1).resize_(TOO_MANY),
    "add": lambda x: x.expand(TOO_MANY) + 1,
    "matmul": lambda x: x.expand(10**6, 1) @ x.expand(1, 10**7),
    "sort": lambda x: x.expand(TOO_MANY).sort(),
    "softmax": lambda x: x.expand(TOO_MANY).softmax(0),
    "Linear": lambda x: nn.Linear(10**8, 10**7),
}


@pytest.mark.parametrize("name", LARGE)
def test_lack_of_memory_names_what_was_called_and_the_line(name: str) -> None:
    function = LARGE[name]
    error = _failure(lambda: function(aj.ones(1)))
    assert isinstance(error, RuntimeError)
    assert isinstance(error, MemoryError)
    assert str(error).startswith(f"{name}: out of memory, ")
    assert f"{_line_of(function)}, calling {name}()" in str(error)
    assert _own_frames(error) <= _most_frames()


IN_STEPS: dict[str, Callable[[Any], Any]] = {
    "add": lambda x: x.expand(TOO_MANY) + 1,  # a result
    "matmul": lambda x: (x.expand(10**6, 1) @ x.expand(1, 10**7)).cumsum(0).sum(),  # what is between
    "mul": lambda x: (x.expand(TOO_MANY) * 3).sort()[0].sum(),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", IN_STEPS)
def test_lack_of_memory_in_a_step_names_the_op_and_its_line(name: str, dynamic: bool | None) -> None:
    function = IN_STEPS[name]
    error = _failure(lambda: aj.jit(function, dynamic=dynamic)(aj.ones(1)))
    assert isinstance(error, RuntimeError)
    assert "out of memory" in str(error)
    assert f"{_line_of(function)}, calling " in str(error)
    assert _own_frames(error) <= _most_frames()


def test_lack_of_memory_for_other_sizes_of_a_step_names_the_op_and_its_line() -> None:
    def outer(x: Any) -> Any:
        return x[:, None] * x

    step = aj.jit(outer, dynamic=True)
    step(aj.ones(3))
    with aj.no_grad():
        error = _failure(lambda: step(aj.ones(1).expand(30_000_000).contiguous()))
    assert isinstance(error, RuntimeError)
    assert str(error).startswith("mul: out of memory")
    assert _line_of(outer, 1) in str(error)
    step(aj.ones(4))


@pytest.mark.usefixtures("lightly_compiled")
def test_explain_fits_a_screen_and_has_a_line_per_object() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.norm, self.scale = nn.Linear(4, 4), nn.LayerNorm(4), 0.5

        def forward(self, x: Any) -> Any:
            return x + self.norm(self.linear(x).relu()) * self.scale

    model = nn.Sequential(*[Block() for _ in range(12)])
    optimizer = aj.optim.Adam(model.parameters())
    settings = {"weight": 2.0}

    @aj.jit
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean() * settings["weight"]
        loss.backward()
        optimizer.step()
        return loss.detach()

    def called() -> Any:
        return [step(aj.ones(n, 4)) for n in (3, 3, 5, 7)]

    called()
    settings["weight"] = 3.0
    called()
    model.eval()
    called()
    text = step.explain()
    lines = text.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) < 160
    assert "  model: 48 parameters, 37 modules, evaluating" in lines
    assert "  optimizer: Adam of 48 parameters, 1 group" in lines
    assert "settings['weight']: 2.0 -> 3.0" in text
    assert f"{_line_of(called, 1)}" in text
    assert " native, " in text
    verbose = step.explain(verbose=True)
    assert "model.11.scale == 0.5" in verbose
    assert len(verbose.splitlines()) > 100


def test_explain_says_why_calls_go_through_python_and_what_is_not_compared() -> None:
    def chosen(x: Any) -> Any:
        return x * 2 if x.sum() > 0 else x

    step = aj.jit(chosen)
    step(aj.ones(2))
    assert "0 native, 1 by Python" in step.explain()
    for _ in range(6):
        step(aj.ones(2))
    assert "3 native, 4 by Python" in step.explain()
    assert "2 native calls per step, Python decides between them" in step.explain()
    assert _line_of(chosen, 1) in step.explain()
    plain = aj.jit(lambda x: x * 2)
    for _ in range(4):
        plain(aj.ones(2))
    assert "3 native, 1 by Python" in plain.explain()
    assert "not guarded" not in plain.explain()
    plain.last_step().capture.unguarded.append("time.time() at train.py:7")
    assert "read, not guarded\n  time.time() at train.py:7" in plain.explain()


def test_help_and_dir_are_about_what_the_user_sees() -> None:
    page = pydoc.plain(pydoc.render_doc(aj.jit))
    assert "autojit.jit - jit(function=None, *, verify=None, dynamic=None" in page
    assert "Compile a function of tensors" in page
    assert "dynamic" in inspect.signature(aj.jit).parameters
    for name in dir(aj):
        assert getattr(aj, name, aj) is not aj or name == "autojit", name
    assert {"nn", "jit", "compile", "vmap", "linalg", "scan", "conv2d", "numba_ops", "__version__"} <= set(dir(aj))


def test_a_function_of_autojits_that_was_jitted_itself_is_named() -> None:
    select = aj.jit(aj.index_select)
    select(aj.ones(3), 0, aj.tensor([0]))
    with pytest.raises(IndexError, match=r"(?s)^index_select: index 4.*calling index_select\(\)"):
        select(aj.ones(3), 0, aj.tensor([4]))


def test_memory_that_is_not_there_is_told_with_the_sizes_of_the_call() -> None:
    step = aj.jit(lambda x: (x[:, None, None] * x[None, :, None] * x).sort().values)
    step(aj.ones(3))
    with pytest.raises(RuntimeError, match=r"(?s)out of memory.*f32\[60000, 60000, 60000\]"):
        step(aj.ones(60000))
