"""autojit: a tracing compiler with PyTorch's face."""
