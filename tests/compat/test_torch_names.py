"""``import torch`` that gives autojit, as long as somebody wants it."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import autojit as aj
from autojit.core.errors import UsageError


def test_modules_are_the_same_objects_and_stay_what_they_are() -> None:
    known = ["nn", "nn.functional", "optim", "utils.data", "autograd", "cuda", "linalg"]
    specs = {name: importlib.import_module(f"autojit.{name}").__spec__ for name in known}
    with aj.torch_names() as torch:
        for name in known:
            ours = importlib.import_module(f"autojit.{name}")
            assert importlib.import_module(f"torch.{name}") is ours and ours.__spec__ is specs[name]
            assert ours.__name__ == f"autojit.{name}"
        assert torch.float32 is aj.float32 and torch.Tensor is aj.Tensor and "randn" in dir(torch)
    assert not [name for name in sys.modules if name.partition(".")[0] == "torch"]


def test_what_is_set_is_set_in_autojit() -> None:
    with aj.torch_names() as torch:
        torch.of_a_test = 3
        assert aj.of_a_test == 3  # type: ignore[attr-defined]
    del aj.of_a_test  # type: ignore[attr-defined]


def test_names_of_types_are_torchs_inside() -> None:
    with aj.torch_names() as torch:
        assert torch.ones(1).type() == "torch.FloatTensor" and torch.ones(1).type("torch.LongTensor").tolist() == [1]
    assert aj.ones(1).type() == "autojit.FloatTensor"


def test_a_function_stays_over_the_module_of_its_name() -> None:
    with aj.torch_names() as torch:
        module = importlib.import_module("torch.autograd.gradcheck")
        assert torch.autograd.gradcheck is module.gradcheck is aj.autograd.gradcheck


def test_missing_names_and_modules_are_said_in_torchs_words() -> None:
    with aj.torch_names() as torch:
        with pytest.raises(AttributeError, match="module 'torch' has no attribute 'nothing'"):
            torch.nothing
        with pytest.raises(ModuleNotFoundError, match=r"No module named 'torch\.nowhere'"):
            importlib.import_module("torch.nowhere")


def test_a_torch_that_is_there_comes_back_or_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    other = ModuleType("torch")
    monkeypatch.setitem(sys.modules, "torch", other)
    with pytest.raises(UsageError, match="torch itself is imported"), aj.torch_names():
        pass
    assert sys.modules["torch"] is other


def test_contexts_may_be_within_each_other() -> None:
    with aj.torch_names() as outer:
        with aj.torch_names() as inner:
            assert importlib.import_module("torch") is inner is not outer
        assert importlib.import_module("torch") is outer


def test_nothing_of_it_is_imported_before_it_is_asked_for() -> None:
    text = "import sys, autojit; print([n for n in sys.modules if n.startswith('autojit.compat')])"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.strip() == "[]"


IMPORTS = """
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed import init_process_group, destroy_process_group
from torch.nn.attention import SDPBackend, sdpa_kernel
import torch.backends.cudnn as cudnn, torch.multiprocessing as mp, torch.distributed as dist
from torch.utils.data.distributed import DistributedSampler
from torch.cuda.amp import GradScaler, autocast
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
import torch.distributed.checkpoint as dcp
"""


def test_what_training_programs_import_first_is_there_and_says_what_it_cannot_do() -> None:
    with aj.torch_names() as torch:
        names: dict[str, object] = {}
        exec(IMPORTS, names)
        assert not torch.xpu.is_available() and not names["dist"].is_initialized()  # type: ignore[attr-defined]
        for call in (names["destroy_process_group"], torch.distributed.barrier):
            with pytest.raises(ValueError, match="Default process group has not been initialized"):
                call()  # type: ignore[operator]
        with pytest.raises(ValueError, match="Default process group has not been init"):
            names["DDP"](torch.nn.Linear(2, 2))  # type: ignore[operator]
    with pytest.raises(ValueError, match="instance of SDPBackend"), aj.nn.attention.sdpa_kernel([]):
        pass


@pytest.mark.parametrize(
    "path", ["nn.modules.batchnorm", "nn.modules.module", "nn.parallel.distributed", "optim.adamw"]
)
def test_paths_of_torchs_files_can_be_imported(path: str) -> None:
    with aj.torch_names():
        found = importlib.import_module(f"torch.{path}")
    assert found is importlib.import_module(f"autojit.{path}")


def test_classes_that_libraries_only_ask_for_have_no_instances_and_say_what_to_do() -> None:
    with aj.torch_names() as torch:
        kinds = [torch.jit.ScriptModule, torch.ScriptFunction]
        for kind in kinds:
            assert not isinstance(aj.nn.Linear(2, 2), kind)
            with pytest.raises(UsageError, match=r"there are no .* here") as refused:
                kind()
            assert "fix" in str(refused.value)


def test_modules_that_libraries_import_names_from_have_the_same_functions() -> None:
    with aj.torch_names() as torch:
        functional, zoo = importlib.import_module("torch.functional"), importlib.import_module("torch.utils.model_zoo")
        assert all(getattr(functional, name) is getattr(torch, name) for name in ("einsum", "norm", "split", "stft"))
        assert functional.F is aj.nn.functional and zoo.load_url is aj.hub.load_state_dict_from_url
        assert importlib.import_module("torch.distributed.constants").default_pg_timeout
        reduction = importlib.import_module("torch.nn._reduction")
        assert [reduction.get_enum(name) for name in ("none", "mean", "sum")] == [0, 1, 2]
        assert reduction.legacy_get_string(None, False, emit_warning=False) == "none"


def test_tensors_go_into_one_vector_and_come_back() -> None:
    with aj.torch_names():
        utils = importlib.import_module("torch._utils")
    given = [aj.randn(2, 3), aj.randn(()), aj.randn(0, 2), aj.randn(4)]
    back = utils._unflatten_dense_tensors(utils._flatten_dense_tensors(given), given)
    assert all(aj.equal(x, y) for x, y in zip(given, back, strict=True))
    with pytest.raises(UsageError, match="elements"):
        utils._unflatten_dense_tensors(aj.ones(3), given)


SPAWNING = """
import torch, torch.multiprocessing as mp

def work(rank, x):
    x[rank] = torch.ones(()) + rank

if __name__ == "__main__":
    x = torch.zeros(2).share_memory_()
    mp.spawn(work, args=(x,), nprocs=2)
    print(x.tolist())
"""


def test_processes_that_a_program_spawns_find_the_names_too(tmp_path: Path) -> None:
    program = tmp_path / "spawning.py"
    program.write_text(SPAWNING)
    ran = subprocess.run([sys.executable, "-m", "autojit", "run", str(program)], capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == ("[1.0, 2.0]\n", "")


class Doubled(aj.nn.Module):
    """Names a function and a dtype of autojit's."""

    def forward(self, x: aj.Tensor) -> aj.Tensor:
        return aj.relu(x).to(aj.float64)


SHOWN = {
    "a dtype": lambda: str(aj.float32),
    "a size": lambda: repr(aj.zeros(2, 3).shape),
    "a layout": lambda: str(aj.strided),
    "an order of axes": lambda: str(aj.channels_last),
    "a tensor": lambda: repr(aj.zeros(1, dtype=aj.float64)),
    "a type": lambda: aj.zeros(1).type(),
    "a storage": lambda: repr(aj.zeros(1).untyped_storage()).rpartition("[")[2],
    "code of a graph": lambda: aj.fx.symbolic_trace(Doubled()).code,
    "a graph": lambda: str(aj.fx.symbolic_trace(Doubled()).graph),
}


@pytest.mark.parametrize("name", SHOWN)
def test_programs_that_import_torch_are_shown_its_names(name: str) -> None:
    ours = SHOWN[name]()
    with aj.torch_names():
        theirs = SHOWN[name]()
    assert "autojit." in ours and theirs == ours.replace("autojit.", "torch.")
    assert SHOWN[name]() == ours


def test_graphs_are_read_back_whatever_names_they_were_shown_with() -> None:
    x = aj.tensor([-1.0, 2.0])
    with aj.torch_names():
        traced = aj.fx.symbolic_trace(Doubled())
        saved = pickle.dumps(traced)
    for found in (traced, pickle.loads(saved)):
        assert found(x).tolist() == [0.0, 2.0]
    assert "autojit.relu" in pickle.loads(saved).code
