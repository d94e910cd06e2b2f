"""What of torch autojit leaves out on purpose, with what takes its place: told where a program asks for it."""

from __future__ import annotations

REASONS = {
    "ao": "there are no quantised tensors",
    "_inductor": "steps are compiled by autojit's own code generator",
    "jit.load": "TorchScript is not there: load weights by aj.load",
    "jit.save": "TorchScript is not there: save state_dict(), or export a step by step.export()",
    "library.triton_op": "there are no Triton kernels: aj.op makes an op of a Numba function",
    "library.wrap_triton": "there are no Triton kernels: aj.op makes an op of a Numba function",
    "nested": "there are no nested tensors: pad, and pass masks or lengths",
    "onnx": "a step is exported by step.export(), its graph printed by step.show()",
    "quantization": "there are no quantised tensors",
    "utils.cpp_extension": "there is no C++ to extend: aj.op makes an op of a Numba function",
}

LIBRARIES = {  # docs/from_torch.md has those that run
    "torchaudio": "it has parts in C++ for PyTorch: read sound by soundfile; aj.stft makes spectrograms",
    "torchtext": "it has parts in C++ for PyTorch: read text with Python, utils.data makes batches",
}
"""Libraries for torch that do not run on autojit, with the reason, or what to do instead."""

IMPORTED = frozenset(("_tensor_str", "ao", "onnx"))
"""Modules that programs import at the top and use when they are told to: importing one, or a part, is no error."""


def reason_of(name: str) -> str | None:
    """Why a name of torch's is not here, ``torch.`` left out; None where nothing is said of it or what it is in."""
    while name:
        if name in REASONS:
            return REASONS[name]
        name = name.rpartition(".")[0]
    return None
