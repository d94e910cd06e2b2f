"""Schedule -> LLVM IR text; the scalar rules are shared by all targets."""
