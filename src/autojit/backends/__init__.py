"""Vendor libraries: none is used, so each says that it is not available and its switches change nothing."""

from autojit.backends import cudnn, mkl, mkldnn

__all__ = ["cudnn", "mkl", "mkldnn"]
