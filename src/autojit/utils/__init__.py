"""Utilities beside the tensor API: ``data`` loads batches, ``checkpoint`` computes again what backward needs, ``hooks``
has the handles of hooks, ``dlpack`` lends memory to other libraries.

They are imported on first use.
"""

from autojit.core.lazy_modules import LazyNames as _LazyNames

__getattr__ = _LazyNames(__name__, modules="_pytree checkpoint data dlpack hooks")
