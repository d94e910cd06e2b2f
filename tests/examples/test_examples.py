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


def main_of(path: Path) -> Callable[[list[str]], list[float]]:
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[[list[str]], list[float]] = module.main
    return found


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_compiled_and_eager_agree(path: Path) -> None:
    main = main_of(path)
    eager, compiled = main(["--small", "--eager"]), main(["--small"])
    rtol = TOLERANCE.get(path.stem, FLOAT32_TOLERANCE)
    np.testing.assert_allclose(compiled, eager, rtol=rtol, atol=rtol * abs(eager[0]))
    np.testing.assert_allclose(compiled[:5], eager[:5], rtol=min(rtol, 1e-5))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_what_is_compiled_is_captured_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []

    def jit(function: Callable[..., object]) -> object:
        compiled.append(aj.jit(function))
        return compiled[-1]

    main = main_of(path)
    monkeypatch.setitem(main.__globals__, "aj", SimpleNamespace(**{**vars(aj), "jit": jit}))
    main(["--small"])
    assert compiled
    assert [function.stats()["captures"] for function in compiled] == [1] * len(compiled)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_one_screen_or_two(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 120


def test_gpt_learns_any_text(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("do re mi fa so la ti " * 20, encoding="utf-8")
    losses = main_of(FOLDER / "gpt.py")(["--small", "--steps", "12", "--data", str(text)])
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("path", [p for p in EXAMPLES if p.stem not in OWN], ids=lambda path: path.stem)
def test_torch_gives_the_same_curve(path: Path) -> None:
    """Torch where it is installed, else what it gave when ``examples/_torch.py --small --record`` wrote it down."""
    from _torch import curve, distance, sampled

    if importlib.util.find_spec("torch") is None:
        expected = np.array(json.loads(RECORDED.read_text(encoding="utf-8"))[path.stem])
    else:
        expected = sampled(curve(path.stem, "torch", "--small", "--eager")[0])
    for mode in (["--eager"], []):
        found, _ = curve(path.stem, "autojit", "--small", *mode)
        assert distance(expected, sampled(found)) < TOLERANCE.get(path.stem, FLOAT32_TOLERANCE)
