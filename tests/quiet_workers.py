"""What a worker of pytest-xdist need not tell, which is most: of six messages about a test that passes, two are read.

Telling costs more than pytest itself does for a small test, half of it in the controller, beside the workers. Left out
are that a test began and ended, and that setting up and tearing down went well; times (``--durations``), lines for
each test (``-v``) and reports as XML want them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

_UNTOLD = "untold"


class QuietWorker:
    """The plugin of a worker."""

    def __init__(self, interactor: Any) -> None:
        self.send: Callable[..., None] = interactor.sendevent
        interactor.sendevent = self.sendevent

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_to_serializable(self, report: Any) -> dict[str, Any] | None:
        is_untold = isinstance(report, pytest.TestReport) and report.when != "call" and report.passed
        return {_UNTOLD: True} if is_untold and not report.sections else None

    def sendevent(self, name: str, **kwargs: Any) -> None:
        if name not in ("logstart", "logfinish") and not (name == "testreport" and _UNTOLD in kwargs["data"]):
            self.send(name, **kwargs)


def begin(config: pytest.Config) -> None:
    """Let a worker be quiet where nobody asked for more."""
    options = config.option
    if options.verbose > 0 or any(getattr(options, name, None) is not None for name in ("durations", "xmlpath")):
        return
    for plugin in config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "WorkerInteractor":
            config.pluginmanager.register(QuietWorker(plugin), "quiet_worker")
            return
