"""Where the tests' tensors are. `tests/conftest.py` takes from here its options, hooks and fixtures.

- ``--device cuda`` (or ``AUTOJIT_TEST_DEVICE``): every test makes its tensors on ``cuda:0`` unless it says otherwise;
  the device is emulated. What has a meaning on the CPU alone is skipped, with the reason that `cpu_only.txt` gives.
- ``--device second``: the same on the device of `autojit.testing.second_device`.
- ``--device cuda --excluded``: the tests that `cpu_only.txt` excludes, and no others. A line whose tests all pass, or
  that names no test, is an error: the list says what is so, not what was.
- ``--sample N``: about one test of so many, the same ones in every run, and those that are named by their ids.
- the fixture ``device``: a test runs for "cpu" and for "cuda".
- ``-m gpu``: the tests that have tensors on CUDA, on hardware; where there is none they are skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

DEVICES = ("cpu", "second", "cuda")
EXCLUSIONS = Path(__file__).with_name("cpu_only.txt")


def add_options(parser: pytest.Parser) -> None:
    """The options of this file."""
    device = os.environ.get("AUTOJIT_TEST_DEVICE", "cpu")
    parser.addoption("--device", choices=DEVICES, default=device, help="where tensors are made")
    parser.addoption("--sample", type=int, default=1, metavar="N", help="run about one test of N")
    parser.addoption("--excluded", action="store_true", help="with --device cuda: only what is said to need the CPU")


def begin(config: pytest.Config) -> None:
    """Let the device be there before autojit is imported, in children too, and heed the exclusions."""
    if wants_hardware(config):
        config.pluginmanager.register(LostDevices(config), "lost_devices")
    kind = config.getoption("--device")
    if kind != "cpu":
        config.pluginmanager.register(Everywhere(kind), "everywhere")
    if kind != "cuda":
        return
    if not wants_hardware(config):
        os.environ["AUTOJIT_CUDA"] = "emulate"
    config.pluginmanager.register(Exclusions(read_exclusions(), config.getoption("--excluded")), "cpu_only")


def wants_hardware(config: pytest.Config) -> bool:
    """Whether tests with tensors on CUDA are to run on a real device: ``-m gpu``."""
    expression = config.getoption("markexpr") or ""
    return "gpu" in expression.split() and "not gpu" not in expression


class LostDevices:
    """On hardware: a fault takes the device from its process for good, so that the next tests get a new process."""

    def __init__(self, config: pytest.Config) -> None:
        self.is_worker = hasattr(config, "workerinput")
        self.failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """A worker that ends is replaced; the controller then tells of its last test a second time."""
        why = _fault() if nodeid in self.failed and not _missing_device() else ""
        if why and self.is_worker:
            os._exit(1)
        if why:
            pytest.exit(f"the device is lost: {why}; with -n the other tests are run all the same", returncode=1)


def _fault() -> str:
    """What has taken the device from this process; empty if it answers."""
    from autojit.core.errors import DeviceError
    from autojit.runtime.gpu.devices import cuda_device

    try:
        device = cuda_device(0)
        device.use()
        device.synchronize()
    except DeviceError as error:
        return str(error)
    return ""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """``--sample``: which tests are left out follows from their ids alone."""
    every, named = config.getoption("--sample"), [name for name in config.args if "::" in name]
    if every == 1:
        return
    left_out = {
        item
        for item in items
        if crc32(item.nodeid.encode()) % every and not any(item.nodeid.startswith(name) for name in named)
    }
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


@dataclass(eq=False)
class Exclusion:
    """A line of `cpu_only.txt`: ids of tests (a file, a test, a case; ``*`` is any text) and why they need the CPU.

    What is only too slow on an emulated device says so, and is not run to find out whether it fails.
    """

    pattern: str
    reason: str
    seen: set[str] = field(default_factory=set)
    failing: set[str] = field(default_factory=set)

    @property
    def is_slow(self) -> bool:
        return self.reason.startswith("slow: ")

    def matches(self, test_id: str) -> bool:
        literal = self.pattern.replace("[", "[[]")
        whole = test_id.partition("[")[0]
        return any(fnmatchcase(name, literal) for name in (test_id, whole, whole.partition("::")[0]))


def read_exclusions(path: Path = EXCLUSIONS) -> list[Exclusion]:
    """The lines of a file of exclusions; those that begin with # are for its readers."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip() and line[0] != "#"]
    return [Exclusion(*line.split(None, 1)) for line in lines]


@dataclass(eq=False)
class Exclusions:
    """The plugin that skips what needs the CPU; or runs just that, and finds the lines that are not needed."""

    lines: list[Exclusion]
    are_checked: bool

    def line_of(self, test_id: str) -> Exclusion | None:
        return next((line for line in self.lines if line.matches(test_id)), None)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        excluded = {item: line for item in items if (line := self.line_of(item.nodeid)) is not None}
        if self.are_checked:
            excluded = {item: line for item, line in excluded.items() if not line.is_slow}
        for item in items:
            item.add_marker("gpu")
        for item, line in excluded.items():
            mark = pytest.mark.xfail if self.are_checked else pytest.mark.skip
            item.add_marker(mark(reason=line.reason, **({"strict": False} if self.are_checked else {})))
        if self.are_checked:
            config.hook.pytest_deselected(items=[item for item in items if item not in excluded])
            items[:] = list(excluded)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        line = self.line_of(report.nodeid) if self.are_checked else None
        if line is not None:
            line.seen.add(report.nodeid)
            if report.outcome != "passed":
                line.failing.add(report.nodeid)

    def unneeded(self, arguments: list[str]) -> Iterator[str]:
        """The lines, of those that the run's arguments select, without a test that fails."""
        for line in self.lines:
            is_selected = any(line.pattern.startswith(argument.partition("::")[0]) for argument in arguments)
            if is_selected and not line.failing and not line.is_slow:
                yield f"{line.pattern}  {'passes' if line.seen else 'names no test'}"

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        found = list(self.unneeded(session.config.args)) if self.are_checked else []
        if found and not hasattr(session.config, "workerinput"):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            print(f"\nlines of {EXCLUSIONS.name} that are not needed:", *found, sep="\n  ")


@contextmanager
def tensors_on(kind: str) -> Iterator[None]:
    """Inside, tensors are made on a device of a kind, and ``numpy()`` copies them: most tests compare with NumPy's."""
    from autojit.core.device import device, set_default_device, space_at
    from autojit.testing import second_device

    with second_device("second", copies_for_numpy=True) if kind == "second" else _nothing():
        place = device(f"{kind}:0")
        space: Any = space_at(place)
        before, space.copies_for_numpy = space.copies_for_numpy, True
        set_default_device(place)
        try:
            yield
        finally:
            set_default_device(None)
            space.copies_for_numpy = before


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """A test's tensors are here; it runs once for each. On CUDA ``numpy()`` copies."""
    if request.param == "cpu":
        yield "cpu"
        return
    with _cuda(request.config):
        yield "cuda"


@contextmanager
def _cuda(config: pytest.Config) -> Iterator[None]:
    """Inside, there is a CUDA device: a real one if that is wanted, else an emulated one, in this process alone."""
    from autojit.core.device import Device, space_at
    from tests.emulated import emulated_cuda

    with _nothing() if wants_hardware(config) or "AUTOJIT_CUDA" in os.environ else emulated_cuda():
        space: Any = space_at(Device("cuda", 0))
        before, space.copies_for_numpy = space.copies_for_numpy, True
        try:
            yield
        finally:
            space.copies_for_numpy = before


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """``-m gpu``: where there is no device, its tests are skipped and say what is missing."""
    if wants_hardware(item.config) and item.get_closest_marker("gpu") is not None:
        missing = _missing_device()
        if missing:
            pytest.skip(missing)


@cache
def _missing_device() -> str:
    """Why there is no CUDA device on this machine; empty if there is one."""
    from autojit.core.errors import DeviceError
    from autojit.runtime.gpu.devices import require_driver

    try:
        require_driver()
    except DeviceError as error:
        return str(error).splitlines()[0]
    return ""


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """``--device cuda``: what a module of tests makes when it is imported is there, too."""
    is_made = isinstance(collector, pytest.Module) and collector.config.getoption("--device") == "cuda"
    is_missing = is_made and wants_hardware(collector.config) and bool(_missing_device())
    with tensors_on("cuda") if is_made and not is_missing else _nothing():
        return (yield)


class Everywhere:
    """The plugin of ``--device``: where tensors are made, unless a test says otherwise."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    @pytest.fixture(autouse=True)
    def _default_device(self) -> Iterator[None]:
        with tensors_on(self.kind):
            yield
