"""Every example runs at small size, its own assertions hold, and compiled and eager give the same numbers."""

from __future__ import annotations

import importlib.util
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autojit as aj
from tests.distributed.worlds import launch, needs_mpi

FOLDER = Path(__file__).resolve().parents[2] / "examples"
RECORDED = Path(__file__).with_name("curves_of_torch.json")
EXAMPLES = sorted(FOLDER.glob("[a-z]*.py"))
TOLERANCE = {  # of those in float64; the others train in float32
    "black_scholes": 1e-12, "newton_cg": 1e-9, "leapfrog": 1e-9, "gaussian_process": 1e-9, "hmc": 1e-9,
    "lennard_jones": 1e-9, "pinn_lbfgs": 1e-6, "numba_op": 1e-9, "adaptive_ode": 1e-9,
}  # fmt: skip
OWN = (
    "lennard_jones",
    "numba_op",
    "adaptive_ode",
    "data_parallel",
    "export_step",
)  # what they show, torch does not have
CALLED_BACK = ("adaptive_ode", "gaussian_process", "text_lstm")  # loops and factorisations
QUICK_ON_DEVICES = (  # in the gate; --slow runs the others, too
    "black_scholes", "graph_attention", "lennard_jones", "numba_op", "vae",
)  # fmt: skip
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


def compiled_of(main: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The functions that an example compiles from now on."""
    functions: list[Any] = []

    class Recording:
        def __getattr__(self, name: str) -> Any:
            return getattr(aj, name)

        def jit(self, function: Callable[..., object]) -> object:
            functions.append(aj.jit(function))
            return functions[-1]

    monkeypatch.setitem(inspect.unwrap(main).__globals__, "aj", Recording())
    return functions


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_captured_once_and_gives_what_eager_mode_and_torch_give(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One test of three claims, so that an example runs once eagerly and once compiled."""
    main = main_of(path)
    eager = main(["--small", "--eager"])
    functions = compiled_of(main, monkeypatch)
    compiled = main(["--small"])
    assert functions
    assert [function.stats()["captures"] for function in functions] == [1] * len(functions)
    rtol = TOLERANCE.get(path.stem, FLOAT32_TOLERANCE)
    np.testing.assert_allclose(compiled, eager, rtol=rtol, atol=rtol * abs(eager[0]))
    np.testing.assert_allclose(compiled[:5], eager[:5], rtol=min(rtol, 1e-5))
    if path.stem not in OWN:
        assert distance_from_torch(path.stem, eager) < rtol
        assert distance_from_torch(path.stem, compiled) < rtol


@pytest.mark.gpu
@pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=() if p.stem in QUICK_ON_DEVICES else pytest.mark.slow) for p in EXAMPLES],
    ids=lambda path: path.stem,
)
def test_an_example_is_the_same_program_on_a_device(path: Path, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few steps of each, with what is called back counted. On the CPU there is nothing to compare with."""
    if device == "cpu":
        pytest.skip("the other side of the comparison")
    main = main_of(path)
    arguments = ["--small", "--steps", "2"]
    expected = main(arguments)
    functions = compiled_of(main, monkeypatch)
    found = main([*arguments, "--device", "cuda"])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
    assert all(function.stats()["device_entries"] for function in functions)
    if path.stem not in CALLED_BACK:
        assert [function.stats()["fallbacks"] for function in functions] == [0] * len(functions)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_one_screen_or_two(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 120


@needs_mpi
@pytest.mark.parametrize(
    ("name", "ranks"),
    [("data_parallel", 3), ("data_parallel", 2), ("gpt", 2), ("gpt", 3)],
)
def test_an_example_runs_on_several_ranks(name: str, ranks: int) -> None:
    done = launch(ranks, [str(FOLDER / f"{name}.py"), "--small", "--steps", "4"])
    assert done.returncode == 0, done.stdout


def test_gpt_learns_any_text(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("do re mi fa so la ti " * 20, encoding="utf-8")
    losses = main_of(FOLDER / "gpt.py")(["--small", "--steps", "12", "--data", str(text)])
    assert losses[-1] < losses[0]
