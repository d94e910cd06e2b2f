"""Bad input: torch's exception types, and messages that name op, operands, the user's line and the fix."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import autojit as aj
from autojit.nn import functional as F

X = aj.ones(2, 3)
W = aj.ones(4, 5)
WHOLE = aj.tensor([1, 2])
LINEAR = aj.nn.Linear(3, 4)


@dataclass(frozen=True)
class Mistake:
    """A wrong call, torch's exception type for it, and words the message must hold besides the line and the fix."""

    call: Callable[[], Any]
    error: type[Exception]
    words: tuple[str, ...]


MISTAKES: dict[str, Mistake] = {
    # shapes
    "matmul": Mistake(lambda: X @ W, RuntimeError, ("matmul", "f32[2, 3]", "f32[4, 5]")),
    "add": Mistake(lambda: X + W, RuntimeError, ("add", "f32[2, 3]", "f32[4, 5]")),
    "where": Mistake(lambda: aj.where(X > 0, X, W), RuntimeError, ("where", "f32[2, 3]", "f32[4, 5]")),
    "cat": Mistake(lambda: aj.cat([X, W], dim=0), RuntimeError, ("cat", "f32[2, 3]", "f32[4, 5]")),
    "stack": Mistake(lambda: aj.stack([X, W]), RuntimeError, ("stack", "[2, 3]", "[4, 5]")),
    "reshape": Mistake(lambda: X.reshape(4, 2), RuntimeError, ("reshape", "[4, 2]", "f32[2, 3]")),
    "view": Mistake(lambda: X.t().view(6), RuntimeError, ("view", "f32[3, 2]", ".reshape(")),
    "expand": Mistake(lambda: X.expand(5, 3), RuntimeError, ("expand", "[5, 3]", "f32[2, 3]")),
    "split": Mistake(lambda: X.split([1, 1], dim=1), RuntimeError, ("split", "f32[2, 3]")),
    "linear": Mistake(lambda: LINEAR(W), RuntimeError, ("Linear", "f32[4, 5]", "f32[3, 4]")),
    "layer_norm": Mistake(lambda: F.layer_norm(X, (4,)), RuntimeError, ("layer_norm", "f32[2, 3]")),
    "add_": Mistake(lambda: X.clone().add_(W), RuntimeError, ("add", "f32[4, 5]")),
    "setitem": Mistake(lambda: X.clone().__setitem__(0, aj.ones(4)), RuntimeError, ("setitem", "f32[4]", "[3]")),
    "einsum": Mistake(lambda: aj.einsum("ij,jk->ik", X, W), RuntimeError, ("einsum", "f32[4, 5]")),
    "solve": Mistake(lambda: aj.linalg.solve(X, X), RuntimeError, ("solve", "f32[2, 3]")),
    # axes
    "sum": Mistake(lambda: X.sum(2), IndexError, ("sum", "f32[2, 3]")),
    "softmax": Mistake(lambda: X.softmax(5), IndexError, ("softmax", "f32[2, 3]")),
    "transpose": Mistake(lambda: X.transpose(0, 4), IndexError, ("transpose", "f32[2, 3]")),
    "argmax": Mistake(lambda: X.argmax(3), IndexError, ("argmax", "f32[2, 3]")),
    "cumsum": Mistake(lambda: X.cumsum(4), IndexError, ("cumsum", "f32[2, 3]")),
    "permute": Mistake(lambda: X.permute(0, 0), RuntimeError, ("permute", "f32[2, 3]")),
    # indices
    "getitem": Mistake(lambda: X[2], IndexError, ("getitem", "f32[2, 3]")),
    "getitem_many": Mistake(lambda: X[0, 0, 0], IndexError, ("getitem", "f32[2, 3]")),
    "getitem_float": Mistake(lambda: X[aj.tensor([0.5])], IndexError, ("getitem", "f32[2, 3]", "f32[1]")),
    "getitem_mask": Mistake(lambda: X[aj.tensor([True])], IndexError, ("getitem", "f32[2, 3]", "bool[1]")),
    "getitem_tensor": Mistake(lambda: X[aj.tensor([0, 5])], IndexError, ("f32[2, 3]",)),
    "gather": Mistake(lambda: aj.gather(X, 1, aj.tensor([[7], [0]])), IndexError, ("gather", "f32[2, 3]")),
    "embedding": Mistake(lambda: F.embedding(aj.tensor([9]), X), IndexError, ("f32[2, 3]",)),
    "cross_entropy": Mistake(lambda: F.cross_entropy(X, aj.tensor([0, 7])), IndexError, ()),
    "scatter_add": Mistake(lambda: X.scatter_add(0, aj.tensor([[5, 0, 0]]), X[:1]), IndexError, ("f32[2, 3]",)),
    # dtypes
    "matmul_dtype": Mistake(lambda: X @ aj.ones(3, 2, dtype=aj.int64), RuntimeError, ("matmul", "f32", "i64")),
    "sub_bool": Mistake(lambda: (X > 0) - (X > 0), RuntimeError, ("sub", "bool[2, 3]")),
    "mean_int": Mistake(lambda: WHOLE.mean(), RuntimeError, ("mean", "i64[2]")),
    "gather_dtype": Mistake(lambda: aj.gather(X, 1, X), RuntimeError, ("gather", "f32[2, 3]")),
    "add_dtype": Mistake(lambda: WHOLE.clone().add_(1.5), RuntimeError, ("add_", "i64[2]")),
    "matmul_number": Mistake(lambda: X @ 2, TypeError, ("matmul", "f32[2, 3]", "int")),
    # kinds of arguments
    "tensor_dtype": Mistake(lambda: aj.tensor([1.0], dtype="float"), TypeError, ("tensor", "dtype", "str")),  # type: ignore[arg-type]
    "full_text": Mistake(lambda: aj.full((2,), "a"), TypeError, ("full", "fill_value", "str")),
    "to_nothing": Mistake(lambda: X.to(2.5), TypeError, ("to()", "float")),
    "pad_text": Mistake(lambda: F.pad("a", (1, 1)), TypeError, ("pad", "input", "str")),
    "clip_text": Mistake(lambda: aj.nn.utils.clip_grad_norm_(["a"], 1.0), TypeError, ("clip_grad_norm_", "parameters")),
    "init_none": Mistake(lambda: aj.nn.init.ones_(None), TypeError, ("ones_", "tensor", "NoneType")),
    # devices
    "to_cuda": Mistake(lambda: X.to("cuda"), RuntimeError, ("to()", "cuda")),
    "ones_tpu": Mistake(lambda: aj.ones(2, device="tpu"), RuntimeError, ("ones()", "tpu")),
    # Python's questions
    "item": Mistake(lambda: X.item(), RuntimeError, ("item", "f32[2, 3]")),
    "bool": Mistake(lambda: bool(X), RuntimeError, ("bool", "f32[2, 3]")),
    # derivatives
    "backward": Mistake(lambda: (X.clone().requires_grad_(True) * 2).backward(), RuntimeError, ("f32[2, 3]",)),
    "no_history": Mistake(lambda: W.sum().backward(), RuntimeError, ("backward",)),
}
VALUES_ONLY = {
    "getitem_tensor",
    "gather",
    "embedding",
    "cross_entropy",
    "scatter_add",
}  # what is wrong is known when the step runs, not before


def check(mistake: Mistake, call: Callable[[], Any]) -> str:
    with pytest.raises(mistake.error) as raised:
        call()
    text = str(raised.value)
    line = inspect.getsourcelines(mistake.call)[1]
    for word in (*mistake.words, f"{Path(__file__).name}:{line}", "\n  fix "):
        assert word in text, f"{word!r} is not in\n{text}"
    return text


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_where_it_is_made(name: str) -> None:
    check(MISTAKES[name], MISTAKES[name].call)


@pytest.mark.parametrize(
    "name", sorted(MISTAKES.keys() - {"view"})
)  # a capture knows no strides: there a view may copy
def test_a_mistake_inside_a_step_is_found_during_the_capture(name: str) -> None:
    mistake = MISTAKES[name]
    step = aj.jit(mistake.call)
    check(mistake, step)
    assert step.stats()["native_calls"] == 0
    assert (step.stats()["captures"] == 0) == (name not in VALUES_ONLY)
    assert float(aj.jit(lambda: X.sum())()) == 6.0  # and the next capture starts clean


def test_operands_of_a_step_are_named_with_the_line_that_made_them() -> None:
    def step(x: aj.Tensor) -> aj.Tensor:
        hidden = x * 2
        return hidden @ W

    with pytest.raises(RuntimeError) as raised:
        aj.jit(step)(X)
    first = inspect.getsourcelines(step)[1]
    assert f"{Path(__file__).name}:{first + 2}" in str(raised.value)


def test_an_index_out_of_range_in_a_native_call_is_reported_and_writes_nothing() -> None:
    table = aj.arange(6.0).reshape(3, 2).requires_grad_(True)
    optimizer = aj.optim.SGD([table], lr=1.0, momentum=0.9)

    @aj.jit
    def step(rows: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        loss = (table[rows] ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    for _ in range(3):
        step(aj.tensor([0, 1]))
    assert step.stats()["native_calls"] == 2
    before = table.detach().numpy().copy()
    with pytest.raises(IndexError, match=r"f32\[3, 2\]"):
        step(aj.tensor([0, 7]))
    assert table.detach().numpy().tobytes() == before.tobytes()
    step(aj.tensor([0, 1]))
    assert table.detach().numpy().tobytes() != before.tobytes()


def test_an_op_that_fails_inside_a_step_raises_and_writes_nothing() -> None:
    total = aj.zeros(2)

    @aj.jit
    def step(a: aj.Tensor) -> aj.Tensor:
        found = aj.linalg.solve(a, aj.ones(2))
        total.add_(found)
        return found.sum()

    for _ in range(3):
        step(aj.eye(2))
    with pytest.raises(RuntimeError, match="singular"):
        step(aj.zeros(2, 2))
    assert total.tolist() == [3.0, 3.0]
    step(aj.eye(2))
    assert total.tolist() == [4.0, 4.0]


def test_a_step_that_cannot_be_compiled_names_the_op_and_keeps_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    from autojit.core.errors import CompileError
    from autojit.ir import Op

    def refuse(*_: Any) -> Any:
        raise KeyError("no rule")

    monkeypatch.setattr(Op.registry["tanh"], "lower", refuse)
    step = aj.jit(lambda x: (aj.tanh(x) * 3).sum())
    with pytest.raises(CompileError) as raised:
        step(aj.ones(7, 11))
    text = str(raised.value)
    assert "tanh" in text
    assert Path(__file__).name in text
    assert "return" in text, "the graph's text stands in the message"
