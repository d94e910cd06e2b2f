"""The object cache from a user's side: counts, and a round trip through an archive."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import autojit as aj
from autojit.compiler import compile
from autojit.core.errors import ArgumentError
from autojit.ir import parse_graph
from autojit.runtime import bodies
from autojit.runtime.loaded_texts import LoadedTexts


def fresh_process(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    """As if the process had just started with this cache: nothing is loaded yet."""
    monkeypatch.setenv("AUTOJIT_CACHE_DIR", str(directory))
    monkeypatch.setattr("autojit.runtime.bodies._kernels", LoadedTexts(bodies._loaded))


def run(scale: float) -> aj.cache.CacheStats:
    """Compile and run one kernel of its own; what that asked of the cache."""
    before = aj.cache.stats()
    graph = parse_graph(
        f"(x: f32[3]) {{ c: f32[] = full[value={scale}, dtype=f32, shape=()](); y: f32[3] = mul(x, c); return y }}"
    )
    (found,) = compile(graph).executable.run([np.ones(3, np.float32)])
    np.testing.assert_array_equal(found, np.full(3, scale, np.float32))
    return aj.cache.stats() - before


def test_a_second_process_finds_what_the_first_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh_process(monkeypatch, tmp_path / "a")
    assert aj.cache.directory() == str(tmp_path / "a")
    assert run(1.25).misses > 0
    fresh_process(monkeypatch, tmp_path / "a")
    assert run(1.25) == aj.cache.CacheStats(hits=1)


def test_an_archive_warms_another_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh_process(monkeypatch, tmp_path / "a")
    run(1.5)
    assert aj.cache.export(tmp_path / "archive") > 0
    fresh_process(monkeypatch, tmp_path / "b")
    assert aj.cache.load(tmp_path / "archive") > 0
    assert run(1.5).misses == 0


def test_a_cleared_cache_compiles_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh_process(monkeypatch, tmp_path / "a")
    run(1.75)
    aj.cache.clear()
    fresh_process(monkeypatch, tmp_path / "a")
    assert run(1.75).misses == 1


def test_a_warm_cache_has_what_every_program_needs() -> None:
    """In the cache of the run, whose other tests need the same modules."""
    aj.cache.warm()
    again = aj.cache.warm()
    assert again.hits and not again.misses
    for short in ("f32", "f64"):
        for content in (bodies.gemm_content, bodies.matmul_content):
            before = aj.cache.stats()
            assert content(short)
            assert aj.cache.stats() - before == aj.cache.CacheStats(hits=1)


def test_what_is_no_archive_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh_process(monkeypatch, tmp_path / "a")
    (tmp_path / "file").write_bytes(b"no archive")
    with pytest.raises(ArgumentError):
        aj.cache.load(tmp_path / "file")
