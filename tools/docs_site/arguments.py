"""What arguments mean that many functions, layers and optimisers share, for entries whose docstring does not say it.

An argument has one meaning in a part of the package; where it has another, the docstring says so and is shown instead.
"""

from __future__ import annotations

import inspect
from typing import Any

OPTIMISERS = {
    "params": "the tensors to move, or dictionaries of them with options of their own",
    "lr": "the step size: how far a parameter moves for a gradient of 1 (for Adam and its kin, about per step)",
    "betas": "how much of the running mean of gradients, and of their squares, is kept in each step",
    "eps": "added to a denominator, against division by zero",
    "weight_decay": "the factor of the parameter itself that is added to its gradient (decoupled: by which it shrinks)",
    "momentum": "how much of the previous move goes into the next one",
    "dampening": "how much of the gradient is left out of the momentum",
    "nesterov": "whether the gradient counts as if the momentum had been applied already",
    "alpha": "how much of the running mean of squares is kept in each step",
    "rho": "how much of the running mean of squares is kept in each step",
    "centered": "whether squares are taken around the running mean",
    "amsgrad": "whether the greatest mean of squares so far is used",
    "maximize": "go up instead of down",
    "foreach": "accepted for torch's sake; all parameters are one compiled update anyway",
    "fused": "accepted for torch's sake; a compiled step is fused anyway",
    "capturable": "accepted for torch's sake; steps are captured anyway",
    "differentiable": "whether the update itself is recorded for derivatives",
    "lr_decay": "by how much the step size shrinks with the number of steps",
    "initial_accumulator_value": "what the sum of squares begins with",
    "max_iter": "most iterations of one step",
    "max_eval": "most calls of the closure in one step",
    "history_size": "how many previous moves are kept",
    "line_search_fn": '`"strong_wolfe"`, or `None` for steps of length `lr`',
    "etas": "by which factors a step size shrinks and grows",
    "step_sizes": "the least and the greatest step size",
    "optimizer": "the optimiser whose step size is scheduled",
    "last_epoch": "how many steps have been taken before; -1 for none",
    "gamma": "the factor of the step size",
    "step_size": "after how many steps the factor is applied",
    "milestones": "after which steps it changes",
    "T_max": "after how many steps the least value is reached",
    "eta_min": "the least step size",
    "total_iters": "over how many steps it changes",
    "lr_lambda": "a function from the number of steps to a factor, or one for each group",
    "max_lr": "the greatest step size",
    "base_lr": "the least step size",
}
LAYERS = {
    "in_features": "the size of the last axis of the input",
    "out_features": "the size of the last axis of the result",
    "in_channels": "the number of channels of the input",
    "out_channels": "the number of channels of the result",
    "kernel_size": "the size of the window, one number for all axes or one for each",
    "stride": "how far the window moves from one result to the next",
    "padding": "how many elements are added on each side of the input",
    "dilation": "the distance of the elements that a window takes",
    "groups": "into how many parts channels are divided that do not see each other",
    "output_padding": "how many elements are added to one side of the result",
    "padding_mode": "what is added: zeros, or elements of the input itself",
    "ceil_mode": "whether a window may stand out at the end",
    "return_indices": "whether the positions of the maxima are returned, too",
    "count_include_pad": "whether added zeros count in a mean",
    "output_size": "the sizes of the result's spatial axes; `None` keeps the input's",
    "bias": "whether there is a term that is added",
    "inplace": "whether the input is overwritten",
    "num_features": "the number of channels",
    "normalized_shape": "the sizes of the last axes, over which is normalised",
    "num_groups": "into how many groups channels are divided",
    "num_channels": "the number of channels",
    "affine": "whether there is a learned scale and shift for each channel",
    "elementwise_affine": "whether there is a learned scale (and shift) for each element",
    "eps": "added to a variance or norm, against division by zero",
    "momentum": "the share of the new value in running statistics; `None`: the plain mean of all batches",
    "track_running_stats": "whether running statistics are kept for evaluation",
    "reduction": '`"mean"`, `"sum"`, or `"none"` for one loss per element',
    "size_average": "old form of `reduction`", "reduce": "old form of `reduction`",
    "weight": "a factor for each class",
    "ignore_index": "a class that does not count",
    "label_smoothing": "how much of the target is spread over all classes, from 0 to 1",
    "margin": "how far apart things should be",
    "num_embeddings": "the number of rows", "embedding_dim": "the length of a row",
    "padding_idx": "a row that stays as it is and gets no gradient",
    "max_norm": "rows that are longer are shortened to this length",
    "sparse": "whether gradients of the table are sparse",
    "embed_dim": "the size of the last axis", "num_heads": "the number of heads; divides the size",
    "d_model": "the size of the last axis", "nhead": "the number of heads; divides the size",
    "dim_feedforward": "the width between the two linear layers",
    "dropout": "the probability to drop an element while training",
    "batch_first": "whether the batch is the first axis, before time",
    "input_size": "the number of features of the input", "hidden_size": "the number of features of the state",
    "num_layers": "how many layers are stacked", "bidirectional": "whether a second layer reads backwards",
    "nonlinearity": "which activation",
    "scale_factor": "how many times larger the result is",
    "align_corners": "whether the corners of input and result coincide",
    "upscale_factor": "how many times larger the image becomes",
    "downscale_factor": "how many times smaller the image becomes",
    "device": "where parameters are made", "dtype": "the type of the parameters",
    "dim": "the axis; negative ones count from the end",
}  # fmt: skip
FUNCTIONS = {
    "dim": "the axis or axes; negative ones count from the end; where `None` is allowed, it means all",
    "keepdim": "whether reduced axes stay, with size 1",
    "dtype": "the type of the result's elements",
    "device": "where the result is made",
    "out": "a tensor to write the result into",
    "requires_grad": "whether operations on the result are recorded",
    "generator": "where random numbers come from; by default the one of the device",
    "memory_format": "the order of the elements in memory",
    "descending": "whether the greatest come first",
    "stable": "whether equal elements keep their order",
    "largest": "whether the greatest are taken, not the least",
    "correction": "what is subtracted from the number of elements in the denominator: 1 is the unbiased estimate",
    "unbiased": "whether one less than the number of elements is in the denominator",
    "rounding_mode": '`None`, `"trunc"` (towards zero) or `"floor"` (down)',
    "rtol": "allowed difference relative to the second operand",
    "atol": "allowed absolute difference",
    "equal_nan": "whether two NaNs count as equal",
    "training": "whether as in training: units are dropped, statistics are of the batch",
    "inplace": LAYERS["inplace"],
}
WINDOWS = """kernel_size stride padding dilation groups ceil_mode count_include_pad reduction size_average reduce
    ignore_index label_smoothing padding_idx scale_factor align_corners"""  # of layers, in nn.functional too
EXCEPTIONS = {  # the same word for something else
    "ASGD": {"alpha"},
    "Adafactor": {"eps"},
    "BCELoss": {"weight"},
    "BCEWithLogitsLoss": {"weight"},
    "GaussianNLLLoss": {"eps"},
    "PoissonNLLLoss": {"eps"},
    "ReduceLROnPlateau": {"eps"},
}
KINDS = {
    **dict.fromkeys(("optim", "lr_scheduler"), OPTIMISERS),
    **dict.fromkeys(("aj", "Tensor", "aj.linalg", "aj.special", "aj.fft"), FUNCTIONS),
    "nn": LAYERS,
    "F": {**FUNCTIONS, **{word: LAYERS[word] for word in WINDOWS.split()}},
}


def described(prefix: str, value: Any, text: str) -> list[str]:
    """A list of the arguments whose meaning is known, for an entry whose text does not describe arguments."""
    known = KINDS.get(prefix)
    if known is None or "**Args**" in text or not callable(value):
        return []
    try:
        names = inspect.signature(value).parameters
    except (TypeError, ValueError):
        return []
    other = EXCEPTIONS.get(getattr(value, "__name__", ""), ())
    lines = [f"- `{name}`: {known[name]}" for name in names if name in known and name not in other]
    return ["**Arguments**", "", *lines, ""] if lines else []
