"""The object cache seen from whole training processes: warm starts, damage, disks that refuse."""

from __future__ import annotations

import os
import resource
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autojit as aj
from tests.acceptance.processes import train
from tests.acceptance.programs import PROGRAMS


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A warm cache directory and what the process that filled it reported."""
    directory = tmp_path_factory.mktemp("warm") / "cache"
    return directory, train(directory)


def test_switched_off_in_the_environment_nothing_is_compiled(reference: tuple[Path, Any], tmp_path: Path) -> None:
    found = train(tmp_path / "cache", AUTOJIT_DISABLE="1")
    assert found["misses"] == found["hits"] == 0
    assert not found["loaded_llvm"]
    assert not (tmp_path / "cache").exists()


def copy_of(directory: Path, target: Path) -> Path:
    target.mkdir(mode=0o700)
    for entry in directory.iterdir():
        (target / entry.name).write_bytes(entry.read_bytes())
        (target / entry.name).chmod(0o600)
    return target


def test_a_second_process_compiles_nothing_and_never_loads_llvm(reference: tuple[Path, Any]) -> None:
    directory, first = reference
    assert first["misses"] > 0
    second = train(directory)
    assert second["misses"] == 0
    assert second["hits"] > 0
    assert not second["loaded_llvm"]
    assert second["bits"] == first["bits"]
    assert second["warnings"] == []


def flip(entries: list[Path], rng: np.random.Generator) -> None:
    for path in entries:
        data = bytearray(path.read_bytes())
        data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
        path.write_bytes(data)


def truncate(entries: list[Path], rng: np.random.Generator) -> None:
    for path in entries:
        data = path.read_bytes()
        path.write_bytes(data[: int(rng.integers(len(data)))])


def exchange(entries: list[Path], rng: np.random.Generator) -> None:
    """Sound entries under each other's names: what a foreign or renamed file looks like."""
    contents = [path.read_bytes() for path in entries]
    for path, content in zip(entries, contents[1:] + contents[:1], strict=True):
        path.write_bytes(content)


def overwrite(entries: list[Path], rng: np.random.Generator) -> None:
    for path in entries:
        path.write_bytes(b"\x7fELF" + rng.bytes(500))


def test_damaged_entries_are_rebuilt_and_results_stay(
    reference: tuple[Path, Any], tmp_path: Path, rng: np.random.Generator
) -> None:
    directory = copy_of(reference[0], tmp_path / "cache")
    entries = sorted(directory.glob("*.ajo"))
    assert len(entries) >= 8
    for first, damage in enumerate((flip, truncate, exchange, overwrite)):
        damage(entries[first::4], rng)
    found = train(directory)
    assert found["bits"] == reference[1]["bits"]
    assert found["rebuilt"] == found["misses"] == reference[1]["misses"]
    healed = train(directory)
    assert healed["misses"] == 0
    assert healed["bits"] == reference[1]["bits"]


def forbid_writing() -> None:
    """Every write to a file fails, as on a full disk (EFBIG instead of ENOSPC)."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def test_a_full_disk_warns_once_and_goes_on(reference: tuple[Path, Any], tmp_path: Path) -> None:
    found = train(tmp_path / "cache", prepare=forbid_writing)
    assert len(found["warnings"]) == 1
    assert "AUTOJIT_CACHE_DIR" in found["warnings"][0]
    assert found["bits"] == reference[1]["bits"]


def test_a_directory_that_cannot_be_made_warns_once_and_goes_on(reference: tuple[Path, Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    found = train(tmp_path / "file" / "cache")
    assert len(found["warnings"]) == 1
    assert found["bits"] == reference[1]["bits"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_directory_warns_once_and_goes_on(reference: tuple[Path, Any], tmp_path: Path) -> None:
    directory = tmp_path / "cache"
    directory.mkdir(mode=0o500)
    found = train(directory)
    assert len(found["warnings"]) == 1
    assert found["bits"] == reference[1]["bits"]


def test_the_cache_can_be_emptied_exported_and_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOJIT_CACHE_DIR", str(tmp_path / "cache"))
    train(aj.cache.directory())
    archive = tmp_path / "kernels.ajarc"
    count = aj.cache.export(archive)
    assert count > 0
    aj.cache.clear()
    assert aj.cache.export(tmp_path / "empty.ajarc") == 0
    assert aj.cache.load(archive) == count
    assert train(aj.cache.directory())["misses"] == 0


def test_stats_count_what_a_step_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOJIT_CACHE_DIR", str(tmp_path / "cache"))
    run = PROGRAMS["black_scholes"].build("tiny")
    sizes = [aj.cache.stats()]
    step = aj.jit(lambda *market: run.step(*(m * 1.0625 for m in market)))  # a kernel no other test has
    for _ in range(3):
        step(*run.args)
        sizes.append(aj.cache.stats())
    first, *later = (after - before for before, after in pairwise(sizes))
    assert first.misses > 0
    assert first.rebuilt == 0
    assert all(change == aj.cache.CacheStats() for change in later), "only a capture asks for objects"
