"""The pytest plugin of autojit: ``@pytest.mark.gradcheck`` checks the gradients of what a test returns.

A marked test returns ``(function, inputs)`` or a list of such pairs, and takes fixtures and parameters like any test.
It runs once per mode, and fails where a derivative disagrees with finite differences::

    @pytest.mark.gradcheck(order=2, modes=("eager", "jit"))
    def test_softplus():
        return lambda x: (1 + x.exp()).log(), aj.randn(3, dtype=aj.float64)

The marker takes the arguments of ``autojit.testing.assert_gradients``. pytest loads this file in every run of every
project, so it is outside the package and imports autojit only when a marked test runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

MARKER = "gradcheck"
MODE = "gradcheck_mode"


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        'gradcheck(order=2, modes=("eager", "jit"), **options): check the derivatives of the (function, inputs) that '
        "the test returns; options as for autojit.testing.assert_gradients",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A marked test becomes one test per mode."""
    marker = metafunc.definition.get_closest_marker(MARKER)
    if marker is not None:
        metafunc.fixturenames.append(MODE)
        metafunc.parametrize(MODE, _arguments(marker)[1])


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Call a marked test and check what it returns."""
    marker = pyfuncitem.get_closest_marker(MARKER)
    if marker is None:
        return None
    order, _, options = _arguments(marker)
    names = pyfuncitem._fixtureinfo.argnames
    cases = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    from autojit.testing import assert_gradients

    for function, inputs in _cases(cases, pyfuncitem.name):
        assert_gradients(function, inputs, order, (str(pyfuncitem.callspec.params[MODE]),), **options)
    return True


def _arguments(marker: pytest.Mark) -> tuple[int, Sequence[str], dict[str, Any]]:
    """(order, modes, further options) of a marker."""

    def read(order: int = 2, modes: Sequence[str] = ("eager", "jit"), **options: Any) -> Any:
        return order, modes.split(",") if isinstance(modes, str) else tuple(modes), options

    try:
        found: tuple[int, Sequence[str], dict[str, Any]] = read(*marker.args, **marker.kwargs)
    except TypeError as error:
        raise pytest.UsageError(f"@pytest.mark.gradcheck: {error}") from error
    return found


def _cases(found: Any, test: str) -> list[tuple[Any, Any]]:
    """What a test returned as a list of (function, inputs)."""
    cases = found if isinstance(found, list) else [found]
    if not cases or not all(isinstance(case, tuple) and len(case) == 2 and callable(case[0]) for case in cases):
        pytest.fail(f"{test} is marked gradcheck: it must return (function, inputs) or a list of such pairs", False)
    return cases
