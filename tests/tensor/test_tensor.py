"""The Tensor object: construction, conversion, printing, copying, what fails with which error."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj


def test_from_numpy_shares_memory_and_tensor_copies() -> None:
    array = np.zeros(3)
    shared, copied = aj.from_numpy(array), aj.tensor(array)
    array[0] = 1
    assert shared[0].item() == 1
    assert copied[0].item() == 0
    assert np.shares_memory(shared.numpy(), array)


def test_nested_data_of_tensors_and_numbers() -> None:
    np.testing.assert_array_equal(aj.tensor([[1, 2], [3, 4]]).numpy(), [[1, 2], [3, 4]])
    np.testing.assert_array_equal(aj.tensor([aj.tensor(1.0), aj.tensor(2.0)]).numpy(), [1, 2])
    assert aj.tensor(3).shape == ()
    assert aj.tensor([]).dtype is aj.float32


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda: aj.arange(5), np.arange(5)),
        (lambda: aj.arange(1, 2, 0.25), np.arange(1, 2, 0.25)),
        (lambda: aj.linspace(0, 1, 5), np.linspace(0, 1, 5)),
        (lambda: aj.eye(2, 3), np.eye(2, 3)),
        (lambda: aj.full((2, 2), 7), np.full((2, 2), 7)),
        (lambda: aj.ones(2).new_zeros(3), np.zeros(3)),
        (lambda: aj.tril(aj.ones(3, 3)), np.tril(np.ones((3, 3)))),
        (lambda: aj.meshgrid(aj.arange(2), aj.arange(3), indexing="xy")[0], np.meshgrid(np.arange(2), np.arange(3))[0]),
    ],
)
def test_factories_agree_with_numpy(made: Callable[[], aj.Tensor], expected: Any) -> None:
    np.testing.assert_allclose(made().numpy(), expected)


def test_python_conversions() -> None:
    x = aj.tensor([1.5, 2.5])
    assert x.tolist() == [1.5, 2.5]
    assert float(x[0]) == 1.5
    assert int(x[1]) == 2
    assert len(x) == 2
    assert [float(v) for v in x] == [1.5, 2.5]
    assert 2.5 in x
    assert [10, 20, 30][aj.tensor(1)] == 20
    assert f"{x[0]:.2f}" == "1.50"
    assert x.size(0) == x.shape[0] == x.numel() == 2
    assert np.asarray(x).dtype == np.float32


PRINTED = {
    "tensor([1., 2.])": lambda: aj.tensor([1.0, 2.0]),
    "tensor([1, 2])": lambda: aj.tensor([1, 2]),
    "tensor([0.5000, 2.0000], dtype=autojit.float64)": lambda: aj.tensor([0.5, 2.0], dtype=aj.float64),
    "tensor(3., requires_grad=True)": lambda: aj.tensor(3.0, requires_grad=True),
    "tensor([2.], grad_fn=<MulBackward0>)": lambda: aj.tensor([1.0], requires_grad=True) * 2,
    "tensor([[1, 2],\n        [3, 4]])": lambda: aj.tensor([[1, 2], [3, 4]]),
    "tensor([1., inf])": lambda: aj.tensor([1.0, float("inf")]),
    "tensor([ 1., -inf, 10.])": lambda: aj.tensor([1.0, -float("inf"), 10.0]),
    "tensor([-inf, inf])": lambda: aj.tensor([-float("inf"), float("inf")]),
    "tensor([1.+1.j, inf+1.j])": lambda: aj.complex(aj.tensor([1.0, float("inf")]), aj.ones(2)),
    "tensor([    nan, 1.0000])": lambda: aj.tensor([float("nan"), 1.0]) + aj.tensor([0.0, 1e-9]),
    "tensor([1.0000e+00, 1.0000e+10])": lambda: aj.tensor([1.0, 1e10]),
    "tensor([], size=(2, 0))": lambda: aj.zeros(2, 0),
    "tensor([ True, False])": lambda: aj.tensor([True, False]),
}


@pytest.mark.parametrize("text", [t for t in PRINTED if "nan" not in t])
def test_tensors_print_as_in_torch(text: str) -> None:
    with aj.device("cpu"):
        assert repr(PRINTED[text]()) == text


def test_a_number_that_is_none_takes_no_more_room_than_torch_gives_it() -> None:
    assert str(aj.tensor([1.0, float("nan")])) == "tensor([1., nan])"
    assert str(aj.tensor([0.5, float("nan")])) == "tensor([0.5000,    nan])"


def test_a_line_has_as_many_numbers_as_torch_gives_it() -> None:
    zeros, infinite = (
        str(aj.zeros(30)),
        str(aj.full((30,), float("inf"))),
    )  # of none that is finite and not 0: one column
    assert zeros.split("\n")[0] == "tensor([" + ", ".join(["0."] * 24) + ","
    assert infinite.split("\n")[0] == "tensor([" + ", ".join(["inf"] * 24) + ","
    assert str(aj.complex(aj.zeros(30), aj.zeros(30))).split("\n")[0].count("0.+0.j") == 14


def test_copies_are_independent() -> None:
    x = aj.tensor([1.0, 2.0], requires_grad=True)
    for twin in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert twin.requires_grad
        with aj.no_grad():
            twin.add_(1.0)
        np.testing.assert_array_equal(x.detach().numpy(), [1, 2])


def test_equality_and_hash() -> None:
    x = aj.tensor([1.0, 2.0])
    assert len({x, x, x.clone()}) == 2
    assert (x == None) is False  # noqa: E711
    assert aj.equal(x, x.clone())
    assert aj.allclose(x, x + 1e-9)


BAD: dict[str, tuple[Callable[[], Any], type[Exception]]] = {
    "truth of many": (lambda: bool(aj.ones(2)), RuntimeError),
    "item of many": (lambda: aj.ones(2).item(), RuntimeError),
    "iterating a scalar": (lambda: list(aj.tensor(1.0)), TypeError),
    "len of a scalar": (lambda: len(aj.tensor(1.0)), TypeError),
    "numpy of a recorded tensor": (lambda: aj.ones(2, requires_grad=True).numpy(), RuntimeError),
    "shapes": (lambda: aj.ones(2) + aj.ones(3), RuntimeError),
    "matmul": (lambda: aj.ones(2, 3) @ aj.ones(2, 3), RuntimeError),
    "matmul dtypes": (lambda: aj.ones(2, 2) @ aj.ones(2, 2, dtype=aj.float64), RuntimeError),
    "axis": (lambda: aj.ones(2).sum(3), IndexError),
    "reshape": (lambda: aj.ones(6).view(4), RuntimeError),
    "view of a transpose": (lambda: aj.ones(2, 3).t().view(6), RuntimeError),
    "integer leaf": (lambda: aj.tensor([1], requires_grad=True), RuntimeError),
    "device": (lambda: aj.zeros(1, device="cuda:99"), RuntimeError),
    "mean of integers": (lambda: aj.tensor([1]).mean(), RuntimeError),
    "bool minus": (lambda: aj.tensor([True]) - aj.tensor([True]), RuntimeError),
    "ragged": (lambda: aj.tensor([[1], [1, 2]]), ValueError),
    "index dtype": (lambda: aj.ones(3).gather(0, aj.tensor([0.0])), RuntimeError),
    "unknown operand": (lambda: aj.ones(2) + "a", TypeError),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_raises_what_torch_raises(name: str) -> None:
    attempt, error = BAD[name]
    with pytest.raises(error):
        attempt()


def test_numpy_warnings_stay_silent_and_the_users_error_state_is_kept() -> None:
    before = np.geterr()
    with np.errstate(all="raise"):
        assert aj.tensor([1.0, 0.0]).div(0.0).isinf().tolist() == [True, False]
        assert aj.tensor([-1.0]).log().isnan().item()
    assert np.geterr() == before


def test_contiguous_lies_row_by_row_and_keeps_the_history() -> None:
    x = aj.arange(12.0).reshape(3, 4).requires_grad_(True)
    rows = x.T.contiguous()
    assert rows.is_contiguous()
    assert rows.view(12).shape == (12,)
    assert rows.contiguous() is rows
    (rows.view(-1) ** 2).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), 2 * x.detach().numpy())


def test_profiles_of_printing_set_every_option() -> None:
    x = aj.tensor([1.23456], device="cpu")
    shown = []
    try:
        for profile in ("short", "default", "full"):
            aj.set_printoptions(profile=profile)
            shown.append(str(x))
    finally:
        aj.set_printoptions(profile="default")
    assert shown == ["tensor([1.23])", "tensor([1.2346])", "tensor([1.2346])"]
    with pytest.raises(ValueError, match="profile"):
        aj.set_printoptions(profile="long")


ELSEWHERE: dict[str, Callable[[Any], Any]] = {
    "ones": lambda place: aj.ones(2, device=place),
    "tensor": lambda place: aj.tensor([1.0], device=place),
    "empty_strided": lambda place: aj.empty_strided((2,), (1,), device=place),
    "like": lambda place: aj.zeros_like(aj.ones(2), device=place),
    "new": lambda place: aj.ones(2).new_zeros(2, device=place),
    "to": lambda place: aj.ones(2).to(place),
    "to with dtype": lambda place: aj.ones(2).to(device=place, dtype=aj.float64, copy=True),
    "type": lambda place: aj.ones(2).type(f"torch.{aj.device(place).type}.FloatTensor"),
    "module": lambda place: aj.nn.Linear(2, 2).to(place),
    "new module": lambda place: aj.nn.Linear(2, 2, device=place),
    "generator": lambda place: aj.Generator(device=place),
    "default": aj.set_default_device,
    "sparse": lambda place: aj.sparse_coo_tensor([[0]], [1.0], (2,), device=place),
    "step": lambda place: aj.jit(lambda x: x.to(place))(aj.ones(2)),
}


@pytest.mark.parametrize("place", ["mps", "xpu:1", "xla", "hpu"])
def test_devices_of_torchs_that_are_not_here_are_names_only(place: str) -> None:
    device = aj.device(place)
    assert device == aj.device(device) != aj.device("cpu") and str(device) == place
    assert pickle.loads(pickle.dumps(device)) == device and aj.ones(1).device != device
    for make in ELSEWHERE.values():
        for given in (place, device):
            with pytest.raises(RuntimeError, match=f"device '{device.type}.*' is not available"):
                make(given)
    with pytest.raises(
        RuntimeError, match=r"Expected one of cpu, cuda, .* device type at start of device string: toaster"
    ):
        aj.device("toaster")
