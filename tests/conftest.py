"""What every test shares: an object cache of the run's own, reproducible examples, a seeded generator, ``--slow``."""

from __future__ import annotations

import builtins
import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator

import pytest

# Before NumPy is imported: the reference must not compete for cores with the code under test or the other workers.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("AUTOJIT_KEEP_STEPS", "0")  # tests look at stages that a step which is found leaves out

import hypothesis
import hypothesis.internal.conjecture.providers
import hypothesis.internal.constants_ast
import numpy as np

from autojit.core.config import config
from autojit.functions import overridable
from autojit.tensor.state import state
from tests import devices, quiet_workers, shares

hypothesis.settings.register_profile("reproducible", derandomize=True, deadline=None, max_examples=30, database=None)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=500, print_blob=True)
hypothesis.settings.load_profile("reproducible")

# Literals of all loaded sources would be among what is drawn: other examples after every edit, and with every set of
# files; and reading them takes as long as all the rest of collecting.
hypothesis.internal.conjecture.providers._get_local_constants = hypothesis.internal.constants_ast.Constants

COLLECTED_AFTER = 20_000  # new objects: at Python's own 700 the collector keeps walking what 20,000 tests hold

_OWN_CACHE = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the long campaigns too")
    devices.add_options(parser)
    shares.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Give the run one empty object cache; xdist's workers inherit it, so shared kernels compile once.

    Interrupts are heard also where the shell that began the run ignores them, as in its background jobs.
    """
    gc.set_threshold(COLLECTED_AFTER)
    devices.begin(config)
    config.pluginmanager.register(devices, "devices")
    shares.begin(config)
    config.pluginmanager.register(shares, "shares")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "AUTOJIT_TEST_CACHE" not in os.environ:
        directory = tempfile.mkdtemp(prefix="autojit-tests-")
        os.environ["AUTOJIT_TEST_CACHE"] = directory
        config.stash[_OWN_CACHE] = directory
    os.environ["AUTOJIT_CACHE_DIR"] = os.environ["AUTOJIT_TEST_CACHE"]


def pytest_unconfigure(config: pytest.Config) -> None:
    directory = config.stash.get(_OWN_CACHE, None)
    if directory is not None:
        os.environ.pop("AUTOJIT_TEST_CACHE", None)
        shutil.rmtree(directory, ignore_errors=True)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Only now a worker has the plugin that tells."""
    quiet_workers.begin(session.config)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """What pytest itself keeps for 20,000 tests is left out of every collection from here on."""
    overridable.uninstall()  # a file has made a class that overrides functions
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.DoctestItem) and item.name.rpartition(".")[0] == "autojit":
            for name in vars(builtins):  # examples are programs' code, where ``float`` is Python's
                item.dtest.globs.pop(name, None)
    if config.getoption("--slow"):
        return
    skip = pytest.mark.skip(reason="a long campaign: --slow runs it")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator that draws the same numbers in every run."""
    return np.random.default_rng(0)


@pytest.fixture
def lightly_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """For laws about all ops that hold whatever LLVM makes of their kernels: these compile in a third of the time."""
    monkeypatch.setattr(config, "opt_level", 0)


@pytest.fixture(scope="module", autouse=True)
def what_a_file_leaves_is_not_walked_again() -> Iterator[None]:
    """Compiled steps and caches of earlier files make every collection of a later one longer, up to seconds.

    And where a file has overridden functions, calls take longer ways in later ones.
    """
    yield
    overridable.uninstall()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """While a ``Variable`` lives, a thread records differently, and slower. One in a cycle (a jitted function is one)
    lives until the next collection; one that a collection leaves is kept by something of autojit's, and changes what
    comes after. A hook: what every test has costs ten times as much as a fixture.
    """
    yield
    if state.layers:
        gc.collect()
        assert not state.layers
