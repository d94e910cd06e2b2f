"""Loop programs as kernels."""
