"""Discrete Fourier transforms with torch.fft's names; eager through numpy.fft, in steps as calls of the same ops."""

from autojit.fft.many_axes import fft2, fftn, hfft2, hfftn, ifft2, ifftn, ihfft2, ihfftn, irfft2, irfftn, rfft2, rfftn
from autojit.fft.one_axis import fft, hfft, ifft, ihfft, irfft, rfft
from autojit.fft.sample_points import fftfreq, fftshift, ifftshift, rfftfreq
from autojit.functions.argument_errors import name_arguments_in_errors

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft", "ifft2", "ifftn",
    "ifftshift", "ihfft", "ihfft2", "ihfftn", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip

name_arguments_in_errors(globals(), __all__)
