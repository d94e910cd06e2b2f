"""Convolutions and their derivatives as kernels."""
