"""Passes as objects, and what runs several: ``pass_base`` and ``pass_manager``."""
