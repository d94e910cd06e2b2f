"""The weights of a convolution of bfloat16 as pairs: two channels that are added up side by side, for each tap."""

from __future__ import annotations

from autojit.codegen.cpu.convolutions.movers import Pairs
from autojit.codegen.cpu.vector_text import INTERNAL, VectorModule, VectorText
from autojit.codegen.module_text import Signature
from autojit.core.dtypes import bfloat16, float32
from autojit.core.records import record

PAIR_WEIGHTS = Signature("pair_weights", "ptr weight, ptr target")
"""Fill the target with all weights, as pairs."""

PAIRING_NS = 3.0
"""Of a line of up to 16 weights and its partner; no measurement is recorded. Only cuts work into chunks."""

SHARE = 8
"""Every chunk pairs all weights: so many times the work of that is left to it."""


@record
class PairedWeights:
    """Weights as they are stored: ``lines`` lines, of each all ``channels`` that are added up, ``length`` weights each.

    Rows of a convolution are such lines, of their taps. A transposed one has a line for each group, of the taps of all
    rows.
    """

    lines: int
    length: int
    channels: int

    @property
    def is_there(self) -> bool:
        """Whether weights are stored as pairs: one tap, which all channels have side by side."""
        return self.length == 1 and self.channels % 2 == 0

    @property
    def pairs(self) -> int:
        """Of one line."""
        return -(-self.channels // 2)

    @property
    def size_bytes(self) -> int:
        """Of all pairs."""
        return 0 if self.is_there else self.lines * self.pairs * self.length * float32.size_bytes

    def most_chunks(self, estimate_ns: float, most: int) -> int:
        """Chunks that leave enough work to each."""
        pairing_ns = 0.0 if self.is_there else PAIRING_NS * self.lines * self.pairs * -(-self.length // 16)
        return max(1, min(most, int(estimate_ns / (SHARE * pairing_ns)))) if pairing_ns else most

    def write(self, module: VectorModule) -> None:
        """Add `PAIR_WEIGHTS`."""
        text = VectorText(module, PAIR_WEIGHTS, linkage="internal", attributes=INTERNAL)
        line, size = self.length * self.channels, bfloat16.size_bytes
        with text.loop(0, self.lines) as number, text.loop(0, self.pairs) as pair:
            first = text.mul(pair, 2)
            source = text.at("%weight", text.mul(text.add(text.mul(number, line), text.mul(first, self.length)), size))
            place = text.add(text.mul(number, self.pairs * self.length), text.mul(pair, self.length))
            to = text.at("%target", text.mul(place, float32.size_bytes))
            Pairs(text, self.length, text.test("slt", text.add(first, 1), self.channels)).row(to, source, self.length)
        text.finish()
