"""What checks of derivatives raise and warn of."""

from __future__ import annotations


class GradcheckError(RuntimeError):
    """Analytic and numerical derivatives differ, or a derivative does not keep one of its promises."""


class PrivateNameWarning(UserWarning, FutureWarning):
    """A name is used that torch keeps only for code written when it was not private yet."""


GradcheckError.__module__ = PrivateNameWarning.__module__ = "autojit.autograd.gradcheck"  # as users import them
