"""Help for writing tests: comparison of tensors, tensors to test with, checks of gradients."""

from autojit.testing.comparison import assert_allclose, assert_close
from autojit.testing.gradients import assert_gradients
from autojit.testing.samples import make_tensor
from autojit.testing.second_device import second_device

__all__ = ["assert_allclose", "assert_close", "assert_gradients", "make_tensor", "second_device"]
