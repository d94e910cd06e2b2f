"""What a jitted function says of its steps on a GPU."""

from __future__ import annotations

import re

import autojit as aj
from autojit.runtime.gpu.emulator.driver import EmulatedDriver
from tests.jit.cuda.programs import PROGRAMS


def test_kernels_are_listed_with_grids_and_as_ptx() -> None:
    make, batches = PROGRAMS["mlp_adam"]
    training = make("cuda")
    step = aj.jit(training.step)
    for batch in batches(3):
        step(*(aj.tensor(a, device="cuda") for a in batch))
    kernels = int(re.findall(r"cuda:0: (\d+) kernels, told in 1 go", step.explain())[0])
    shown = step.show("schedule")
    grids = re.findall(r"blocks of (\d+) threads", shown)  # copies, too, and who tells the host what was reported
    assert kernels < len(grids) == len(re.findall("blocks of", step.explain(verbose=True)))
    assert re.search(r"one launch, \d+ x \d+\n +0  ", shown)
    ptx, texts = step.show("ptx"), step.show("llvm")
    entries = re.findall(r"\.visible \.entry kernel", ptx)
    stats = step.stats()
    assert 0 < len(entries) <= stats["launches"] < kernels and ".target sm_90" in ptx
    assert texts.count("ptx_kernel") == len(entries) and texts.count("define") > len(entries)
    assert stats["device_entries"] == 1 and stats["kernels"] > kernels


def test_a_step_that_may_report_does_not_wait_for_its_end(driver: EmulatedDriver) -> None:
    """Neither for the queue nor by asking it: the device writes to the host what was reported."""
    make, batches = PROGRAMS["mlp_adam"]
    step = aj.jit(make("cuda").step)
    given = [[aj.tensor(a, device="cuda") for a in batch] for batch in batches(4)]
    for batch in given[:2]:
        step(*batch)
    before = driver.counts["waits"], driver.counts["copies out"]
    for batch in given[2:]:
        step(*batch)
    assert (driver.counts["waits"], driver.counts["copies out"]) == before


def test_what_waits_is_named() -> None:
    @aj.jit
    def step(x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        return aj.linalg.svdvals(x) * 2, x.sum().cpu()

    for _ in range(2):
        step(aj.eye(3, device="cuda"))
    page = step.explain()
    assert "call-back  svd" in page and "on cuda:0: two waits" in page
    assert re.search(r"transfer   f32\[\]@cuda:0 -> cpu \(a wait\)", page)
    assert step.stats()["fallbacks"] == 1


def test_a_step_without_devices_says_nothing_of_them() -> None:
    step = aj.jit(lambda x: x + 1)
    step(aj.ones(3, device="cpu"))
    assert not re.search("device|transfer|call-back", step.explain())
    assert step.show("ptx") == "" and step.stats()["device_entries"] == 0


def test_a_step_made_for_its_sizes_says_for_which_op() -> None:
    step = aj.jit(lambda x: aj.linalg.cholesky(aj.diag(x)))
    for n in (2, 3, 4, 3):
        step(aj.ones(n, device="cuda"))
    assert len(step.steps()) == 3 and step.stats()["specialised_sizes"]
    assert "the kernel of cholesky is written for its sizes" in step.explain()
