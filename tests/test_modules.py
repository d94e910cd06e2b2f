"""Small modules of the root: versions, annotations, torch's override protocol, the CPU, other processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import autojit as aj
from autojit import multiprocessing as mp


class Diagonal:
    """A matrix that follows torch's protocol."""

    def __init__(self, values: list[float]) -> None:
        self.values = values

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return ("called", func.__name__, types) if func is aj.mean else NotImplemented


def test_the_version_is_one() -> None:
    assert aj.version.__version__ == aj.__version__
    assert (aj.version.cuda, aj.version.hip, aj.version.debug) == (None, None, False)


def test_annotations_are_types() -> None:
    assert isinstance(2, aj.types.Number)
    assert aj.types.Tensor is aj.Tensor
    assert aj.types.Storage is type(aj.ones(1).untyped_storage())


def test_objects_that_follow_the_override_protocol() -> None:
    matrix = Diagonal([1.0])
    assert aj.overrides.has_torch_function((1, matrix))
    assert aj.overrides.has_torch_function_unary(matrix)
    assert not aj.overrides.has_torch_function_variadic(1, aj.ones(1), aj.nn.Parameter(aj.ones(1)))
    assert aj.overrides.is_tensor_like(matrix)
    assert aj.overrides.handle_torch_function(aj.mean, (matrix,), matrix) == ("called", "mean", (Diagonal,))
    with pytest.raises(TypeError, match="no implementation"):
        aj.overrides.handle_torch_function(aj.sum, (matrix,), matrix)
    assert aj.overrides.is_tensor_method_or_property(aj.Tensor.add)
    assert not aj.overrides.is_tensor_method_or_property(aj.add)
    assert aj.overrides.resolve_name(aj.Tensor.add) == "autojit.Tensor.add"
    assert aj.overrides.resolve_name(3) is None


def test_the_cpu_is_a_device_module() -> None:
    assert aj.get_device_module("cpu") is aj.cpu
    assert (aj.cpu.is_available(), aj.cpu.device_count(), aj.cpu.current_device()) == (True, 1, "cpu")
    aj.cpu.set_device("cpu")
    aj.cpu.synchronize()
    with aj.cpu.stream(aj.cpu.Stream()):
        aj.cpu.current_stream().wait_stream(aj.cpu.current_stream())
    with pytest.raises(RuntimeError):
        aj.cpu.set_device("cuda")


def write(rank: int, folder: str, value: aj.Tensor) -> None:
    (Path(folder) / str(rank)).write_text(str((value * rank).sum().item()), encoding="utf-8")


def fail(rank: int) -> None:
    if rank == 1:
        raise ValueError("the second one")


def test_functions_run_in_other_processes(tmp_path: Path) -> None:
    mp.start_processes(write, (str(tmp_path), aj.ones(3)), nprocs=2, start_method="fork")
    assert [(tmp_path / str(rank)).read_text(encoding="utf-8") for rank in range(2)] == ["0.0", "3.0"]
    with pytest.raises(RuntimeError, match="the second one"):
        mp.start_processes(fail, nprocs=2, start_method="fork")
    running = mp.start_processes(fail, nprocs=1, join=False, start_method="fork")
    assert running is not None
    assert len(running.pids()) == 1
    assert running.join()
    assert mp.cpu_count() >= 1
    with pytest.raises(ValueError, match="strategy"):
        mp.set_sharing_strategy("telepathy")
