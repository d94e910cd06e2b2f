"""What `inspect` says of public callables: records show no parameters before their first instance."""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest

import autojit as aj
from autojit.core.records import record

PUBLIC = (
    aj,
    aj.nn,
    aj.nn.functional,
    aj.optim,
    aj.distributions,
    aj.autograd,
    aj.func,
    aj.utils,
    aj.cache,
    aj.io,
    aj.amp,
)


@record
class _Unmade:
    size: int


FIRST = _Unmade.__init__.__code__


def _is_unknown(value: object) -> bool:
    return inspect.isclass(value) and getattr(value.__init__, "__code__", None) is FIRST


@pytest.mark.parametrize("module", PUBLIC, ids=lambda module: module.__name__)
def test_public_classes_show_their_parameters(module: ModuleType) -> None:
    assert _is_unknown(_Unmade)
    names = [name for name in dir(module) if not name.startswith("_")]
    assert [name for name in names if _is_unknown(getattr(module, name, None))] == []
