"""``python -m autojit run``: programs written for torch run as they are, with named functions compiled."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import autojit as aj
from autojit.__main__ import main
from autojit.compat.absent import REASONS
from autojit.compat.wanted_names import _MISSING, _value, missing_names

MODEL = """
import torch.nn as nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, x):
        return self.inner(x)
"""

PROGRAM = """
import pickle, sys
import torch
import torch.nn.functional as F
from torch.optim import SGD
from model import Net

torch.manual_seed(0)
net = Net()
opt = SGD(net.parameters(), lr=0.1)
x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))

def train_step(x, y):
    opt.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    opt.step()
    return loss

if __name__ == "__main__":
    for _ in range(4):
        loss = train_step(x, y)
    assert isinstance(pickle.loads(pickle.dumps(net)), Net)
    assert torch.__version__ >= "2.0"
    print(f"{loss.item():.5f}", type(train_step).__name__, type(Net.forward).__name__, sys.argv[1:])
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(MODEL)
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return path


def _run(program: Path, *options: str, args: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "autojit", "run", *options, program.name, *args]
    return subprocess.run(command, cwd=program.parent, capture_output=True, text=True, timeout=600, check=False)


def test_a_program_runs_as_it_is_and_compiled(program: Path) -> None:
    plain = _run(program, args=("--lr", "3"))
    assert plain.returncode == 0, plain.stderr
    loss, *kinds = plain.stdout.split(maxsplit=3)
    assert kinds == ["function", "function", "['--lr', '3']\n"] and "not in autojit" not in plain.stderr
    compiled = _run(program, "--step", "train_step", "--jit", "--step", "model:Net.forward")
    assert compiled.returncode == 0, compiled.stderr
    found, *kinds = compiled.stdout.split(maxsplit=3)
    assert abs(float(found) - float(loss)) < 1e-4 and kinds[:2] == ["JitFunction", "JitFunction"]


def test_a_program_ends_with_its_own_status(tmp_path: Path) -> None:
    program = tmp_path / "ends.py"
    program.write_text("import sys, torch\nsys.exit(7)\n")
    assert _run(program).returncode == 7
    program.write_text("import torch\ntorch.ones(2) @ torch.ones(3)\n")
    failed = _run(program)
    assert failed.returncode == 1 and 'ends.py", line 2' in failed.stderr and "inner axes differ" in failed.stderr
    program.write_text("import torch\ndef f(:\n")
    failed = _run(program)
    assert failed.returncode == 1 and 'ends.py", line 2' in failed.stderr and "SyntaxError" in failed.stderr


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (["nowhere.py"], "no such program"),
        (["--step", "a:b:step", "{program}"], "names a function of a module"),
        (["--step", "train:", "{program}"], "names a function of a module"),
        (["--jit", "{program}"], "--jit compiles the functions that --step names"),
    ],
)
def test_what_cannot_be_run_is_refused(
    program: Path, capsys: pytest.CaptureFixture[str], options: list[str], match: str
) -> None:
    assert main(["run", *(text.format(program=program) for text in options)]) == 2
    assert match in capsys.readouterr().err


def test_a_step_that_the_program_does_not_define_is_named(program: Path) -> None:
    failed = _run(program, "--jit", "--step", "train:no_step")
    assert failed.returncode == 2 and "train:no_step" in failed.stderr


NAMES = """
import torch, torch.nn as nn
import torch.nowhere.below
from torch.nn import functional as F, NoLayer
from torch import randn, no_function as g
import helper

x = torch.ones(2).no_method()
y = torch.tensor_of_nothing(x)
z = F.no_loss(nn.Linear(2, 2)(x)); nn.Module.no_attribute
torch.backends.cudnn.benchmark = True
torch.set_by_hand = 1
torch.ops.registered_later.operator(x)
w = torch.__version__, torch.nn.init.kaiming_normal_, randn(2).shape
"""


def test_names_that_are_missing_are_found_with_their_lines(tmp_path: Path) -> None:
    """In modules beside the program, too; what a tensor has, and what it sets or registers itself, is not."""
    (tmp_path / "helper.py").write_text("from torch.utils import nothing_there\n")
    path = tmp_path / "names.py"
    path.write_text(NAMES)
    found = [(wanted.path.name, wanted.line, wanted.name) for wanted in missing_names(path)]
    assert found == [
        ("helper.py", 1, "torch.utils.nothing_there"),
        ("names.py", 3, "torch.nowhere"),
        ("names.py", 4, "torch.nn.NoLayer"),
        ("names.py", 5, "torch.no_function"),
        ("names.py", 9, "torch.tensor_of_nothing"),
        ("names.py", 10, "torch.nn.Module.no_attribute"),
        ("names.py", 10, "torch.nn.functional.no_loss"),
    ]


def test_names_that_are_missing_are_listed_before_the_program_starts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "wants.py"
    path.write_text("import sys, torch\nsys.stderr.write('started')\nif torch.is_tensor(1):\n    torch.no_function()\n")
    assert main(["run", str(path)]) == 0
    told = capfd.readouterr().err
    assert told.index(f"{path}:4: torch.no_function") < told.index("started")
    path.write_text("import torch\n")
    assert main(["run", str(path)]) == 0
    assert not capfd.readouterr().err


def test_a_library_that_does_not_run_is_listed_with_the_reason(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "digits.py"
    path.write_text("import torch\nfrom torchtext import datasets\n")
    assert main(["run", str(path)]) == 1
    told = capfd.readouterr().err
    assert f"{path}:2: torchtext (" in told
    assert told.count("utils.data makes batches") == 2, "before the run and with the error"
    (tmp_path / "torchtext.py").write_text("datasets = ()\n")
    assert missing_names(path) == [], "the program has a module of that name"


def test_what_is_left_out_is_refused_with_what_takes_its_place(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "traces.py"
    path.write_text(
        "import torch\ntry:\n    torch.nested\nexcept AttributeError as error:\n    print(error)\n"
        "import torch._inductor\n"
    )
    assert main(["run", str(path)]) == 1
    out, told = capfd.readouterr()
    assert "pad, and pass masks or lengths" in out
    listed, _, traceback = told.partition("Traceback")
    assert f"{path}:6: torch._inductor (steps are compiled by autojit's own code generator" in listed
    assert "No module named 'torch._inductor'\nsteps are compiled by autojit's own code generator" in traceback


def test_what_is_imported_and_not_used_does_not_stop_a_program(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "exports.py"
    path.write_text("import sys, torch, torch.onnx\nprint('runs')\nif sys.argv[1:]:\n    torch.onnx.export(None)\n")
    assert main(["run", str(path)]) == 0
    out, told = capfd.readouterr()
    assert out == "runs\n" and "exports.py:1: torch.onnx (a step is exported by step.export()" in told
    assert main(["run", str(path), "now"]) == 1
    assert "no attribute 'export' here: a step is exported by step.export()" in capfd.readouterr().err
    assert not hasattr(aj, "onnx")


@pytest.mark.parametrize("name", sorted(REASONS))
def test_what_is_called_left_out_is(name: str) -> None:
    """A name that has come since has no reason any more."""
    path = name.split(".")
    assert _value(["autojit", *path]) is _MISSING


LIBRARY = """
import importlib.metadata, importlib.util
import torch
from typing import get_origin

assert importlib.util.find_spec("torch").name == "torch"
assert importlib.metadata.version("torch") == torch.__version__
from torch.hub import load_state_dict_from_url
from torch.optim.optimizer import ParamsT
from torch.serialization import MAP_LOCATION
from torch.jit import Final, TracerWarning

class Layer(torch.nn.Module):
    width: Final[int]

    @torch.jit._overload_method
    def forward(self, x): ...

    def forward(self, x):
        torch._assert(x.dim() == 2, "two axes")
        torch._check(x.shape[0] > 0, lambda: "rows")
        return x + int(torch.compiler.is_compiling()) + (torch._C._get_tracing_state() is not None)

@torch.compiler.disable(recursive=False)
def alone(x):
    return compiled(x)

layer = torch.compiler.allow_in_graph(Layer())
compiled = torch.compile(layer)
print(layer(torch.zeros(1, 1)).item(), compiled(torch.zeros(1, 1)).item(), alone(torch.zeros(1, 1)).item())
"""


def test_what_libraries_ask_torch_for(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "library.py"
    path.write_text(LIBRARY)
    assert missing_names(path) == []
    assert main(["run", str(path)]) == 0
    assert capfd.readouterr().out.split() == ["0.0", "2.0", "0.0"]
