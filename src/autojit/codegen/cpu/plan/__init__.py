"""The native code that walks a plan, and the records that it reads."""
