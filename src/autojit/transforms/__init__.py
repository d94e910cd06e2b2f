"""Graph -> Graph that changes meaning: adjoint, jvp, vmap."""
