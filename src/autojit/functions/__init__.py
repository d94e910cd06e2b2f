"""Functions of the top level, and methods of Tensor, that not every program needs: imported when first named.

``PLACES`` says which module has which names; ``METHODS`` are those that are methods too.
"""

from __future__ import annotations

_MODULES: dict[str, str] = {
    "copies": """alias_copy as_strided_copy ccol_indices_copy col_indices_copy crow_indices_copy detach_copy
        diagonal_copy expand_copy fill indices_copy permute_copy row_indices_copy select_copy slice_copy slice_inverse
        split_copy split_with_sizes_copy squeeze_copy t_copy transpose_copy unbind_copy unfold_copy unsqueeze_copy
        values_copy view_as_complex_copy view_as_real_copy view_copy""",
    "counts": "binomial poisson",
    "factors": "geqrf lu lu_solve lu_unpack orgqr ormqr",
    "frames": "istft stft",
    "histograms": "histogram histogramdd",
    "integers": "frexp gcd gcd_ lcm lcm_ nonzero_static unravel_index",
    "order_statistics": "nanquantile",
    "removed": "eig lstsq matrix_rank solve symeig",
    "segments": "segment_reduce",
    "windows": "bartlett_window blackman_window hamming_window hann_window kaiser_window",
}

_METHODS = """
    eig frexp gcd gcd_ geqrf histogram istft lcm lcm_ lstsq lu lu_solve nanquantile nonzero_static orgqr ormqr
    slice_inverse solve stft symeig"""
METHODS = frozenset(_METHODS.split())

PLACES = {name: f"autojit.functions.{module}" for module, names in _MODULES.items() for name in names.split()}
