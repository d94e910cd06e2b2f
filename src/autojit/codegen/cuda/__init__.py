"""Code for NVIDIA GPUs: what a schedule computes as grids of threads, in LLVM's text, and how it is launched."""
