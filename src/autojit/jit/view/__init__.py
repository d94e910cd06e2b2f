"""A compiled step as one page: ``step.view()``."""
