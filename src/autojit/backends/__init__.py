"""Vendor libraries: none is used, so each says that it is not available and its switches change nothing.

``cuda`` says whether there are such devices: autojit generates their kernels itself.
"""

from autojit.backends import cuda, cudnn, mkl, mkldnn, mps, openmp

__all__ = ["cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp"]
