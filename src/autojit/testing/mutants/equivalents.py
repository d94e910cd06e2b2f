"""Mutants that mean the same as what they change, each with its reason: they are not holes and count for nothing.

A row names the file, the function and the change as the report prints it. Whole classes are left out by the operators
of ``mutations.py`` instead, and a condition that turns out to be implied by others is taken out of the source.
"""

from __future__ import annotations

from autojit.testing.mutants.targets import Target

EQUIVALENT: dict[tuple[str, str, str], str] = {
    (
        "ops/elementwise_arithmetic.py", "SquaredDeviation.lower", "emit.sub(x, mean) -> emit.sub(mean, x)",
    ): "the difference is squared, and its sign is exact",
    (
        "transforms/adjoint.py", "accumulate",
        "x_bar is not None and x_bar.spec is not spec -> x_bar is not None",
    ): "the check of a type that is the very type wanted finds nothing",
    (
        "jit/trace_arguments.py", "TraceArguments.moved",
        "isinstance(t, Storage) and t.version != version -> isinstance(t, Storage)",
    ): "a version that has moved by nothing is counted on by nothing",
    (
        "jit/trace_memory.py", "_begun_with", "0 -> 1",
    ): "no memory is filled with the number of an array without elements; of one with elements it is all the same",
    (
        "jit/instrumented_code.py", "_Writer.call", "_VERSION < (3, 12) -> not _VERSION < (3, 12)",
    ): "PRECALL unpacks bound methods in advance; CALL unpacks them as well",
    (
        "jit/instrumented_code.py", "_Writer.call", "if _VERSION < (3, 12): -> if not _VERSION < (3, 12):",
    ): "PRECALL unpacks bound methods in advance; CALL unpacks them as well",
}  # fmt: skip


def reason_of(target: Target) -> str:
    """Why a mutant means the same, "" where nothing is known."""
    return EQUIVALENT.get((target.path, target.mutation.function, target.mutation.text), "")
