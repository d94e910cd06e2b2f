"""A training step in bfloat16 whose products are multiplied by groups of warps: epilogues, guards, splits and all."""

from __future__ import annotations

import numpy as np
import pytest

import autojit as aj
from autojit.codegen.cuda import product_choice
from autojit.runtime.gpu.emulator.driver import EmulatedDriver

F = aj.nn.functional


def _losses(device: str) -> tuple[list[float], list[str]]:
    rng = np.random.default_rng(0)
    aj.manual_seed(0)
    net = aj.nn.Sequential(aj.nn.Linear(200, 192), aj.nn.GELU(), aj.nn.Linear(192, 200)).to(device)
    optimizer = aj.optim.AdamW(net.parameters(), lr=1e-3)
    x = aj.tensor(rng.normal(size=(192, 200)).astype(np.float32), device=device)
    y = aj.tensor(rng.integers(0, 200, 192), device=device)

    @aj.jit
    def step(x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        with aj.autocast(device, aj.bfloat16):
            loss = F.cross_entropy(net(x).float(), y)
        loss.backward()
        optimizer.step()
        return loss

    found = [float(step(x, y)) for _ in range(2)]
    return found, step.show("ptx").split(".visible .entry") if device == "cuda" else []


def test_a_step_in_bfloat16_is_the_cpus(driver: EmulatedDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, _ = _losses("cpu")
    monkeypatch.setattr(product_choice, "tiles_of", lambda *_: [])
    found, kernels = _losses("cuda")
    assert sum("wgmma.mma_async" in kernel for kernel in kernels) >= 4, "forward and by weights and inputs"
    np.testing.assert_allclose(found, expected, rtol=1e-3)
