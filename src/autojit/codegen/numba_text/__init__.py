"""Functions that another compiler printed as LLVM text: read, differentiated, and linked into kernels."""
