"""LLVM IR text to code in the process, and its running: see README.md."""
