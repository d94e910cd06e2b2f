"""Which kinds of numbers functions refuse although something could be computed from them, as torch does.

Ops say which dtypes they take (``accepts``), which holds in captured steps. NumPy takes more, and composites promote
integers: what stands here is refused in eager mode too. Elementwise functions that every program calls often look at
the dtype themselves (``functions_elementwise``).
"""

from __future__ import annotations

from typing import Any

from autojit.core.errors import UnsupportedDTypeError
from autojit.core.source import here
from autojit.tensor.tensor import Tensor, type_of

_BY_KINDS = {
    "bool int complex": """
        adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d batch_norm celu ctc_loss elu gelu
        glu group_norm hardshrink hardsigmoid hardswish instance_norm layer_norm leaky_relu
        max_unpool1d max_unpool2d max_unpool3d multi_margin_loss multilabel_margin_loss prelu selu cdist""",
    "bool complex": """
        argmax argmin hardtanh isin kthvalue max_pool1d max_pool2d max_pool3d median mvlgamma nanmedian relu6
        threshold topk""",
    "bool int": """
        cholesky cholesky_inverse grid_sample histc logdet matrix_exp mish pinverse polar qr rms_norm softplus svd
        svd_lowrank pca_lowrank vecdot""",
    "int complex": "huber_loss kl_div softshrink",
    "int": """
        binary_cross_entropy_with_logits lerp logsigmoid multilabel_soft_margin_loss quantile silu soft_margin_loss""",
    "complex": """
        airy_ai aminmax argsort bessel_j0 bessel_j1 bessel_y0 bessel_y1 cosine_embedding_loss cosine_similarity
        cummax cummin deg2rad digamma entr erf erfc erfcx erfinv heaviside i0 i0e i1 i1e igamma igammac isneginf
        isposinf lgamma log_ndtr logaddexp2 logit margin_ranking_loss mode modified_bessel_i0 modified_bessel_i1
        modified_bessel_k0 modified_bessel_k1 mse_loss msort nanmean nansum ndtr ndtri pdist rad2deg rrelu
        scaled_modified_bessel_k0 scaled_modified_bessel_k1 signbit smooth_l1_loss sort spherical_bessel_j0 xlog1py
        xlogy zeta""",
}
_KINDS = {"bool": ("bool",), "int": ("int", "uint"), "complex": ("complex",)}
REFUSED: dict[str, frozenset[str]] = {
    name: frozenset(kind for word in kinds.split() for kind in _KINDS[word])
    for kinds, names in _BY_KINDS.items()
    for name in names.split()
}


def refuse_kinds(x: Any, what: str, kinds: frozenset[str]) -> None:
    """NotImplementedError (and RuntimeError) for a tensor of one of the kinds of numbers."""
    if isinstance(x, Tensor):
        dtype = type_of(x).dtype
        if dtype.kind in kinds:
            facts = {"input": x, "at": f"{here()}, calling {what}()"}
            raise UnsupportedDTypeError(f'"{what}" not implemented for {dtype}', facts)
