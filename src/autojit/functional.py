"""torch's module of this name: the functions of the top level that PyTorch writes in Python."""

from __future__ import annotations

from autojit.core.lazy_modules import LazyNames

_OF_THE_TOP_LEVEL = """
    atleast_1d atleast_2d atleast_3d block_diag broadcast_shapes broadcast_tensors cartesian_prod cdist
    chain_matmul einsum istft lu meshgrid norm split stft tensordot unique unique_consecutive unravel_index"""

__getattr__ = LazyNames(__name__, dict.fromkeys(_OF_THE_TOP_LEVEL.split(), "autojit") | {"F": "autojit.nn:functional"})
__dir__ = __getattr__.all_names
