"""Matrix products of floats, compiled once per machine."""
