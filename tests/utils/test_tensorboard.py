"""Events for TensorBoard: what is written is what TensorBoard's own reader finds."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.utils.tensorboard import SummaryWriter

needs_tensorboard = pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed"
)


def read(directory: Path) -> Any:
    module = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = module.EventAccumulator(str(directory), size_guidance={"histograms": 0, "scalars": 0, "images": 0})
    found.Reload()
    return found


@needs_tensorboard
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_is_written_is_read_by_tensorboard(tmp_path: Path) -> None:
    values = aj.randn(1000, generator=aj.Generator().manual_seed(0))
    with SummaryWriter(tmp_path, filename_suffix=".run") as writer:
        for step in range(3):
            writer.add_scalar("loss", aj.tensor(2.0**-step, requires_grad=True), step, walltime=100.0 + step)
        writer.add_scalar("exact", 0.1, 1, double_precision=True)
        writer.add_histogram("weights", values, 7)
        writer.add_histogram("weights", values.bfloat16(), 8, bins=10, max_bins=5)
        writer.add_image("image", aj.ones(3, 4, 5) * 0.5, 2)
        writer.add_images("images", aj.zeros(10, 1, 4, 5), 2)
        writer.add_text("note", "*hello*", 1)
        writer.add_scalars("both", {"a": 1.0, "b": 2}, 4)
        writer.add_hparams({"lr": 0.1, "kind": "sgd"}, {"hparam/loss": 0.5}, run_name="tried")
        assert writer.get_logdir() == str(tmp_path)
    found = read(tmp_path)
    assert [(e.step, e.value, e.wall_time) for e in found.Scalars("loss")] == [
        (k, 2.0**-k, 100.0 + k) for k in range(3)
    ]
    assert found.Tensors("exact")[0].tensor_proto.double_val[0] == 0.1
    one, other = found.Histograms("weights")
    kept = one.histogram_value
    assert (kept.num, kept.min, kept.max) == (1000, float(values.min()), float(values.max()))
    assert sum(kept.bucket) == sum(other.histogram_value.bucket) == 1000
    assert len(kept.bucket) == len(kept.bucket_limit) and np.all(np.diff(kept.bucket_limit) > 0)
    assert len(other.histogram_value.bucket) <= 6
    assert (found.Images("image")[0].width, found.Images("image")[0].height) == (5, 4)
    assert (found.Images("images")[0].width, found.Images("images")[0].height) == (40, 8)
    assert found.Tensors("note/text_summary")[0].tensor_proto.string_val[0] == b"*hello*"
    assert read(tmp_path / "both_b").Scalars("both")[0].value == 2.0
    tried = read(tmp_path / "tried")
    assert tried.Scalars("hparam/loss")[0].value == 0.5
    assert set(tried.PluginTagToContent("hparams")) == {
        f"_hparams_/{part}" for part in ("experiment", "session_start_info", "session_end_info")
    }
    assert any(path.name.endswith(".run") for path in tmp_path.iterdir())


@needs_tensorboard
def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        with pytest.raises(AssertionError, match="scalar should be 0D"):
            writer.add_scalar("x", aj.ones(2))
        with pytest.raises(ValueError, match="no element"):
            writer.add_histogram("x", aj.ones(0))
        with pytest.raises(AssertionError, match="input format are different"):
            writer.add_image("x", aj.ones(2, 2))


def test_without_the_package_the_error_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['tensorboard'] = None\n"
        "from autojit.utils.tensorboard import SummaryWriter\n"
        "try:\n    SummaryWriter('nowhere')\nexcept ModuleNotFoundError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=True)
    assert "pip install tensorboard" in done.stdout
    assert not Path("nowhere").exists()
