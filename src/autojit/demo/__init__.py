"""The main job: train on handwritten digits, eager and compiled, and compare. README.md says how to read it."""
