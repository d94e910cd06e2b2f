"""Utilities beside the tensor API: ``utils.data`` loads batches. Imported on first use."""
