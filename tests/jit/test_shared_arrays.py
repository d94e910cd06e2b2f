"""Arrays that a step takes of tensors share their memory, both ways: as in eager mode, whoever has the tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autojit as aj

OWNERS = {
    "an argument": ("pass", "x"),
    "a view of one": ("pass", "x[1:]"),
    "outside": ("pass", "at.outside"),
    "its data": ("pass", "at.outside.data"),
    "a parameter": ("pass", "at.parameter.detach()"),
    "a gradient": ("(at.parameter * x).sum().backward()", "at.parameter.grad"),
    "made": ("t = x * 2", "t"),
    "a view of what is made": ("t = x * 2", "t.reshape(3, 1).T[0, 1:]"),
    "saved for backward": ("t = at.parameter * x; u = t * t", "t.detach()"),
    "made of nothing": ("t = aj.zeros(3)", "t"),
    "a temporary": ("pass", "(x * 2)"),
}
WAYS = {
    "numpy": "{}.numpy()",
    "asarray": "np.asarray({})",
    "from_dlpack": "np.from_dlpack({})",
    "cpu": "{}.detach().cpu().numpy()",
    "a copy": "{}.numpy().copy()",
    "a function of NumPy's": "np.ravel({}.numpy())",
}
LATER = {
    "read": "found = a.sum(), a[-1] > 3, float(np.mean(a))",
    "read and decided": "found = {} * 2 if a[-1] > 3 else {} * 3",
    "returned": "found = a",
    "a part returned": "found = a[1:]",
    "stored": "at.kept.append(a); found = 0",
    "in a closure": "at.kept.append((lambda: a)()); found = 0",
    "written": "a[0] = 9.0; found = 0",
    "written, read": "a[0] = 9.0; found = {}.sum()",
    "written through a view": "b = a[::-1]; del a; b[0] = 9.0; found = {}.sum()",
    "written, put back": "b = a[0]; a[0] = 9.0; found = {}.sum(); a[0] = b",
    "in place": "a += 1; found = a.sum()",
    "out": "np.add(a, 1, out=a); found = {}.sum()",
    "filled": "a.fill(7); found = a",
    "sorted": "a[...] = -a; a.sort(); found = a[0]",
    "copied to": "np.copyto(a, 4.0); found = {}.sum()",
    "a memoryview": "b = memoryview(a); b[0] = 9.0; found = {}.sum()",
    "the tensor changed": "{}.add_(1); found = a.sum()",
    "the tensor changed, returned": "{}.add_(1); found = a",
    "the tensor changed, stored": "at.kept.append(a); {}.mul_(3); found = 0",
    "the tensor changed afterwards": "b = float(a.sum()); del a; {}.add_(1); found = b",
    "an item changed": "{}[0] = 5.0; found = a.sum()",
    "both returned": "found = a, {}",
    "both stored": "at.kept.append(a); at.stored = {}; found = 0",
    "a tensor of it": "found = aj.from_numpy(a), aj.tensor(a)",
    "a tensor of it changed": "b = aj.as_tensor(a)[:1]; b.add_(1); found = {}.sum()",
    "taken again": "b = {}.numpy(); b[0] = 4.0; found = a.sum()",
    "memory of others asked for": "found = np.shares_memory(a, at.shown), np.may_share_memory(at.outside.numpy(), a)",
    "memory asked for": "found = np.shares_memory(a, {}.numpy())",
    "raised": "a[0] = 3.0; raise ValueError(float({}.sum()))",
}


def _arrays(found: Any) -> Iterator[Any]:
    parts = found if isinstance(found, tuple | list) else (found,)
    yield from (part for part in parts if isinstance(part, np.ndarray))


def _tensors(found: Any) -> list[Any]:
    parts = found if isinstance(found, tuple) else (found,)
    return [part.detach() for part in parts if isinstance(part, aj.Tensor)]


def _looked_at(found: Any, at: Any, x: Any) -> list[Any]:
    """What is there, and who shares memory with whom."""
    grad = at.parameter.grad
    tensors = [x, at.outside, at.parameter.detach(), *(() if grad is None else (grad,)), *_tensors(at.stored)]
    shown = [repr(found), *map(repr, tensors), repr(at.kept)]
    arrays = [t.numpy() for t in _tensors(found)] + [*_arrays(found), *_arrays(at.kept)]
    return [*shown, [[np.shares_memory(a, b) for b in (*arrays, *(t.numpy() for t in tensors))] for a in arrays]]


def _run(source: str, jit: Callable[[Any], Any], calls: int = 3) -> tuple[list[Any], Any]:
    at = SimpleNamespace(outside=aj.tensor([1.0, 2.0, 3.0]), kept=[], stored=None)
    at.shown = at.outside.numpy()
    at.parameter = aj.nn.Parameter(aj.tensor([1.0, 2.0, 3.0]))
    names: dict[str, Any] = {"aj": aj, "np": np, "at": at, "__name__": __name__}
    exec(source, names)
    step, told = jit(names["step"]), []
    for k in range(calls):
        x = aj.tensor([1.0, 2.0, 3.0 + (k == 1)])
        try:
            found = step(x)
        except ValueError as error:
            found = str(error)
        told.append(_looked_at(found, at, x))
        for array in (*_arrays(found), *_arrays(at.kept)):
            array += 1
        told.append(_looked_at(found, at, x))
    return told, step


def _step(owner: str, way: str, later: str) -> str:
    before, tensor = OWNERS[owner]
    lines = before, f"a = {WAYS[way].format(tensor)}", LATER[later].replace("{}", tensor), "return found"
    return "def step(x):\n" + "".join(f"    {line}\n" for line in lines)


def _check(owner: str, way: str, later: str) -> None:
    source = _step(owner, way, later)
    assert _run(source, aj.jit)[0] == _run(source, lambda function: function)[0]


@pytest.mark.parametrize("later", LATER)
@pytest.mark.parametrize("owner", OWNERS)
def test_an_array_shares_the_memory_of_its_tensor(owner: str, later: str) -> None:
    _check(owner, "numpy", later)


@pytest.mark.parametrize("later", LATER)
@pytest.mark.parametrize("way", [way for way in WAYS if way != "numpy"])
def test_however_it_is_taken(way: str, later: str) -> None:
    _check("made" if way == "a copy" else "an argument", way, later)


COMPILED = {
    "read": "a = at.parameter.detach().numpy(); found = float(np.mean(a))",
    "read, then changed": "found = float(at.outside.numpy().sum()); at.outside.add_(0)",
    "a copy": "a = at.outside.numpy().copy(); at.outside.add_(0); a += 1; found = a",
    "returned alone": "loss = (at.parameter * x).sum(); found = loss.detach().numpy()",
    "returned after backward": "loss = (at.parameter * x).sum(); loss.backward(); found = loss.detach().numpy()",
    "stored alone": "at.kept.append((x * 2).numpy()); found = 0",
    "its own": "a = (x * 2).numpy(); a = a * 3; found = a, a.sum()",
    "a list": "found = x.tolist(); x.add_(0)",
    "converted": "a = np.asarray(x, dtype=np.float64); x.add_(0); found = a",
}


@pytest.mark.parametrize("said", COMPILED)
def test_what_is_only_read_is_compiled(said: str) -> None:
    source = f"def step(x):\n    {COMPILED[said]}\n    return found"
    told, step = _run(source, aj.jit)
    assert told == _run(source, lambda function: function)[0]
    assert step.stats()["captures"] and "line by line" not in step.explain()


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("a = x.numpy(); a[0] = 9.0", "the step changes a NumPy array that shares the memory of a tensor"),
        ("a = x.numpy(); x.add_(1)", "the step changes a tensor in place whose memory a NumPy array shares"),
        ("at.kept.append(x.numpy())", "the step leaves a NumPy array that shares the memory of a tensor"),
        ("a = x.numpy(); b = aj.from_numpy(a)", "a tensor is made on a NumPy array that shares the memory of another"),
        ("a = x.numpy(); b = x[1:].numpy()", "several NumPy arrays of one tensor share memory"),
    ],
)
def test_explain_tells_why(statement: str, why: str) -> None:
    _, step = _run(f"def step(x):\n    {statement}\n    return x * 1", aj.jit, 10)
    assert step.stats()["captures"] == 0
    assert why in step.explain() and "t.numpy().copy() (" in step.explain() and "ran line by line" in step.explain()


@pytest.mark.parametrize(
    "of", ["x", "x.T", "x[:, 1]", "x[::2]", "x.flip(0)", "x.expand(2, 3, 2)", "x.diagonal()", "x > 2"]
)
def test_an_array_lies_as_its_tensor(of: str) -> None:
    source = (
        f"def step(x):\n    a = ({of}).numpy()\n    return a.strides, a.flags.writeable, a.flags.f_contiguous, a.dtype"
    )
    names: dict[str, Any] = {"__name__": __name__}
    exec(source, names)
    step = aj.jit(names["step"])
    for size in (3, 4, 6):
        x = aj.arange(2.0 * size).reshape(size, 2) if "expand" not in of else aj.arange(6.0).reshape(3, 2)
        assert step(x) == names["step"](x)


def test_an_optimiser_changes_what_an_array_shows() -> None:
    def run(jit: Callable[[Any], Any]) -> list[Any]:
        layer = aj.nn.Linear(2, 1)
        layer.weight.data.fill_(0.5)
        layer.bias.data.fill_(0.0)
        optimizer = aj.optim.SGD(layer.parameters(), lr=0.5)

        def step(x: Any) -> Any:
            weight = layer.weight.detach().numpy()
            before = weight.copy()
            optimizer.zero_grad()
            layer(x).sum().backward()
            optimizer.step()
            return before, weight.sum(), weight

        compiled, found = jit(step), []
        for _ in range(3):
            found.append(repr(compiled(aj.ones(2, 2))))
        return found

    assert run(aj.jit) == run(lambda function: function)
