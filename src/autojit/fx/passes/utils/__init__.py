"""What passes over symbolic graphs are written with: ``matcher_utils`` finds a pattern in a graph."""
