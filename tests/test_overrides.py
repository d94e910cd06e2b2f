"""torch's override protocol: every public function asks classes and modes, and nothing changes for who has none."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import autojit as aj
from autojit import overrides
from autojit.functions import overridable
from autojit.nn import functional as F


@pytest.fixture(autouse=True)
def other_tests_find_functions_as_they_were() -> Iterator[None]:
    yield
    overridable.uninstall()


class Duck:
    """No tensor, but every call that has one of it gives what was called."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func, types


FUNCTIONS = [
    pytest.param(function, id=f"{place}.{name}")
    for place, name, function in list(overrides.public_functions.public_functions())
]


def takes_something(function: Any) -> bool:
    return any(p.kind is not p.KEYWORD_ONLY for p in inspect.signature(function).parameters.values())


def test_every_function_asks_the_class_of_any_operand() -> None:
    overridable.install()
    duck, seen = Duck(), 0
    calls = (lambda f: f(duck), lambda f: f([1, duck]), lambda f: f(aj.ones(2), duck), lambda f: f(1, other=duck))
    for parameter in FUNCTIONS:
        function = parameter.values[0]
        if not takes_something(function):
            continue
        seen += 1
        for call in calls:
            told, kinds = call(function)
            assert callable(told) and kinds == (Duck,), parameter.id
            assert told is function or told.__name__ in aj.Tensor.__dict__
    assert seen > 1000


def test_signatures_stay_what_they_were() -> None:
    before = [str(inspect.signature(p.values[0])) for p in FUNCTIONS]  # type: ignore[arg-type]
    overridable.install()
    assert [str(inspect.signature(p.values[0])) for p in FUNCTIONS] == before  # type: ignore[arg-type]


def test_the_first_call_with_an_operand_that_overrides_asks_it() -> None:
    for call in (
        lambda d: aj.mean(d), lambda d: aj.add(d, 1), lambda d: aj.cat([d]), lambda d: F.linear(d, aj.ones(2, 2)),
        lambda d: aj.exp(d),
    ):  # fmt: skip
        overridable.uninstall()
        assert call(Duck())[1] == (Duck,)


HANDLED: dict[Any, Any] = {}


class Scaled:
    """A multiple of the identity, as in torch's documentation."""

    def __init__(self, n: int, value: float) -> None:
        self.n, self.value = n, value

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in HANDLED or not all(issubclass(kind, aj.Tensor | Scaled) for kind in types):
            return NotImplemented
        return HANDLED[func](*args, **(kwargs or {}))


HANDLED[aj.mean] = lambda t: t.value / t.n
HANDLED[aj.add] = lambda t, other: Scaled(t.n, t.value + other.value)


def test_functions_are_keys_of_tables_made_before() -> None:
    assert aj.mean(Scaled(4, 2.0)) == 0.5
    assert aj.add(Scaled(2, 1.0), Scaled(2, 2.0)).value == 3.0  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"no implementation found for 'autojit\..*sub' on types that implement"):
        aj.sub(Scaled(2, 1.0), 1)  # type: ignore[arg-type]


class Logged(aj.Tensor):
    """A tensor that notes what is done with it."""

    seen: list[str] = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs)


class Other(Logged):
    pass


def test_results_of_a_subclass_are_of_it_and_have_gradients() -> None:
    overridable.install()
    leaf = aj.tensor([1.0, 2.0], requires_grad=True)
    x = leaf.as_subclass(Logged)
    Logged.seen.clear()
    y = F.relu(x * 2 + 1).sum()
    assert type(y) is Logged and Logged.seen == ["mul", "add", "relu", "sum"]
    y.backward()
    assert leaf.grad is not None and leaf.grad.tolist() == [2.0, 2.0]
    parts = x.split(1)
    assert all(type(part) is Logged for part in parts)
    assert type(x + aj.ones(2).as_subclass(Other)) is Other  # the subclass is asked first
    with overrides.DisableTorchFunctionSubclass():
        assert type(x + 1) is aj.Tensor
    with pytest.raises(RuntimeError, match="view of a leaf"):  # as in torch
        x += 1
    z = x.detach()
    z += 1
    assert type(z) is Logged and z.tolist() == [2.0, 3.0]


def test_a_captured_step_asks_classes_while_it_is_captured() -> None:
    overridable.install()

    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        return (x * 2).exp()

    x = aj.ones(2).as_subclass(Logged)
    found = step(x)
    with overrides.DisableTorchFunctionSubclass():
        assert aj.allclose(found, (aj.ones(2) * 2).exp())


class Noting(overrides.TorchFunctionMode):
    def __init__(self, name: str, seen: list[str]) -> None:
        self.name, self.seen = name, seen

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(f"{self.name}:{func.__name__}")
        return func(*args, **(kwargs or {}))


def test_modes_see_every_call_from_the_innermost_outwards() -> None:
    seen: list[str] = []
    step = aj.jit(lambda x: x.tanh())
    step(aj.ones(2))
    with Noting("outer", seen), Noting("inner", seen):
        x = aj.ones(2)
        step(x)
        with overrides.DisableTorchFunction():
            x + 1
    assert seen == ["inner:ones", "outer:ones", "inner:tanh", "outer:tanh"]
    x + 1
    assert len(seen) == 4 and not overrides.has_torch_function((x,))


def test_a_mode_may_replace_what_is_called() -> None:
    class OnMeta(overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func in (aj.zeros, aj.randn):
                kwargs = {**(kwargs or {}), "dtype": aj.float64}
            return func(*args, **(kwargs or {}))

    with OnMeta():
        assert aj.zeros(2).dtype is aj.float64 and aj.randn(2).dtype is aj.float64
        with pytest.raises(ValueError, match="inside"), Noting("x", []):
            raise ValueError("inside")
    assert aj.zeros(2).dtype is aj.float32


class Asked(aj.Tensor):
    """A tensor that gives what was called."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func


ACCESSORS = list(overrides.public_functions.accessors())


def test_reading_and_writing_a_property_asks_the_class() -> None:
    overridable.install()
    asked, names = aj.ones(2, 2).as_subclass(Asked), {name for name, _, _ in ACCESSORS}
    assert {"T", "mT", "shape", "dtype", "device", "grad", "requires_grad", "data", "is_leaf", "ndim"} <= names
    for name, _, accessor in ACCESSORS:
        if accessor.__name__ == "__get__":
            assert getattr(asked, name) == accessor, name
        assert overrides.is_tensor_method_or_property(accessor)
        assert accessor in overrides.get_overridable_functions()[aj.Tensor]
    asked.grad = aj.ones(2, 2)  # the class was asked, and did nothing
    with overrides.DisableTorchFunctionSubclass():
        assert asked.grad is None and asked.shape == (2, 2)
    assert overrides.resolve_name(vars(aj.Tensor)["T"].__get__) == "autojit.Tensor.T.__get__"


def test_what_properties_give_is_of_the_class_but_gradients_are_as_they_were() -> None:
    overridable.install()
    x = aj.ones(2, 3).requires_grad_().as_subclass(Logged)
    Logged.seen.clear()
    assert type(x.T) is Logged and x.shape == (2, 3) and x.is_leaf is False
    assert Logged.seen == ["__get__"] * 3
    leaf = aj.ones(2, 3).as_subclass(Logged).requires_grad_()
    gradient = aj.ones(2, 3)
    leaf.grad = gradient
    assert leaf.grad is gradient and type(leaf.grad) is aj.Tensor
    seen: list[str] = []
    with Noting("outer", seen), Noting("inner", seen):
        assert gradient.shape == (2, 3)
        gradient.requires_grad = True
    assert seen == ["inner:__get__", "outer:__get__", "inner:__set__", "outer:__set__"]


def test_errors_name_the_function_as_before() -> None:
    with pytest.raises(Exception) as before:
        aj.matmul(aj.ones(2, 3), aj.ones(4, 5))
    overridable.install()
    with pytest.raises(type(before.value)) as after:
        aj.matmul(aj.ones(2, 3), aj.ones(4, 5))
    lines = [str(error.value).splitlines() for error in (before, after)]
    assert [line.split("at ")[0] for line in lines[0]] == [line.split("at ")[0] for line in lines[1]]
    assert "calling matmul()" in str(after.value)


def test_a_function_of_the_users_can_be_overridden() -> None:
    @overrides.wrap_torch_function(lambda x: (x,))
    def twice(x: Any) -> Any:
        return x * 2

    assert twice(aj.ones(1)).item() == 2 and twice(Duck())[0] is twice
    assert isinstance(overrides.get_testing_overrides()[aj.add], functools.partial)
    assert aj.is_tensor in overrides.get_ignored_functions()
    assert overrides.resolve_name(aj.Tensor.add) == "autojit.Tensor.add"
