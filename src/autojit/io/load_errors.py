"""The errors of files."""

from __future__ import annotations

import pickle

from autojit.core.errors import AutojitError


class LoadError(AutojitError, RuntimeError):
    """A file is damaged, of another format, or would need more than it holds."""


class UnsafeGlobalError(LoadError, pickle.UnpicklingError):
    """A file names a class or function that was not allowed; it was not called."""

    general_fix = "if you trust it: autojit.serialization.add_safe_globals([it])"
