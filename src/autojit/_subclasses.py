"""torch's module of this name: kinds of tensors that libraries ask for, of which there are none here.

Example:
    >>> import autojit as aj
    >>> isinstance(aj.ones(1), aj._subclasses.FakeTensor)
    False
"""

from __future__ import annotations

from autojit.core.absent_class import WithoutInstances
from autojit.core.lazy_modules import provide as _provide


class _Fake(WithoutInstances):
    what = "fake tensors"
    instead = 'tensors of the device "meta" have shapes and no elements'


class FakeTensor(_Fake):
    """A tensor of torch's compiler without elements."""


class FakeTensorMode(_Fake):
    """Makes them."""


def is_fake(x: object) -> bool:
    """Whether something is a fake tensor: never."""
    return False


_provide("autojit", {"_subclasses.fake_tensor": "_subclasses"})
__all__ = ["FakeTensor", "FakeTensorMode", "is_fake"]
