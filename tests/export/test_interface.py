"""The interface of a library: from C, from NumPy alone, its errors, its state in files, several at a time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autojit as aj
from tests.export.agreement import bits, compile_c, exported, run_alone
from tests.export.programs import PROGRAMS

F = aj.nn.functional

TRAINING_IN_C = r"""
#include <stdio.h>
#include <string.h>
#include "step.h"

int main(void)
{
    float x[5 * 6];
    int64_t y[5] = {0, 1, 2, 1, 0};
    float loss;
    step_instance *instance = 0;
    FILE *file = fopen("x.bin", "rb");
    if (!file || fread(x, sizeof x, 1, file) != 1 || fclose(file)) return 10;
    if (step_abi_version() != STEP_ABI_VERSION) return 11;
    if (step_create(&instance)) return 12;
    if (step_set_threads(0) != STEP_THREADS || step_set_threads(2)) return 13;
    step_arguments arguments = {x, y};
    step_results results = {&loss};
    for (int k = 0; k < 4; k++) {
        if (step_run(instance, &arguments, &results)) return 14;
        fwrite(&loss, sizeof loss, 1, stdout);
    }
    y[2] = 7;
    int code = step_run(instance, &arguments, &results);
    if (!code || !strstr(step_error_text(code), "out of bounds")) return 15;
    if (step_run(instance, 0, &results) != STEP_NULL_POINTER) return 16;
    y[2] = 2;
    if (step_save_state(instance, "state.safetensors")) return 17;
    if (step_run(instance, &arguments, &results)) return 18;
    fwrite(&loss, sizeof loss, 1, stdout);
    if (step_load_state(instance, "state.safetensors") || step_run(instance, &arguments, &results)) return 19;
    fwrite(&loss, sizeof loss, 1, stdout);
    if (step_load_state(instance, "main.c") != STEP_STATE_FILE || step_load_state(instance, "none") != STEP_FILE)
        return 20;
    step_destroy(instance);
    return 0;
}
"""


def test_a_c_program_trains_with_the_bits_of_the_process(tmp_path: Path) -> None:
    aj.manual_seed(1)
    function, calls = PROGRAMS["dropout_and_adam"]()
    step, _ = exported(function, calls, tmp_path / "step")
    (tmp_path / "x.bin").write_bytes(calls[0][0].numpy().tobytes())
    program = compile_c(TRAINING_IN_C, tmp_path, "step.so")
    done = subprocess.run([program], cwd=tmp_path, capture_output=True, timeout=600, check=False)
    assert done.returncode == 0
    losses = [float(step(*calls[0])) for _ in range(5)]
    expected = np.array([*losses, losses[-1]], np.float32)
    assert done.stdout == expected.tobytes()
    loaded = aj.io.safetensors.load_file(tmp_path / "state.safetensors")
    assert {"model.0.weight", "default_generator", "optimizer.0.weight.exp_avg"} <= set(loaded)


def test_a_header_is_valid_cpp_and_describes_open_sizes(tmp_path: Path) -> None:
    model = aj.nn.Linear(3, 2)
    made = aj.export.export(model, (aj.ones(4, 3),), dynamic_shapes=({0: aj.export.Dim("batch")},))
    made.save(tmp_path / "model")
    source = r"""
    #include "model.h"
    int main(void) {
        float x[15], y[10] = {0};
        model_instance *instance;
        for (int k = 0; k < 15; k++) x[k] = (float)k;
        if (model_create(&instance)) return 1;
        model_arguments arguments = {x, 5};
        model_results results = {y};
        if (model_run(instance, &arguments, &results)) return 2;
        float *weight = model_state(instance)->weight, *bias = model_state(instance)->bias;
        float wanted = x[12] * weight[3] + x[13] * weight[4] + x[14] * weight[5] + bias[1];
        float error = y[9] - wanted;
        arguments.batch = -1;
        if (model_run(instance, &arguments, &results) != MODEL_SIZE) return 3;
        model_destroy(instance);
        return error < 1e-4f && error > -1e-4f ? 0 : 4;
    }
    """
    program = compile_c(source, tmp_path, "model.so")
    assert subprocess.run([program], cwd=tmp_path, timeout=600, check=False).returncode == 0


def test_the_module_beside_a_library_needs_numpy_alone(tmp_path: Path) -> None:
    aj.manual_seed(1)
    function, calls = PROGRAMS["batchnorm_and_momentum"]()
    step, _ = exported(function, calls, tmp_path / "step")
    np.save(tmp_path / "x.npy", calls[0][0].numpy())
    code = """
import numpy as np, step_numpy
s = step_numpy.load()
x = np.load('x.npy')
for _ in range(3): found = s(x)
print(found['loss'].tobytes().hex(), s.state_dict()['model.0.weight'].tobytes().hex())
assert 'autojit' not in {name.partition('.')[0] for name in sys.modules if sys.modules[name] is not None}
"""
    loss, weight = run_alone(code, tmp_path).split()
    for _ in range(3):
        expected = step(*calls[0])
    state = {t["name"] for t in aj.export.load(tmp_path / "step").manifest["state"]}
    assert loss == expected["loss"].numpy().tobytes().hex()
    assert "model.1.running_mean" in state
    entry = next(e for e in step.last_step().entries if e.array.shape == (3, 2, 3, 3))
    assert weight == entry.array.tobytes().hex()


def test_a_library_holds_nothing_of_its_process(tmp_path: Path) -> None:
    """Two processes, whose memory is elsewhere, write the same bytes."""
    code = (
        "import sys, autojit as aj; from tests.export.programs import PROGRAMS\n"
        "aj.manual_seed(1); f, calls = PROGRAMS[sys.argv[1]](); step = aj.jit(f)\n"
        "step(*calls[0]); step(*calls[0]); step.export(sys.argv[2])"
    )
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": f"{root}/src:{root}"}
    command = [sys.executable, "-c", code, "random_numbers", f"{tmp_path}/child"]
    subprocess.run(command, check=True, timeout=600, env=environment, cwd=root)
    aj.manual_seed(1)
    (tmp_path / "here").mkdir()
    exported(*PROGRAMS["random_numbers"](), tmp_path / "here" / "child")
    assert (tmp_path / "child.so").read_bytes() == (tmp_path / "here" / "child.so").read_bytes()


def test_an_error_leaves_the_state_as_it_was(tmp_path: Path) -> None:
    table = aj.zeros(4, 2)

    def step(x: aj.Tensor, rows: aj.Tensor) -> aj.Tensor:
        table.add_(x)
        return F.embedding(rows, table)

    _, library = exported(step, [(aj.ones(2), aj.tensor([1, 3]))], tmp_path / "step")
    x = np.ones(2, np.float32)
    before = library.state_dict()
    with pytest.raises(RuntimeError, match=r"embedding.*out of bounds.*test_interface.py"):
        library(x, np.array([1, 4]))
    assert bits(library.state_dict()) == bits(before)
    assert library(x, np.array([0, 0])).tolist() == (before["table"][[0, 0]] + 1).tolist()


def test_states_go_out_and_in(tmp_path: Path) -> None:
    aj.manual_seed(1)
    function, calls = PROGRAMS["dropout_and_adam"]()
    _, library = exported(function, calls, tmp_path / "step")
    other = aj.export.load(tmp_path / "step")
    given = [a.numpy() for a in calls[0]]
    first = [library(*given) for _ in range(3)]
    library.save_state(tmp_path / "state")
    other.load_state(tmp_path / "state")
    third = aj.export.load(tmp_path / "step")
    third.load_state_dict(library.state_dict())
    after = library(*given)
    assert bits(other(*given)) == bits(third(*given)) == bits(after)
    library.reset_state()
    assert bits([library(*given) for _ in range(3)]) == bits(first)
    with pytest.raises(RuntimeError, match="missing"):
        library.load_state_dict({})
    content = (tmp_path / "state").read_bytes()
    (tmp_path / "torn").write_bytes(content[:-1])
    kept = library.state_dict()
    with pytest.raises(RuntimeError, match="another state"):
        library.load_state(tmp_path / "torn")
    with pytest.raises(RuntimeError, match="cannot be read"):
        library.save_state(tmp_path / "none" / "state")
    assert bits(library.state_dict()) == bits(kept)


def test_instances_run_side_by_side_and_one_alone_at_a_time(tmp_path: Path) -> None:
    function, calls = PROGRAMS["large_parallel"]()
    _, library = exported(function, calls, tmp_path / "step")
    given = [a.numpy() for a in calls[0]]
    expected = bits(library(*given))
    others = [aj.export.load(tmp_path / "step") for _ in range(3)]
    found: list[Any] = [None] * 3

    def work(k: int) -> None:
        found[k] = [bits(others[k](*given)) == expected for _ in range(5)]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[True] * 5] * 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_runs_the_library_with_threads_of_its_own(tmp_path: Path) -> None:
    function, calls = PROGRAMS["large_parallel"]()
    exported(function, calls, tmp_path / "step")
    np.save(tmp_path / "x.npy", calls[0][0].numpy())
    code = """
import os, numpy as np, step_numpy
s = step_numpy.load('step')
s.set_num_threads(3)
x = np.load('x.npy')
before = s(x)[1].tobytes()
child = os.fork()
if child == 0:
    os._exit(0 if s(x)[1].tobytes() == before and s(x)[1].tobytes() == before else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), s(x)[1].tobytes() == before)
"""
    assert run_alone(code, tmp_path).split() == ["0", "True"]


def test_a_loaded_library_stays_what_it_is_when_its_file_is_written_again(tmp_path: Path) -> None:
    _, library = exported(lambda x: x + 1, [(aj.ones(2),)], tmp_path / "step")
    exported(lambda x: x - 1, [(aj.ones(2),)], tmp_path / "step")
    assert library(np.ones(2, np.float32)).tolist() == [2, 2]


def test_nests_fixed_values_and_tensors_given_twice(tmp_path: Path) -> None:
    def step(pair: dict[str, aj.Tensor], scale: int, again: aj.Tensor, *, mode: str) -> aj.Tensor:
        return pair["a"] * scale + pair["b"] + again if mode == "sum" else pair["a"]

    x, y = aj.ones(2), aj.full((2,), 3.0)
    jitted = aj.jit(step)
    for _ in range(2):
        jitted({"a": x, "b": y}, 2, x, mode="sum")
    jitted.export(tmp_path / "step")
    library = aj.export.load(tmp_path / "step")
    a, b = x.numpy(), y.numpy()
    assert library({"a": a, "b": b}, 2, a, mode="sum").tolist() == [6, 6]
    assert library(a, b).tolist() == library({"a": a, "b": b}).tolist() == [6, 6]
    with pytest.raises(ValueError, match="captured with 2 as scale"):
        library({"a": a, "b": b}, 3, a, mode="sum")
    with pytest.raises(ValueError, match=r"again is the same tensor as pair\[0\]"):
        library({"a": a, "b": b}, 2, a.copy(), mode="sum")


def test_arguments_are_checked(tmp_path: Path) -> None:
    _, library = exported(lambda x, y: x + y, [(aj.ones(2, 3), aj.ones(3))], tmp_path / "step")
    x, y = np.ones((2, 3), np.float32), np.ones(3, np.float32)
    assert bits(library(np.asfortranarray(x), y=y[::-1])) == bits(x + y)
    for wrong, error, text in (
        ((x,), TypeError, "missing y"),
        ((x, y, y), TypeError, "takes x, y"),
        ((x.astype(np.float64), y), TypeError, "x: dtype float64, not float32"),
        ((x, x), ValueError, r"y: 2 dimensions, not 1"),
        ((x[:1], y), ValueError, r"x: shape \[1, 3\], not \[2, 3\]"),
    ):
        with pytest.raises(error, match=text):
            library(*wrong)
