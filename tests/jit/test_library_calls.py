"""What a step does through libraries that nobody observes: nothing is frozen, no effect is lost."""

from __future__ import annotations

import csv
import functools
import heapq
import io
import itertools
import json
import logging
import operator
import os
import pathlib
import queue
import re
import struct
import sys
import threading
import types
import uuid
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from typing import Any

import numpy as np
import pytest

import autojit as aj

Program = Callable[[Any, pathlib.Path], Any]
PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    """``function(jit, folder)`` gives a step of one tensor, or the step and what to look at afterwards."""
    PROGRAMS[function.__name__.strip("_").replace("_", " ")] = function
    return function


def _between(step: Callable[..., Any], change: Callable[[int], Any]) -> Callable[..., Any]:
    count = itertools.count(1)

    def run(x: aj.Tensor) -> aj.Tensor:
        change(next(count))
        return step(x)

    return run


def _numbers() -> Iterator[float]:
    yield from (1.0, 3.0, 2.0, 5.0, 4.0, 7.0)


# ---- what is read


@program
def next_of_an_iterator_bound_before(jit: Any, folder: pathlib.Path) -> Any:
    following = iter([0.5, 0.25, 2.0, 4.0]).__next__
    return jit(lambda x: x * following())


@program
def next_of_a_generator_bound_before(jit: Any, folder: pathlib.Path) -> Any:
    following = _numbers().__next__
    return jit(lambda x: x * following())


@program
def values_sent_to_a_generator(jit: Any, folder: pathlib.Path) -> Any:
    numbers = _numbers()
    next(numbers)
    return jit(lambda x: x * numbers.send(None))


@program
def items_of_a_queue(jit: Any, folder: pathlib.Path) -> Any:
    items: Any = queue.Queue()
    for k in range(9):
        items.put(k)
    return jit(lambda x: x * items.get())


@program
def items_of_a_queue_in_c(jit: Any, folder: pathlib.Path) -> Any:
    items: Any = queue.SimpleQueue()
    for k in range(9):
        items.put(k)
    return jit(lambda x: x * items.get())


@program
def lines_of_a_stream(jit: Any, folder: pathlib.Path) -> Any:
    stream = io.StringIO("1\n2\n3\n4\n")
    return jit(lambda x: x * float(stream.readline()))


@program
def rows_of_a_table(jit: Any, folder: pathlib.Path) -> Any:
    rows = csv.reader(io.StringIO("1\n2\n3\n4\n"))
    return jit(lambda x: x * float(next(rows)[0]))


@program
def text_of_a_file(jit: Any, folder: pathlib.Path) -> Any:
    file = folder / "text"
    return _between(jit(lambda x: x * float(file.read_text())), lambda k: file.write_text(str(k)))


@program
def whether_a_file_exists(jit: Any, folder: pathlib.Path) -> Any:
    file = folder / "text"
    step = jit(lambda x: x * (2 if file.exists() else 3) * (5 if os.path.exists(str(file)) else 7))
    return _between(step, lambda k: file.touch() if k % 2 else file.unlink())


@program
def a_path_made_in_the_step(jit: Any, folder: pathlib.Path) -> Any:
    place = str(folder / "text")
    step = jit(lambda x: x * (2 if pathlib.Path(place).exists() else 3))
    return _between(step, lambda k: k == 3 and pathlib.Path(place).touch())


@program
def names_in_a_folder(jit: Any, folder: pathlib.Path) -> Any:
    return _between(jit(lambda x: x * len(os.listdir(folder))), lambda k: (folder / str(k)).touch())


@program
def an_array_in_a_file(jit: Any, folder: pathlib.Path) -> Any:
    file = folder / "a.npy"
    return _between(jit(lambda x: x * aj.tensor(np.load(file)).sum()), lambda k: np.save(file, np.arange(k) + 1.0))


@program
def the_folder_of_the_process(jit: Any, folder: pathlib.Path) -> Any:
    before = os.getcwd()
    step = jit(lambda x: x * (len(os.getcwd()) + len(str(pathlib.Path.cwd()))))

    def run(x: aj.Tensor) -> aj.Tensor:
        os.chdir(folder if x[0].item() > 2 else before)
        try:
            return step(x)
        finally:
            os.chdir(before)

    return run


@program
def the_name_of_the_thread(jit: Any, folder: pathlib.Path) -> Any:
    thread = threading.current_thread()
    name = thread.name
    step = jit(lambda x: x * len(threading.current_thread().name))

    def run(x: aj.Tensor) -> aj.Tensor:
        thread.name = "a" * int(x[0].item())
        try:
            return step(x)
        finally:
            thread.name = name

    return run


@program
def a_flag_of_threads(jit: Any, folder: pathlib.Path) -> Any:
    flag = threading.Event()
    return _between(jit(lambda x: x * (2 if flag.is_set() else 3)), lambda k: flag.set() if k % 2 else flag.clear())


@program
def how_numpy_takes_errors(jit: Any, folder: pathlib.Path) -> Any:
    step = jit(lambda x: x * len(np.geterr()["divide"]))

    def run(x: aj.Tensor) -> aj.Tensor:
        with np.errstate(divide="warn" if x[0].item() > 2 else "ignore"):
            return step(x)

    return run


@program
def a_bag_of_attributes_read_in_c(jit: Any, folder: pathlib.Path) -> Any:
    bag, read = types.SimpleNamespace(scale=1), operator.attrgetter("scale")
    return _between(jit(lambda x: x * read(bag)), lambda k: setattr(bag, "scale", k))


@program
def bytes_read_in_c(jit: Any, folder: pathlib.Path) -> Any:
    kind, memory = struct.Struct("i"), bytearray(struct.pack("i", 3))
    return _between(jit(lambda x: x * kind.unpack(memory)[0]), lambda k: memory.__setitem__(0, k))


@program
def a_view_of_a_dictionary(jit: Any, folder: pathlib.Path) -> Any:
    table = {"scale": 1.0}
    values, proxy = table.values(), types.MappingProxyType(table)
    return _between(jit(lambda x: x * sum(values) + proxy["scale"]), lambda k: table.update(scale=k))


@program
def a_pattern_and_its_match(jit: Any, folder: pathlib.Path) -> Any:
    pattern, text = re.compile(r"\d+"), {"it": "12"}
    step = jit(lambda x: x * int(pattern.match(text["it"]).group()))
    return _between(step, lambda k: text.update(it=str(k)))


@program
def functions_handed_to_libraries(jit: Any, folder: pathlib.Path) -> Any:
    scale = {"by": 1.0}
    step = jit(lambda x: functools.reduce(lambda a, b: a + b * scale["by"], [x, x * 2, x * 3]))
    return _between(step, lambda k: scale.update(by=k))


@program
def arguments_of_the_process(jit: Any, folder: pathlib.Path) -> Any:
    step = jit(lambda x: x * len(sys.argv))

    def run(x: aj.Tensor) -> aj.Tensor:
        before = list(sys.argv)
        sys.argv[:] = ["a"] * int(x[0].item())
        try:
            return step(x)
        finally:
            sys.argv[:] = before

    return run


# ---- what is changed


@program
def values_put_into_a_queue(jit: Any, folder: pathlib.Path) -> Any:
    items: Any = queue.Queue()

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        items.put(x.sum().item())
        return x * 2

    return step, lambda: list(items.queue)


@program
def text_written(jit: Any, folder: pathlib.Path) -> Any:
    stream = io.StringIO()

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        stream.write("loss ")
        stream.write(str(x.sum().item()))
        return x * 2

    return step, stream.getvalue


@program
def text_written_to_the_output(jit: Any, folder: pathlib.Path) -> Any:
    stream = io.StringIO()

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        sys.stdout.write("once a call")
        return x * 2

    def run(x: aj.Tensor) -> aj.Tensor:
        with redirect_stdout(stream):
            return step(x)

    return run, stream.getvalue


@program
def text_whose_length_is_used(jit: Any, folder: pathlib.Path) -> Any:
    stream = io.StringIO()
    return jit(lambda x: x * stream.write("abc")), stream.getvalue


@program
def rows_written(jit: Any, folder: pathlib.Path) -> Any:
    stream = io.StringIO()
    rows = csv.writer(stream)

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        rows.writerow([x.sum().item(), "a", 2])
        return x * 2

    return step, stream.getvalue


@program
def values_dumped(jit: Any, folder: pathlib.Path) -> Any:
    stream = io.StringIO()

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        json.dump({"loss": x.sum().item(), "k": [1, 2]}, fp=stream)
        return x * 2

    return step, stream.getvalue


@program
def files_made(jit: Any, folder: pathlib.Path) -> Any:
    count = [0]

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        count[0] += 1
        os.makedirs(folder / "deep", exist_ok=True)
        np.save(folder / "deep" / "a.npy", np.ones(2))
        return x * 2

    def run(x: aj.Tensor) -> aj.Tensor:
        y = step(x)
        (folder / "deep" / "a.npy").unlink()
        return y

    return run


@program
def a_flag_set(jit: Any, folder: pathlib.Path) -> Any:
    flag = threading.Event()

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        flag.set()
        return x * 2

    def run(x: aj.Tensor) -> aj.Tensor:
        flag.clear()
        return step(x) * flag.is_set()

    return run


@program
def records_logged(jit: Any, folder: pathlib.Path) -> Any:
    stream = io.StringIO()
    log = logging.getLogger(f"autojit-test-{uuid.uuid4().hex}")
    log.addHandler(logging.StreamHandler(stream))
    log.setLevel(logging.INFO)
    log.propagate = False

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        if log.isEnabledFor(logging.INFO):
            log.info("loss %s", x.sum().item())
        log.debug("never")
        return x * (2 if log.isEnabledFor(logging.DEBUG) else 3)

    return step, stream.getvalue


@program
def a_heap(jit: Any, folder: pathlib.Path) -> Any:
    heap = [3, 5]

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        heapq.heappush(heap, 1)
        return x * heap[0]

    return step, lambda: heap


@program
def appended_by_the_class(jit: Any, folder: pathlib.Path) -> Any:
    found: list[float] = []

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        list.append(found, x.sum().item())
        return x * 2

    return step, lambda: found


@program
def set_past_a_frozen_class(jit: Any, folder: pathlib.Path) -> Any:
    class Counter:
        def __setattr__(self, name: str, value: Any) -> None:
            raise AttributeError(name)

    counter = Counter()
    object.__setattr__(counter, "calls", 0)

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        object.__setattr__(counter, "calls", counter.calls + 1)
        return x * counter.calls

    return step, lambda: counter.calls


@program
def locks_taken(jit: Any, folder: pathlib.Path) -> Any:
    lock = threading.Lock()

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        lock.acquire()
        y = x * 2
        lock.release()
        return y

    return step, lock.locked


@program
def functions_run_by_a_pool(jit: Any, folder: pathlib.Path) -> Any:
    pool, factor = ThreadPoolExecutor(2), [1.0]

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        parts = list(pool.map(lambda k: x * k * factor[0], (1.0, 2.0)))
        return parts[0] + pool.submit(lambda: x * factor[0]).result() + parts[1]

    return _between(step, lambda k: factor.__setitem__(0, float(k)))


@program
def functions_run_by_a_thread(jit: Any, folder: pathlib.Path) -> Any:
    factor = [1.0]

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        found: list[aj.Tensor] = []
        thread = threading.Thread(target=lambda: found.append(x * factor[0]))
        thread.start()
        thread.join()
        return found[0]

    return _between(step, lambda k: factor.__setitem__(0, float(k)))


def _found(make: Program, jit: Any, folder: pathlib.Path) -> Any:
    folder.mkdir()
    made = make(jit, folder)
    step, see = made if isinstance(made, tuple) else (made, lambda: None)
    return [step(aj.full((2,), float(k))).tolist() for k in range(1, 5)], see()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_step_reads_and_changes_at_every_call_what_eager_mode_does(name: str, tmp_path: pathlib.Path) -> None:
    eager = _found(PROGRAMS[name], lambda function: function, tmp_path / "one")
    assert _found(PROGRAMS[name], aj.jit, tmp_path / "two") == eager


# ---- libraries that nobody knows


LIBRARY = '''
class Meter:
    """Keeps a running sum."""

    def __init__(self):
        self.total, self.count, self._limits = 0.0, 0, {"low": 1.0}

    def update(self, value, weight=1):
        self.total += float(value) * weight
        self.count += 1

    def compute(self):
        return self.total / max(self.count, 1)

    @property
    def mean(self):
        return self.compute()

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return self._limits[name]

    def __getitem__(self, name):
        return self._limits[name]


SETTING = 2.0
_calls = []


def log(values, step=None):
    _calls.append((values, step))


def calls():
    return len(_calls)
'''


@pytest.fixture
def library(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module that is installed, as Python sees it."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "autojit_test_library.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "autojit_test_library", raising=False)
    yield __import__("autojit_test_library")
    sys.modules.pop("autojit_test_library", None)


@pytest.mark.parametrize("read", ["compute", "mean", "low", "item", "setting", "calls"])
def test_what_a_library_gives_is_asked_at_every_call(library: Any, read: str) -> None:
    meter = library.Meter()
    reads: dict[str, Callable[[aj.Tensor], aj.Tensor]] = {
        "compute": lambda x: x * meter.compute(),
        "mean": lambda x: x * meter.mean,
        "low": lambda x: x * meter.low,
        "item": lambda x: x * meter["low"],
        "setting": lambda x: x * library.SETTING,
        "calls": lambda x: x * library.calls(),
    }
    function, compiled = reads[read], aj.jit(reads[read])
    for k in range(1, 5):
        meter.update(k * k)
        meter._limits["low"] = library.SETTING = float(k)
        library.log({})
        assert compiled(aj.ones(2)).tolist() == function(aj.ones(2)).tolist()


def test_what_a_library_is_told_it_is_told_at_every_call(library: Any) -> None:
    meter = library.Meter()

    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        loss = x.sum()
        library.log({"loss": loss, "number": loss.item()}, step=3)
        meter.update(loss.item(), weight=2)
        x.mul_(0)
        return loss

    for k in range(1, 4):
        step(aj.full((2,), float(k)))
    assert [(v["loss"].item(), v["number"], s) for v, s in library._calls] == [
        (2.0 * k, 2.0 * k, 3) for k in range(1, 4)
    ]
    assert type(library._calls[0][0]["number"]) is float
    assert (meter.total, meter.count) == (24.0, 3)
    assert step.stats()["captures"] == 1


@pytest.mark.parametrize("how", ["method", "attribute", "item", "function"])
def test_what_is_changed_and_then_read_is_read_as_it_is_then(library: Any, how: str) -> None:
    def run(jit: Any) -> tuple[list[Any], Any]:
        meter = library.Meter()
        library._calls.clear()

        def step(x: aj.Tensor) -> aj.Tensor:
            if how == "function":
                library.log({})
                return x * library.calls()
            meter.update(2.0)
            return x * {"method": meter.compute, "attribute": lambda: meter.mean, "item": lambda: meter["low"]}[how]()

        stepped = jit(step)
        return [(stepped(aj.ones(2)).tolist(), meter.count, len(library._calls)) for _ in range(3)], stepped

    found, step = run(aj.jit)
    assert found == run(lambda f: f)[0]
    assert "ran line by line" in step.explain()


def test_warnings_are_about_the_users_line() -> None:
    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        warnings.warn("mind the step", stacklevel=1)
        return x * 2

    for _ in range(3):
        with pytest.warns(UserWarning, match="mind the step") as found:
            step(aj.ones(2))
        assert [warning.filename for warning in found] == [__file__]


def test_iterators_handed_to_libraries_go_on_from_call_to_call() -> None:
    def run(jit: Any) -> list[Any]:
        numbers = iter(range(20))
        steps = [
            jit(lambda x: x * sum(itertools.islice(numbers, 3))),
            jit(lambda x: x * max(next(numbers), *list(itertools.islice(numbers, 2)))),
            jit(lambda x: x * np.fromiter(itertools.islice(numbers, 2), float).sum()),
        ]
        return [step(aj.ones(3)).tolist() for _ in range(2) for step in steps]

    assert run(aj.jit) == run(lambda f: f)


def test_what_follows_from_its_arguments_costs_no_python() -> None:
    import math

    step = aj.jit(lambda x: x * math.sqrt(4.0) * np.prod(x.shape) * len(re.sub("a", "", "abc")))
    for _ in range(5):
        assert step(aj.ones(2)).tolist() == [8.0, 8.0]
    assert step.stats()["native_calls"] == 4
