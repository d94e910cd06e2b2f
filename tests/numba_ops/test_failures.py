"""What goes wrong: exceptions raised by functions, functions that cannot be linked, wrong arguments of ``aj.op``."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autojit as aj

numba = pytest.importorskip("numba")

X = aj.tensor([4.0, 1.0, 9.0, 2.0, 3.0, 0.5, 2.5, 7.0, 8.0], dtype=aj.float64)


@numba.njit
def careful_root(x: float) -> float:
    if x < 0.0:
        raise ValueError("negative", 3)
    if x > 100.0:
        raise OverflowError("too big")
    return math.sqrt(x)


@pytest.mark.parametrize("wrap", [lambda f: f, aj.jit], ids=["eager", "compiled"])
def test_an_exception_of_the_function_is_raised_after_the_loop(wrap: Any) -> None:
    op = aj.op(careful_root)
    run = wrap(lambda x: op(x * 1.0) + 1.0)
    np.testing.assert_allclose(run(X).numpy(), np.sqrt(X.numpy()) + 1.0)
    bad, huge = X.clone(), X.clone()
    bad[4] = -1.0
    huge[0] = 1e3
    with pytest.raises(ValueError, match="negative") as told:
        run(bad)
    assert told.value.args == ("negative", 3)
    assert "careful_root" in told.value.__notes__[0]
    with pytest.raises(OverflowError, match="too big"):
        run(huge)
    np.testing.assert_allclose(run(X).numpy(), np.sqrt(X.numpy()) + 1.0)  # nothing is left behind


@pytest.mark.parametrize("wrap", [lambda f: f, aj.jit], ids=["eager", "compiled"])
def test_division_by_zero_is_pythons_unless_numba_is_told_otherwise(wrap: Any) -> None:
    python = wrap(aj.op(numba.njit(lambda x: 1.0 / x)))
    numpy = wrap(aj.op(numba.njit(error_model="numpy")(lambda x: 1.0 / x)))
    zero = aj.tensor([1.0, 0.0])
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        python(zero)
    assert numpy(zero).tolist() == [1.0, math.inf]


def test_an_exception_in_a_derivative_is_raised() -> None:
    op = aj.op(careful_root, derivatives=(careful_root,))
    x = X.clone().requires_grad_()
    (slope,) = aj.autograd.grad(op(x).sum(), x)
    np.testing.assert_allclose(slope.numpy(), np.sqrt(X.numpy()))
    tight = aj.op(numba.njit(lambda x: x), derivatives=(careful_root,))
    x = (-X).requires_grad_()
    with pytest.raises(ValueError, match="negative"):
        aj.autograd.grad(tight(x).sum(), x)


def test_functions_that_cannot_be_linked_say_why() -> None:
    @aj.op
    def allocates(x: float) -> float:
        return np.ones(int(x)).sum()

    with pytest.raises(NotImplementedError, match="cannot be linked") as told:
        allocates(X)
    assert "NRT_" in str(told.value)

    @aj.op
    def returns_an_array(x: float) -> Any:
        return np.ones(3) * x

    with pytest.raises(RuntimeError, match="takes or returns array"):
        returns_an_array(X)

    @aj.op
    def unknown_name(x: float) -> float:
        return x + "a"  # type: ignore[operator]

    with pytest.raises(RuntimeError, match="Numba cannot compile unknown_name for"):
        unknown_name(X)
    with pytest.raises(NotImplementedError, match="take real numbers"):
        aj.op(careful_root)(aj.tensor([1j]))


def test_derivatives_through_the_bits_of_a_number_are_refused() -> None:
    op = aj.op(numba.njit(lambda x: math.frexp(x)[0]))
    x = X.clone().requires_grad_()
    np.testing.assert_array_equal(op(x).detach().numpy(), np.frexp(X.numpy())[0])
    with pytest.raises(RuntimeError, match="cannot be differentiated") as told:
        op(x).sum().backward()
    assert "derivatives=" in str(told.value)


def test_wrong_arguments() -> None:
    f = careful_root
    with pytest.raises(ValueError, match="functions over arrays"):
        aj.op(f, vjp=lambda grad, result, x: grad)
    with pytest.raises(ValueError, match="functions over arrays"):
        aj.op(f, derivatives=(f,), out=lambda x: x)
    with pytest.raises(ValueError, match="expected a function"):
        aj.op(3)
    with pytest.raises(RuntimeError, match="2 derivatives are given for 1 operands"):
        aj.op(f, derivatives=(f, f))(X)
    with pytest.raises(RuntimeError, match="at least one operand"):
        aj.op(f)()
    with pytest.raises(TypeError, match="expected a Tensor or a number"):
        aj.op(f)("text")
    with pytest.raises(RuntimeError, match="must match the size"):
        aj.op(lambda x, y: x + y)(aj.ones(3), aj.ones(2))


def test_numba_is_imported_when_the_first_op_is_called_and_missing_numba_is_named() -> None:
    code = (
        "import sys, autojit as aj\n"
        "f = aj.op(lambda x: x * x)\n"
        "assert 'numba' not in sys.modules\n"
        "sys.modules['numba'] = None\n"
        "try:\n"
        "    f(aj.ones(2))\n"
        "except NotImplementedError as error:\n"
        "    print(error)\n"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root / "src")
    assert "Numba is not installed" in done.stdout
    assert "pip install" in done.stdout


@pytest.mark.parametrize("wrap", [lambda f: f, aj.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize("place", ["unread", "sliced", "masked"])
def test_an_exception_is_raised_wherever_the_result_goes(place: str, wrap: Any) -> None:
    op = aj.op(careful_root)

    def run(x: Any) -> Any:
        y = op(x)
        return {"unread": lambda: x + 1, "sliced": lambda: y[:2], "masked": lambda: aj.where(x > 0, y, 0.0)}[place]()

    bad = X.clone()
    bad[4] = -1.0
    step = wrap(run)
    step(X)
    with pytest.raises(ValueError, match="negative"):
        step(bad)


def test_errors_of_any_line_are_raised_as_they_are() -> None:
    """Numba's text holds the line: 92 is a backslash in it, 34 a quotation mark."""
    for line in (34, 92, 348):
        names: dict[str, Any] = {}
        body = ["def f(x):", "    if x < 0:", f"        raise ValueError('at {line}')", "    return x", ""]
        source = "\n".join([*[""] * (line - 3), *body])
        exec(compile(source, "made\\of\\text.py", "exec"), names)
        with pytest.raises(ValueError, match=f"at {line}"):
            aj.op(numba.njit(names["f"]))(aj.tensor(-1.0))
