"""Kernels of a device: compiled once per process, and on a machine once per driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from autojit.core.errors import CompileError
from autojit.runtime.gpu.devices import CudaDevice
from autojit.runtime.gpu.libcuda import LibCuda
from autojit.runtime.gpu.modules import LoadedKernels
from tests.runtime.gpu.fake_library import INVALID_PTX, FakeLibrary

TEXT = "define ptx_kernel void @kernel(ptr addrspace(1) %p) {{ store i32 {}, ptr addrspace(1) %p\n ret void }}"
ROOT = Path(__file__).resolve().parents[3]

PROCESS = """
import json, sys
from autojit.runtime.gpu.devices import CudaDevice
from autojit.runtime.gpu.libcuda import LibCuda
from autojit.runtime.object_cache import default_cache
from tests.runtime.gpu.fake_library import FakeLibrary
version, texts = int(sys.argv[1]), sys.argv[2:]
library = FakeLibrary(version=version)
functions = CudaDevice(LibCuda(library), 0).kernels.functions(texts)
links, misses = library.calls.count("cuLinkComplete"), default_cache().stats().misses
print(json.dumps([links, misses, len(set(functions)), "llvmlite.binding" in sys.modules]))
"""


def run_process(cache: Path, version: int, *texts: str) -> list[int]:
    environment = os.environ | {"AUTOJIT_CACHE_DIR": str(cache), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    command = [sys.executable, "-c", PROCESS, str(version), *texts]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    found: list[int] = json.loads(done.stdout)
    return found


def test_a_second_process_asks_no_compiler(tmp_path: Path) -> None:
    texts = [TEXT.format(k) for k in range(3)]
    assert run_process(tmp_path, 12040, *texts) == [3, 6, 3, True]
    assert run_process(tmp_path, 12040, *texts) == [0, 0, 3, False]
    assert run_process(tmp_path, 12080, *texts) == [3, 3, 3, False]  # another driver makes its own code


def kernels_of(library: FakeLibrary) -> LoadedKernels:
    return CudaDevice(LibCuda(library), 0).kernels


def test_threads_share_one_compilation() -> None:
    library = FakeLibrary()
    kernels, found = kernels_of(library), list[list[int]]()
    threads = [threading.Thread(target=lambda: found.append(kernels.functions([TEXT.format(7)]))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and all(one == found[0] for one in found)
    assert library.calls.count("cuModuleLoadData") == 1


@pytest.mark.parametrize("most", ["", ' "nvvm.maxnreg"="40"'])
@pytest.mark.parametrize("helps", [True, False])
def test_a_kernel_that_spills_is_told_the_registers_that_it_may_have(helps: bool, most: str) -> None:
    """By itself the driver's compiler spills a few rather than to let fewer threads be at work."""
    library = FakeLibrary()
    library.spilled_bytes = lambda code: 8 * (not helps or b".maxnreg 168" not in code)
    text = TEXT.format(9).replace("%p) {", f'%p) "nvvm.maxntid"="128"{most} {{')
    (function,) = kernels_of(library).functions([text])
    assert list(library.modules) == [function]
    assert (b".maxnreg 168" in library.modules[function]) == (helps and not most)
    assert b".maxntid 128" in library.modules[function]


def test_a_kernel_that_the_driver_rejects_is_an_error_every_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOJIT_CACHE_DIR", str(tmp_path))
    library = FakeLibrary()
    library.failing["cuLinkComplete"] = INVALID_PTX
    kernels = kernels_of(library)
    for _ in range(2):
        with pytest.raises(CompileError, match="the driver's compiler rejects a kernel"):
            kernels.functions([TEXT.format(8)])
    del library.failing["cuLinkComplete"]
    assert kernels.functions([TEXT.format(8)])
