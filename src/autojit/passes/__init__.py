"""Graph -> Graph functions that keep a graph's meaning."""
