"""The vocabulary: every op class and the function that applies it, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autojit.core.lazy_modules import LazyNames as _LazyNames
from autojit.ir.op import Op as _Op
from autojit.ops.composed import *
from autojit.ops.composed_products import *
from autojit.ops.composites_activation import *
from autojit.ops.composites_loss import *
from autojit.ops.composites_pointwise import *
from autojit.ops.composites_reduction import *
from autojit.ops.elementwise_arithmetic import *
from autojit.ops.elementwise_complex import *
from autojit.ops.elementwise_exponential import *
from autojit.ops.elementwise_logic import *
from autojit.ops.elementwise_rounding import *
from autojit.ops.elementwise_selection import *
from autojit.ops.elementwise_special import *
from autojit.ops.elementwise_trigonometric import *
from autojit.ops.indexing import *
from autojit.ops.joining import *
from autojit.ops.matmul import *
from autojit.ops.ordering import *
from autojit.ops.probabilities import *
from autojit.ops.random import *
from autojit.ops.reductions import *
from autojit.ops.reversal import *
from autojit.ops.shape import *
from autojit.ops.sources import *
from autojit.ops.transfers import *
from autojit.ops.views import *

if TYPE_CHECKING:
    from autojit.ops.airy_functions import *
    from autojit.ops.attention import *
    from autojit.ops.bessel_functions import *
    from autojit.ops.collectives import *
    from autojit.ops.composites_normalization import *
    from autojit.ops.control_flow import *
    from autojit.ops.convolution import *
    from autojit.ops.counted_positions import *
    from autojit.ops.data_dependent import *
    from autojit.ops.decompositions import *
    from autojit.ops.definiteness import *
    from autojit.ops.eigenvalues import *
    from autojit.ops.flex_attention import *
    from autojit.ops.fourier import *
    from autojit.ops.fused_arrays import *
    from autojit.ops.host_calls import *
    from autojit.ops.incomplete_gamma import *
    from autojit.ops.indefinite import *
    from autojit.ops.integer_factors import *
    from autojit.ops.labelled_products import *
    from autojit.ops.linalg import *
    from autojit.ops.matrix_exponential import *
    from autojit.ops.matrix_roots import *
    from autojit.ops.native_libraries import *
    from autojit.ops.normal_distribution import *
    from autojit.ops.pseudo_inverse import *
    from autojit.ops.random_positions import *
    from autojit.ops.ranks import *
    from autojit.ops.reflections import *
    from autojit.ops.reinterpret import *
    from autojit.ops.requirements import *
    from autojit.ops.scan_steps import *
    from autojit.ops.scans import *
    from autojit.ops.scattering import *
    from autojit.ops.sorting import *
    from autojit.ops.triangles import *
    from autojit.ops.triangular_factors import *
    from autojit.ops.while_sweeps import *

_OTHERS = [  # those first that more programs use
    "sorting", "data_dependent", "scattering", "scans", "triangles", "labelled_products", "convolution",
    "composites_normalization", "fused_arrays", "formula", "reinterpret", "counted_positions", "random_positions",
    "linalg", "decompositions", "pseudo_inverse", "matrix_exponential", "matrix_roots", "eigenvalues",
    "incomplete_gamma", "fourier", "triangular_factors", "bessel_functions", "normal_distribution", "integer_factors",
    "definiteness", "indefinite", "reflections", "airy_functions", "attention", "control_flow", "scan_steps",
    "while_sweeps", "requirements", "failed_matrices", "host_calls", "flex_attention", "collectives", "ranks",
    "native_libraries",
]  # fmt: skip
__getattr__ = _LazyNames(
    __name__,
    {"aten": "autojit.library.torch_operators"},
    others=" ".join(f"autojit.ops.{module}" for module in _OTHERS),
    listed=True,
)
_Op.registry.others = __getattr__.others
