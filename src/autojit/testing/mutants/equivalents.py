"""Mutants that mean the same as what they change, each with its reason: they are no holes and count for nothing.

A row names the file, the function and the change as the report prints it. Whole classes are left out by the operators
of ``mutations.py`` instead, and a condition that turns out to be implied by others is taken out of the source.
"""

from __future__ import annotations

from autojit.testing.mutants.targets import Target

EQUIVALENT: dict[tuple[str, str, str], str] = {}


def reason_of(target: Target) -> str:
    """Why a mutant means the same, "" where nothing is known."""
    return EQUIVALENT.get((target.path, target.mutation.function, target.mutation.text), "")
