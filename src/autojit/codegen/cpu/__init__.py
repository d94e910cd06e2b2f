"""Lowering for CPUs: loop nests, matrix products, the plan that runs them."""
