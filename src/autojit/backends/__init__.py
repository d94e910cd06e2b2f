"""Vendor libraries: none is used, so each says that it is not available and its switches change nothing.

``cuda`` says whether there are such devices, ``cpu`` which registers there are: autojit generates kernels itself.
"""

from autojit.backends import cpu, cuda, cudnn, mkl, mkldnn, mps, openmp

__all__ = ["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp"]
