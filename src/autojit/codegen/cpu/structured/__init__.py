"""Kernels of ops with loops of their own."""
