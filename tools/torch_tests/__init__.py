"""torch's own tests, run through autojit and counted: ``python -m tools.torch_tests SOURCES``."""
