"""Functions of the top level, and methods of Tensor, that few programs use, built on nn, linalg and signal."""
