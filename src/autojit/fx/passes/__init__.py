"""Passes over symbolic graphs: ``shape_prop`` notes the shapes of a run."""
