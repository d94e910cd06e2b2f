"""Every example runs at small size, its own assertions hold, and compiled and eager give the same numbers."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import autojit as aj

FOLDER = Path(__file__).resolve().parents[2] / "examples"
RECORDED = Path(__file__).with_name("curves_of_torch.json")
EXAMPLES = sorted(FOLDER.glob("[a-z]*.py"))
TOLERANCE = {  # of those in float64; the others train in float32
    "black_scholes": 1e-12, "newton_cg": 1e-9, "leapfrog": 1e-9, "gaussian_process": 1e-9, "hmc": 1e-9,
    "lennard_jones": 1e-9, "pinn_lbfgs": 1e-6, "numba_op": 1e-9, "adaptive_ode": 1e-9,
}  # fmt: skip
OWN = ("lennard_jones", "numba_op", "adaptive_ode")  # what they show, torch does not have
FLOAT32_TOLERANCE = 2e-3  # after tens of steps; the first losses agree to rounding


@pytest.fixture(autouse=True)
def _folder_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FOLDER)  # as it is for a program that is started there


def distance_from_torch(name: str, losses: list[float]) -> float:
    """From torch where it is installed, else from what ``examples/_torch.py --small --record`` wrote down."""
    from _torch import curve, distance, sampled

    if importlib.util.find_spec("torch") is None:
        expected = np.array(json.loads(RECORDED.read_text(encoding="utf-8"))[name])
    else:
        expected = sampled(curve(name, "torch", "--small", "--eager")[0])
    return distance(expected, sampled(np.array(losses)))


def main_of(path: Path) -> Callable[[list[str]], list[float]]:
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[[list[str]], list[float]] = module.main
    return found


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_captured_once_and_gives_what_eager_mode_and_torch_give(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One test of three claims, so that an example runs once eagerly and once compiled."""
    functions = []

    def jit(function: Callable[..., object]) -> object:
        functions.append(aj.jit(function))
        return functions[-1]

    main = main_of(path)
    eager = main(["--small", "--eager"])
    monkeypatch.setitem(main.__globals__, "aj", SimpleNamespace(**{**vars(aj), "jit": jit}))
    compiled = main(["--small"])
    assert functions
    assert [function.stats()["captures"] for function in functions] == [1] * len(functions)
    rtol = TOLERANCE.get(path.stem, FLOAT32_TOLERANCE)
    np.testing.assert_allclose(compiled, eager, rtol=rtol, atol=rtol * abs(eager[0]))
    np.testing.assert_allclose(compiled[:5], eager[:5], rtol=min(rtol, 1e-5))
    if path.stem not in OWN:
        assert distance_from_torch(path.stem, eager) < rtol
        assert distance_from_torch(path.stem, compiled) < rtol


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_one_screen_or_two(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 120


def test_gpt_learns_any_text(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("do re mi fa so la ti " * 20, encoding="utf-8")
    losses = main_of(FOLDER / "gpt.py")(["--small", "--steps", "12", "--data", str(text)])
    assert losses[-1] < losses[0]
