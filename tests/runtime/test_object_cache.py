"""The object cache: right bytes or none, whatever happens to the files."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from autojit.codegen.target import host_target
from autojit.core.errors import ArgumentError, CompileError
from autojit.runtime import object_cache
from autojit.runtime.object_cache import ObjectCache, default_cache, object_key

from .programs import ADD_ONE, run_python

PAYLOAD = bytes(range(256)) * 8


def key_of(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


@pytest.fixture
def cache(tmp_path: Path) -> ObjectCache:
    return ObjectCache(tmp_path / "cache")


def entry_path(cache: ObjectCache, number: int) -> Path:
    return Path(cache.directory) / f"{key_of(number)}.ajo"


def test_what_was_put_comes_back(cache: ObjectCache) -> None:
    assert cache.get_blob(key_of(1)) is None
    cache.put_blob(key_of(1), PAYLOAD)
    assert cache.get_blob(key_of(1)) == PAYLOAD
    assert ObjectCache(cache.directory).get_blob(key_of(1)) == PAYLOAD
    assert (cache.stats().hits, cache.stats().misses, cache.stats().stored) == (1, 1, 1)


def test_directory_and_files_are_private(cache: ObjectCache) -> None:
    cache.put_blob(key_of(1), PAYLOAD)
    assert stat.S_IMODE(Path(cache.directory).stat().st_mode) == 0o700
    assert stat.S_IMODE(entry_path(cache, 1).stat().st_mode) == 0o600


def test_object_is_compiled_once(cache: ObjectCache) -> None:
    first = cache.object(ADD_ONE, host_target())
    assert cache.object(ADD_ONE, host_target()) == first
    assert (cache.stats().misses, cache.stats().hits) == (1, 1)


def test_several_objects_come_in_order_and_once(cache: ObjectCache) -> None:
    texts = [ADD_ONE, ADD_ONE.replace("1.0", "2.0"), ADD_ONE]
    first = cache.objects(texts, host_target())
    assert first == [cache.object(text, host_target()) for text in texts]
    assert cache.objects(texts, host_target()) == first
    assert cache.stats().stored == 2


def test_key_depends_on_all_that_shapes_the_object(monkeypatch: pytest.MonkeyPatch) -> None:
    target = host_target()
    keys = {object_key(ADD_ONE, target), object_key(ADD_ONE + "\n", target), object_key(ADD_ONE, target, 1)}
    keys.add(object_key(ADD_ONE, target.limited_to(16)))
    monkeypatch.setattr(object_cache, "EMITTER_VERSION", -1)
    keys.add(object_key(ADD_ONE, target))
    assert len(keys) == 5


def test_text_that_does_not_compile_is_not_stored(
    cache: ObjectCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where the rejected text is kept
    for _ in range(2):
        with pytest.raises(CompileError):
            cache.object("not a module", host_target())
    assert cache.stats().stored == 0


def test_threads_share_one_build(cache: ObjectCache) -> None:
    built: list[int] = []

    def build() -> bytes:
        built.append(1)
        time.sleep(0.05)
        return PAYLOAD

    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(cache.blob(key_of(1), build))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [PAYLOAD] * 8
    assert len(built) == 1


def damage(rng: np.random.Generator, data: bytes) -> bytes:
    """Cut short, lengthened, bits flipped, or a run overwritten."""
    changed = bytearray(data)
    match int(rng.integers(4)):
        case 0:
            return bytes(changed[: int(rng.integers(len(changed)))])
        case 1:
            return bytes(changed) + rng.bytes(int(rng.integers(1, 64)))
        case 2:
            for _ in range(int(rng.integers(1, 5))):
                changed[int(rng.integers(len(changed)))] ^= 1 << int(rng.integers(8))
        case _:
            start = int(rng.integers(len(changed)))
            changed[start : start + 32] = rng.bytes(len(changed[start : start + 32]))
    return bytes(changed)


@pytest.mark.parametrize("rounds", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_damaged_entries_are_rebuilt(cache: ObjectCache, rng: np.random.Generator, rounds: int) -> None:
    cache.put_blob(key_of(1), PAYLOAD)
    path = entry_path(cache, 1)
    sound = path.read_bytes()
    refused = 0
    for _ in range(rounds):
        broken = damage(rng, sound)
        path.write_bytes(broken)
        refused += broken != sound
        assert cache.blob(key_of(1), lambda: PAYLOAD) == PAYLOAD
    assert cache.stats().rebuilt == refused


def test_an_entry_under_another_name_is_refused(cache: ObjectCache) -> None:
    cache.put_blob(key_of(1), PAYLOAD)
    entry_path(cache, 1).rename(entry_path(cache, 2))
    assert cache.get_blob(key_of(2)) is None
    assert cache.stats().rebuilt == 1


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_a_directory_others_can_write_is_refused(cache: ObjectCache, mode: int) -> None:
    cache.put_blob(key_of(1), PAYLOAD)
    Path(cache.directory).chmod(mode)
    with pytest.warns(RuntimeWarning, match="others may write"):
        assert cache.get_blob(key_of(1)) is None
    cache.put_blob(key_of(2), PAYLOAD)  # warns once only
    assert not entry_path(cache, 2).exists()
    Path(cache.directory).chmod(0o700)


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_an_entry_others_can_write_is_refused(cache: ObjectCache, mode: int) -> None:
    cache.put_blob(key_of(1), PAYLOAD)
    entry_path(cache, 1).chmod(mode)
    with pytest.warns(RuntimeWarning, match="open to others"):
        assert cache.get_blob(key_of(1)) is None


def test_links_are_not_followed(cache: ObjectCache, tmp_path: Path) -> None:
    cache.put_blob(key_of(1), PAYLOAD)
    moved = tmp_path / "elsewhere"
    entry_path(cache, 1).rename(moved)
    entry_path(cache, 1).symlink_to(moved)
    with pytest.warns(RuntimeWarning):
        assert cache.get_blob(key_of(1)) is None
    linked = ObjectCache(tmp_path / "linked")
    Path(linked.directory).symlink_to(cache.directory)
    with pytest.warns(RuntimeWarning, match="links are not followed"):
        assert linked.get_blob(key_of(1)) is None


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a file away")
def test_a_foreign_owner_is_refused(cache: ObjectCache) -> None:
    cache.put_blob(key_of(1), PAYLOAD)
    os.chown(entry_path(cache, 1), 12345, -1)
    with pytest.warns(RuntimeWarning, match="somebody else"):
        assert cache.get_blob(key_of(1)) is None


KINDS: dict[str, Callable[[str], object]] = {
    "pipe": lambda path: os.mkfifo(path, 0o600),
    "directory": lambda path: os.mkdir(path, 0o700),
    "socket": lambda path: _bind(path),
    "link to a pipe": lambda path: (os.mkfifo(f"{path}.pipe", 0o600), os.symlink(f"{path}.pipe", path)),
    "link to a device": lambda path: os.symlink("/dev/zero", path),
    "link to a directory": lambda path: os.symlink("/", path),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_no_entry_and_blocks_nobody(kind: str) -> None:
    with tempfile.TemporaryDirectory() as short:
        cache = ObjectCache(os.path.join(short, "c"))
        cache.put_blob(key_of(2), PAYLOAD)
        KINDS[kind](cache._path(key_of(1)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            assert cache.blob(key_of(1), lambda: PAYLOAD) == PAYLOAD
            assert cache.get_blob(key_of(2)) == PAYLOAD
            cache.export(os.path.join(short, "archive"))
            cache.clear()


def _bind(path: str) -> None:
    """A socket in a place whose name is too long for one: bound elsewhere and moved."""
    with tempfile.TemporaryDirectory(dir="/tmp") as short, socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.join(short, "s"))
        os.rename(os.path.join(short, "s"), path)


def test_a_disk_that_takes_nothing_warns_once_and_goes_on(cache: ObjectCache, monkeypatch: pytest.MonkeyPatch) -> None:
    class FullFile(io.FileIO):
        def write(self, _: object) -> int:  # type: ignore[override]
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(object_cache, "open", lambda handle, *_, **__: FullFile(handle, "wb"), raising=False)
    with pytest.warns(RuntimeWarning, match="No space left") as caught:
        for number in range(3):
            assert cache.blob(key_of(number), lambda: PAYLOAD) == PAYLOAD
    assert len(caught) == 1


def test_a_directory_that_cannot_be_made_warns_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = ObjectCache(tmp_path / "file" / "cache")
    with pytest.warns(RuntimeWarning, match="is not used"):
        assert cache.blob(key_of(1), lambda: PAYLOAD) == PAYLOAD


def test_the_least_recently_used_entries_go_first(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "cache", limit_bytes=10 * len(PAYLOAD))
    for number in range(9):
        cache.put_blob(key_of(number), PAYLOAD)
        os.utime(entry_path(cache, number), (1e9 + number, 1e9 + number))
    assert cache.get_blob(key_of(0)) == PAYLOAD  # a hit on an old entry renews it
    for number in range(9, 12):
        cache.put_blob(key_of(number), PAYLOAD)
    sizes = [path.stat().st_size for path in Path(cache.directory).iterdir()]
    assert sum(sizes) <= cache.limit_bytes
    assert cache.get_blob(key_of(0)) == PAYLOAD
    assert cache.get_blob(key_of(1)) is None
    assert cache.stats().evicted > 0


def test_stale_temporaries_are_swept(cache: ObjectCache) -> None:
    cache.put_blob(key_of(1), PAYLOAD)
    stale, fresh = Path(cache.directory) / ".tmp-stale", Path(cache.directory) / ".tmp-fresh"
    stale.touch()
    fresh.touch()
    os.utime(stale, (1e9, 1e9))
    ObjectCache(cache.directory).put_blob(key_of(2), PAYLOAD)
    assert not stale.exists()
    assert fresh.exists()


def test_clear_forgets_everything(cache: ObjectCache) -> None:
    cache.put_blob(key_of(1), PAYLOAD)
    cache.clear()
    assert cache.get_blob(key_of(1)) is None


def test_an_export_loads_elsewhere(cache: ObjectCache, tmp_path: Path) -> None:
    for number in range(5):
        cache.put_blob(key_of(number), PAYLOAD + bytes([number]))
    entry_path(cache, 4).write_bytes(b"damaged")
    assert cache.export(tmp_path / "archive") == 4
    other = ObjectCache(tmp_path / "other")
    assert other.load(tmp_path / "archive") == 4
    assert [other.get_blob(key_of(n)) for n in range(4)] == [PAYLOAD + bytes([n]) for n in range(4)]


def test_a_damaged_archive_loads_nothing_wrong(cache: ObjectCache, tmp_path: Path, rng: np.random.Generator) -> None:
    for number in range(3):
        cache.put_blob(key_of(number), PAYLOAD)
    cache.export(tmp_path / "archive")
    sound = (tmp_path / "archive").read_bytes()
    for trial in range(100):
        other = ObjectCache(tmp_path / f"other{trial}")
        (tmp_path / "broken").write_bytes(damage(rng, sound))
        with suppress(ArgumentError):
            other.load(tmp_path / "broken")
        assert all(other.get_blob(key_of(number)) in (None, PAYLOAD) for number in range(3))


def test_impossible_keys_are_refused(cache: ObjectCache) -> None:
    with pytest.raises(ArgumentError, match="64 lower-case hex"):
        cache.get_blob("../../etc/passwd")


def test_eight_processes_share_a_directory(tmp_path: Path) -> None:
    code = f"""
    import hashlib, random, sys
    from pathlib import Path
    from autojit.runtime.object_cache import ObjectCache
    cache = ObjectCache(Path({str(tmp_path / "cache")!r}), limit_bytes=40000)
    numbers = [n % 40 for n in range(200)]
    random.Random(int(sys.argv[1])).shuffle(numbers)
    for number in numbers:
        key = hashlib.sha256(str(number).encode()).hexdigest()
        payload = bytes([number]) * (500 + 40 * number)
        assert cache.blob(key, lambda: payload) == payload
        if number == 7:
            cache.clear()
    """
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")}
    body = "\n".join(line[4:] for line in code.splitlines())
    workers = [subprocess.Popen([sys.executable, "-W", "error", "-c", body, str(n)], env=environment) for n in range(8)]
    assert [worker.wait(120) for worker in workers] == [0] * 8


@pytest.mark.parametrize("kills", [4, pytest.param(200, marks=pytest.mark.slow)])
def test_a_killed_writer_leaves_no_wrong_entry(tmp_path: Path, kills: int) -> None:
    code = f"""
import hashlib, itertools
from pathlib import Path
from autojit.runtime.object_cache import ObjectCache
cache = ObjectCache(Path({str(tmp_path / "cache")!r}))
print("ready", flush=True)
for number in itertools.count():
    cache.put_blob(hashlib.sha256(str(number % 50).encode()).hexdigest(), bytes([number % 50]) * 20000)
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")}
    for trial in range(kills):
        worker = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE)
        assert worker.stdout is not None
        worker.stdout.readline()
        time.sleep(0.005 * (trial % 8))
        worker.send_signal(signal.SIGKILL)
        worker.wait(120)
        worker.stdout.close()
    cache = ObjectCache(tmp_path / "cache")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [cache.get_blob(key_of(number)) for number in range(50)]
    assert all(blob in (None, bytes([number]) * 20000) for number, blob in enumerate(found))
    assert cache.stats().rebuilt == 0


def test_the_directory_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOJIT_CACHE_DIR", str(tmp_path / "mine"))
    assert default_cache().directory == str(tmp_path / "mine")
    monkeypatch.delenv("AUTOJIT_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_cache().directory == str(tmp_path / "xdg" / "autojit")


def test_a_warm_process_never_loads_llvm(tmp_path: Path) -> None:
    code = """
    import sys
    import numpy as np
    from autojit.runtime.executable import Executable, OutputSpec
    from autojit.runtime.loader import load
    from programs import ADD_ONE, compiled
    step = Executable(load(compiled(ADD_ONE)), 1, [OutputSpec((16,), np.dtype("f4"))])
    assert (step.run([np.arange(16, dtype="f4")])[0] == np.arange(1, 17)).all()
    print("llvmlite.binding" in sys.modules)
    """
    loaded = [run_python(code, AUTOJIT_CACHE_DIR=str(tmp_path / "cache")).strip() for _ in range(2)]
    assert loaded == ["True", "False"]
