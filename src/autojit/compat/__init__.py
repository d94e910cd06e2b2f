"""Namespaces for programs written for PyTorch 0.3 (``v0_3``) and 1.0 (``v1_0``)."""
