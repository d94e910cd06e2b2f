"""Time of eager recurrent layers and of ctc_loss, forward, and forward with backward, with torch's beside where it is
installed.

Processor time of one thread, autojit and torch in turns, the lower quartile of many short rounds, in microseconds.
``NumPy``: calls before there is a kernel. ``python -m benchmarks.eager_sequences [--only NAME]``.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import autojit
from autojit.tensor.state import reference_only

ROUNDS, ROUND_S = 25, 0.004

Call = Callable[[], Any]


def cases(lib: Any) -> dict[str, Call]:
    """Losses, by the library ``lib`` (autojit, or torch)."""
    lib.manual_seed(0)
    nn = lib.nn

    def layer(kind: str, time: int, batch: int, size: int, **options: Any) -> Call:
        net, x = getattr(nn, kind)(size, size, **options), lib.randn(time, batch, size, requires_grad=True)
        return lambda: net(x)[0].sum()

    def packed() -> Call:
        net, x = nn.LSTM(32, 32), lib.randn(20, 8, 32, requires_grad=True)
        lengths = lib.tensor([20, 18, 15, 12, 10, 8, 5, 3])
        return lambda: net(nn.utils.rnn.pack_padded_sequence(x, lengths))[0].data.sum()

    def ctc(frames: int, batch: int, classes: int, labels: int) -> Call:
        x, targets = lib.randn(frames, batch, classes, requires_grad=True), lib.randint(1, classes, (batch, labels))
        lengths = [frames] * batch, [labels] * batch
        return lambda: nn.functional.ctc_loss(x.log_softmax(2), targets, *lengths)

    return {
        "LSTM 20x8x32": layer("LSTM", 20, 8, 32),
        "GRU 20x8x32": layer("GRU", 20, 8, 32),
        "RNN 20x8x32": layer("RNN", 20, 8, 32),
        "LSTM 32x32x128": layer("LSTM", 32, 32, 128),
        "LSTM 50x1x16": layer("LSTM", 50, 1, 16),
        "LSTM 20x8x32, 2 layers, both ways": layer("LSTM", 20, 8, 32, num_layers=2, bidirectional=True),
        "LSTM 20x8x32, packed": packed(),
        "CTC 50x4x20": ctc(50, 4, 20, 10),
        "CTC 200x16x40": ctc(200, 16, 40, 30),
    }


def round_us(call: Call, calls: int) -> float:
    """The processor time of a call."""
    start = time.process_time()
    for _ in range(calls):
        call()
    return (time.process_time() - start) / calls * 1e6


def quartiles_us(calls: list[Call]) -> list[float]:
    """The lower quartile of each one's rounds, taken in turns."""
    counts = []
    for call in calls:
        start = time.perf_counter()
        call()
        counts.append(max(1, int(ROUND_S / (time.perf_counter() - start))))
    rounds = [[round_us(call, count) for call, count in zip(calls, counts, strict=True)] for _ in range(ROUNDS)]
    return [sorted(column)[ROUNDS // 4] for column in zip(*rounds, strict=True)]


def with_backward(loss: Call) -> Call:
    """The call with its backward pass."""
    return lambda: loss().backward()


def by_numpy(call: Call) -> Call:
    """The call without kernels."""

    def called() -> None:
        with reference_only():
            call()

    return called


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="the one case to time")
    only = parser.parse_args().only
    autojit.set_num_threads(1)
    peers: dict[str, Call] = {}
    if importlib.util.find_spec("torch") is not None:
        torch = importlib.import_module("torch")
        torch.set_num_threads(1)
        peers = cases(torch)
    autojit.use_deterministic_algorithms(True)  # every kernel is there from the first call on
    print("| | us | torch us | NumPy us | us, + backward | torch us | NumPy us |\n|---|---|---|---|---|---|---|")
    for name, loss in cases(autojit).items():
        if only not in (None, name):
            continue
        cells = []
        for wrap in (lambda call: call, with_backward):
            given = [wrap(loss), *([wrap(peers[name])] if peers else []), by_numpy(wrap(loss))]
            found = [f"{us:.0f}" for us in quartiles_us(given)]
            cells += [found[0], found[1] if peers else "", found[-1]]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
