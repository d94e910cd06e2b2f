"""Worker processes of the DataLoader: the batches of none, and nothing left behind however they end."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.utils import data

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")  # from Python 3.12 on, of any fork


class Items(data.Dataset[Any]):
    """Every kind of thing that a batch can have in it."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __getitem__(self, index: int) -> Any:
        return {
            "x": aj.full((3, 4), float(index), dtype=aj.bfloat16).mT,
            "large": np.full((40, 50), index, np.int16),
            "empty": aj.zeros(0, 2),
            "text": "a" * index,
            "number": index / 2,
        }

    def __len__(self) -> int:
        return self.size


def batches_of(loader: Any) -> list[Any]:
    return [
        {name: value.tolist() if isinstance(value, aj.Tensor) else value for name, value in batch.items()}
        for batch in loader
    ]


@pytest.mark.parametrize("options", [{}, {"persistent_workers": True}, {"prefetch_factor": 100}, {"in_order": False}])
def test_processes_give_the_batches_of_none(options: dict[str, Any]) -> None:
    wanted = batches_of(data.DataLoader(Items(11), batch_size=2))
    loader = data.DataLoader(Items(11), batch_size=2, num_workers=3, **options)
    for _ in range(2):
        found = batches_of(loader)
        if "in_order" in options:
            found.sort(key=lambda batch: batch["number"])
        assert found == wanted
    first = next(iter(loader))
    assert first["x"].dtype is aj.bfloat16
    before = int(first["large"][1, 0, 0])  # which batch is the first, nobody says of those out of order
    first["large"] += 1  # memory of its own, which can be written
    assert first["large"][1, 0, 0] == before + 1


class Told(data.Dataset[int]):
    def __getitem__(self, index: int) -> Any:
        info = data.get_worker_info()
        assert info is not None
        return (
            info.id, info.num_workers, info.seed, os.getpid(), aj.initial_seed(), random.random(), np.random.random(),
            aj.get_num_threads(),
        )  # fmt: skip

    def __len__(self) -> int:
        return 6


def told(**options: Any) -> list[tuple[Any, ...]]:
    generator = aj.Generator().manual_seed(3)
    loader = data.DataLoader(
        Told(), batch_size=None, num_workers=2, collate_fn=lambda x: x, generator=generator, **options
    )
    return list(loader)


def test_a_worker_knows_itself_and_has_a_seed_of_its_own() -> None:
    first, again = told(), told()
    ids, counts, seeds, processes, initial, ours, numpys, threads = map(list, zip(*first, strict=True))
    assert ids == [0, 1] * 3 and set(counts) == {2} and set(threads) == {1}
    assert seeds[1] == seeds[0] + 1 and initial == seeds
    assert len(set(processes)) == 2 and os.getpid() not in processes
    assert len({*ours, *numpys}) == 12
    assert [row[4:7] for row in first] == [row[4:7] for row in again]
    assert data.get_worker_info() is None


class Count(data.IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        info = data.get_worker_info()
        assert info is not None
        return iter(range(info.id, 11, info.num_workers))


@pytest.mark.parametrize("persistent", [False, True])
def test_streams_are_shared_out(persistent: bool) -> None:
    loader = data.DataLoader(Count(), batch_size=2, num_workers=3, persistent_workers=persistent)
    passes = [[batch.tolist() for batch in loader] for _ in range(2)]
    assert passes[0] == passes[1]
    assert sorted(n for batch in passes[0] for n in batch) == list(range(11))


class Faulty(data.Dataset[int]):
    def __init__(self, error: Exception) -> None:
        self.error = error

    def __getitem__(self, index: int) -> int:
        if index == 5:
            raise self.error
        return index

    def __len__(self) -> int:
        return 8


class TwoArguments(Exception):
    def __init__(self, one: int, other: int) -> None:
        super().__init__(one, other)


@pytest.mark.parametrize("error", [KeyError("five"), ValueError("five"), TwoArguments(5, 5), StopIteration("five")])
def test_an_error_has_the_samples_number_and_the_workers_traceback(error: Exception) -> None:
    kind = type(error) if isinstance(error, KeyError | ValueError) else RuntimeError
    iterator = iter(data.DataLoader(Faulty(error), batch_size=2, num_workers=2))
    assert [next(iterator).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(kind, match=r"(?s)DataLoader worker process 0.*raise self\.error.*in sample 5") as caught:
        next(iterator)
    assert type(error).__name__ in str(caught.value) and "\n" in str(caught.value)
    assert next(iterator).tolist() == [6, 7]  # the pass goes on, as in torch


def test_an_error_without_workers_has_the_samples_number() -> None:
    with pytest.raises(ValueError, match="five") as caught:
        list(data.DataLoader(Faulty(ValueError("five")), batch_size=2))
    assert any("sample 5" in note for note in caught.value.__notes__)


def refuse(place: int) -> None:
    raise OSError(f"no disk for {place}")


def test_an_error_of_the_init_function_is_raised() -> None:
    with pytest.raises(OSError, match=r"(?s)worker_init_fn.*no disk for 0"):
        next(iter(data.DataLoader(Items(4), num_workers=1, worker_init_fn=refuse)))


class Deadly(data.Dataset[int]):
    def __getitem__(self, index: int) -> int:
        if index == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        if index == 6:
            time.sleep(60)
        return index

    def __len__(self) -> int:
        return 8


def test_a_killed_worker_and_a_slow_one_are_told_and_the_others_end() -> None:
    iterator = iter(data.DataLoader(Deadly(), batch_size=None, num_workers=2))
    with pytest.raises(RuntimeError, match=r"DataLoader worker \(pid\(s\) \d+\) exited unexpectedly: \d+ is killed by"):
        list(iterator)
    slow = iter(data.DataLoader(data.Subset(Deadly(), [0, 6, 1]), batch_size=None, num_workers=2, timeout=0.3))
    assert next(slow) == 0
    with pytest.raises(RuntimeError, match=r"timed out after 0\.3 seconds"):
        next(slow)


def test_what_cannot_be_sent_is_told() -> None:
    loader = data.DataLoader(Items(2), num_workers=1, collate_fn=lambda items: lambda: items)
    with pytest.raises(Exception, match=r"sending a batch from DataLoader worker process 0"):
        next(iter(loader))


PROGRAM = """
import os, signal, sys
import autojit as aj
from autojit.utils import data

class Large(data.Dataset):
    def __getitem__(self, index):
        return aj.zeros(1 << 18), os.getpid()
    def __len__(self):
        return 100

if __name__ == "__main__":
    how, method = sys.argv[1:]
    count = 2 if method == "fork" else 1
    options = {"num_workers": count, "persistent_workers": True, "multiprocessing_context": method}
    loaders = [data.DataLoader(Large(), **options) for _ in range(count)]
    iterators = [iter(loader) for loader in loaders]
    print(*{int(next(it)[1]) for it in iterators for _ in range(2)}, flush=True)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "closed":
        iterators[0].close()
    if how == "raises":
        raise SystemExit(3)
"""


def is_alive(process: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc and /dev/shm, which Linux has")
@pytest.mark.parametrize(("how", "method"), [("killed", "fork"), ("closed", "fork"), ("raises", "spawn")])
def test_nothing_is_left_behind(how: str, method: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    before = set(os.listdir("/dev/shm"))
    done = subprocess.run([sys.executable, str(program), how, method], capture_output=True, text=True, timeout=600)
    workers = [int(number) for number in done.stdout.split()]
    assert len(workers) == {"fork": 4, "spawn": 1}[method], done.stderr
    until = time.monotonic() + 60
    while any(map(is_alive, workers)) and time.monotonic() < until:
        time.sleep(0.02)
    assert not [number for number in workers if is_alive(number)]
    assert not [name for name in set(os.listdir("/dev/shm")) - before if "autojit" in name or name.startswith("psm_")]


def test_an_abandoned_pass_ends_its_workers_and_keeps_the_batches() -> None:
    iterator = iter(data.DataLoader(Items(100), batch_size=2, num_workers=2))
    kept = [next(iterator) for _ in range(3)]
    workers = [worker.process.pid for worker in iterator._processes.workers]  # type: ignore[attr-defined]
    del iterator
    assert not any(map(is_alive, workers))
    assert [int(batch["large"][0, 0, 0]) for batch in kept] == [0, 2, 4]
    assert len(os.listdir("/proc/self/fd")) < 200 if sys.platform == "linux" else True


def test_options_are_refused_in_torchs_words() -> None:
    for options, message in (
        ({"persistent_workers": True}, "persistent_workers option needs num_workers > 0"),
        ({"multiprocessing_context": "fork"}, "can only be used with multi-process loading"),
        ({"multiprocessing_context": "no", "num_workers": 1}, "should specify a valid start method"),
    ):
        with pytest.raises(ValueError, match=message):
            data.DataLoader(Items(3), **options)
    with pytest.raises(TypeError, match="valid context object"):
        data.DataLoader(Items(3), num_workers=1, multiprocessing_context=3)


def test_processes_of_a_pass_can_be_waited_for_after_it() -> None:
    batches: Any = iter(data.DataLoader(data.TensorDataset(aj.arange(4)), batch_size=2, num_workers=1))
    workers = batches._workers
    assert len(list(batches)) == 2
    for worker in workers:
        worker.join(10)
        assert not worker.is_alive() and worker.exitcode == 0
