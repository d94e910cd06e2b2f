"""Graph -> Schedule: fusion groups, loop programs, execution order and the memory plan."""
