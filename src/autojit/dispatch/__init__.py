"""How an op is applied to tensors: at once, in a trace, through layers, in place, to views."""
