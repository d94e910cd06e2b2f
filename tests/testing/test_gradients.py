"""assert_gradients, the pytest marker and the command: right rules pass, wrong ones are found in their order."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import autojit as aj
from autojit.__main__ import main
from autojit.testing import assert_gradients

ROOT = Path(__file__).resolve().parents[2]
WRONG = """
import autojit as aj

class Square(aj.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, y_bar):
        (x,) = ctx.saved_tensors
        return 3 * x * y_bar

class Cube(aj.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, y_bar):
        (x,) = ctx.saved_tensors
        return 3 * x.detach() ** 2 * y_bar

def square(x):
    return Square.apply(x)

def cube(x):
    return Cube.apply(x)

def product(a: aj.Tensor, b, bias=1.0):
    return (a * b).sin() + bias

def matrix_product(a, b):
    return a @ b

def operands():
    return aj.rand(2, 3, dtype=aj.float64), aj.rand(3, 2, dtype=aj.float64)

def counted(n: int):
    return n

def nothing(x):
    return None

number = 3
"""


def rules(tmp_path: Path) -> Any:
    namespace: dict[str, Any] = {}
    exec(WRONG, namespace)
    return namespace


@pytest.mark.parametrize("mode", ["eager", "jit"])
def test_right_derivatives_pass_up_to_order_four(mode: str) -> None:
    assert_gradients(lambda x: (x**3).sin(), aj.tensor([0.3, 0.4]), order=4, modes=(mode,))
    assert_gradients(lambda a, b: (a @ b, a.sum()), (aj.rand(2, 3), aj.rand(3, 2)), modes=(mode,))
    assert_gradients(lambda z: z.abs() ** 2, aj.tensor([1 + 2j, 0.5 - 1j]), order=1, modes=(mode,))


def test_only_inputs_that_require_gradients_are_checked_if_there_are_any() -> None:
    x = aj.rand(3, dtype=aj.float64, requires_grad=True)
    k = aj.rand(3, dtype=aj.float64)
    assert_gradients(lambda x, k: x * k.detach(), (x, k))
    assert k.grad is None
    assert not k.requires_grad


@pytest.mark.parametrize("mode", ["eager", "jit"])
def test_wrong_derivatives_are_found_with_mode_and_order(mode: str, tmp_path: Path) -> None:
    wrong = rules(tmp_path)
    with pytest.raises(AssertionError, match=rf"(?s)derivative 1 of square is wrong \({mode}\).*numerical.*analytical"):
        assert_gradients(wrong["square"], aj.tensor([1.0, 2.0]), modes=(mode,))
    assert_gradients(wrong["cube"], aj.tensor([1.0, 2.0]), order=1, modes=(mode,))
    with pytest.raises(AssertionError, match=rf"derivative 2 of cube is wrong \({mode}\)"):
        assert_gradients(wrong["cube"], aj.tensor([1.0, 2.0]), modes=(mode,))


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"order": 0}, "order must be 1 or more"),
        ({"modes": ("cuda",)}, "modes are eager, jit, not cuda"),
        ({"modes": ()}, "modes are eager, jit"),
        ({"inputs": aj.tensor([1])}, "none of the inputs"),
    ],
)
def test_impossible_requests_are_refused(arguments: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        assert_gradients(**{"fn": lambda x: x, "inputs": aj.ones(2), **arguments})


MARKED = (
    WRONG
    + """
import pytest

@pytest.mark.gradcheck
def test_right():
    return product, (aj.rand(3, dtype=aj.float64), aj.rand(3, dtype=aj.float64))

@pytest.mark.gradcheck(order=1, modes=("jit",), fast_mode=True)
@pytest.mark.parametrize("power", [2, 3])
def test_several(power, tmp_path):
    return [(lambda x: x**power, aj.rand(3)), (aj.tanh, aj.rand(2))]

@pytest.mark.gradcheck(order=1)
def test_wrong():
    return square, aj.rand(3)

@pytest.mark.gradcheck
def test_forgot():
    square(aj.rand(3))

class TestMethods:
    @pytest.mark.gradcheck(modes="eager")
    def test_method(self):
        return aj.sin, aj.rand(2)
"""
)


def run_pytest(tmp_path: Path, text: str) -> str:
    (tmp_path / "test_marked.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "autojit_pytest", "-p", "no:cacheprovider", "-rA", "--tb=line"]
    command += ["--strict-markers", "-W", "error", "test_marked.py"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": ""},
    )  # fmt: skip
    return done.stdout + done.stderr


def test_a_marked_test_is_checked_in_each_mode(tmp_path: Path) -> None:
    words = [line.split() for line in run_pytest(tmp_path, MARKED).splitlines()]
    found = {line[1]: line[0] for line in words if line and line[0] in ("PASSED", "FAILED")}
    place = "test_marked.py::"
    assert found == {
        f"{place}test_right[eager]": "PASSED",
        f"{place}test_right[jit]": "PASSED",
        f"{place}test_several[jit-2]": "PASSED",
        f"{place}test_several[jit-3]": "PASSED",
        f"{place}test_wrong[eager]": "FAILED",
        f"{place}test_wrong[jit]": "FAILED",
        f"{place}test_forgot[eager]": "FAILED",
        f"{place}test_forgot[jit]": "FAILED",
        f"{place}TestMethods::test_method[eager]": "PASSED",
    }


def test_the_plugin_does_not_import_autojit_until_it_is_used(tmp_path: Path) -> None:
    text = (
        "import sys\ndef test_plain():\n    assert 'autojit_pytest' in sys.modules and 'autojit' not in sys.modules\n"
    )
    assert "1 passed" in run_pytest(tmp_path, text)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "rules_to_check.py").write_text(WRONG, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "rules_to_check", raising=False)
    return "rules_to_check"


@pytest.mark.parametrize(
    "arguments",
    [
        "product",
        "product --order 3 --mode eager",
        "matrix_product --shape 2,3 --shape 3,2",
        "matrix_product --inputs operands --mode jit",
        "matrix_product --inputs rules_to_check:operands --fast --order 1",
        "product --dtype complex128 --order 1 --low -1 --high 1 --seed 3",
    ],
)
def test_the_command_passes_right_derivatives(arguments: str, module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gradcheck", *f"{module}:{arguments}".split()]) == 0
    assert "are right" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "order"), [("square", 1), ("cube", 2)])
def test_the_command_reports_wrong_ones(name: str, order: int, module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gradcheck", f"{module}:{name}", "--mode", "eager"]) == 1
    assert f"derivative {order} of {name} is wrong (eager)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ("rules_to_check:product --order 0", "the order is 1 or more"),
        ("rules_to_check:missing", "has no 'missing'"),
        ("no_such_module:f", "there is no module 'no_such_module'"),
        ("product", "write module:function"),
        ("rules_to_check:number", "is not callable"),
        ("rules_to_check:counted", "a parameter is no tensor"),
        ("rules_to_check:nothing", "returned no tensor"),
        ("rules_to_check:matrix_product", "raised ShapeError"),
    ],
)
def test_the_command_says_what_is_wrong_with_its_input(
    arguments: str, what: str, module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gradcheck", *arguments.split()]) == 2
    assert what in capsys.readouterr().err


def test_bad_options_end_with_status_two(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--mode", "cuda"], ["--shape", "2,x"], ["--inputs", "f", "--shape", "2"]):
        with pytest.raises(SystemExit) as caught:
            main(["gradcheck", f"{module}:product", *arguments])
        assert caught.value.code == 2
    capsys.readouterr()
