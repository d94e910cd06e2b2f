"""The machine that code is generated for.

`Target` is what LLVM must know of any; `HostTarget`, a processor, is plain data: code generators read `vector_bytes`
and never import LLVM. `host_target()` asks LLVM once per process. The feature string is always passed on with the CPU
name, because virtual machines mask features that the CPU's name promises (a Zen 4 without AVX-512, for example).
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal, Protocol

from autojit.core.once import once
from autojit.core.records import record
from autojit.core.undivided_work import undivided

_AVX512_NEEDED = frozenset({"+avx512f", "+avx512vl", "+avx512bw", "+avx512dq"})


Emission = Literal["object", "ptx"]
"""What LLVM makes of a text: an object file, or PTX, which the driver of a GPU compiles further."""


class Target(Protocol):
    """A machine that LLVM compiles for; hashable, and equal where the code is."""

    @property
    def triple(self) -> str:
        """LLVM's name of the platform."""

    @property
    def cpu(self) -> str:
        """LLVM's name of the processor."""

    @property
    def features(self) -> str:
        """Comma-separated ``+name`` and ``-name``."""

    @property
    def emit(self) -> Emission:
        """What its code comes as."""


@record
class HostTarget:
    """What LLVM needs to know of one machine.

    Args:
        triple: LLVM target triple, such as ``x86_64-unknown-linux-gnu``.
        cpu: LLVM's name of the CPU, which selects the scheduling model.
        features: comma-separated ``+name``/``-name`` list in a fixed order, which selects the instructions.
        vector_bytes: width of the widest vector register with fused multiply-add: 16, 32 or 64.
    """

    triple: str
    cpu: str
    features: str
    vector_bytes: int
    emit: ClassVar[Emission] = "object"

    @property
    def vector_registers(self) -> int:
        """How many there are: 32 with 64-byte vectors and outside of x86, else 16."""
        return 16 if self.triple.startswith("x86_64") and self.vector_bytes < 64 else 32

    @property
    def multiplied_bytes(self) -> int:
        """Bytes of vectors that a core multiplies and adds in a cycle: two vectors of 32 or of 64 bytes.

        Zen 4 takes a vector of 64 bytes in two halves: 118 GF/s a core, with vectors of 32 bytes as well; a Skylake
        server core reaches 153. Cores with vectors of 16 bytes are taken for those with four units.
        """
        return 64 if self.vector_bytes < 64 or self.cpu == "znver4" else 128

    @property
    def has_dots(self) -> bool:
        """Whether one instruction adds dot products of pairs of bfloat16 to a vector of float32 (AVX512_BF16)."""
        return self.vector_bytes == 64 and "+avx512bf16" in self.features.split(",")

    def limited_to(self, vector_bytes: int) -> HostTarget:
        """The same machine with its wider vector instructions switched off (for tests and comparisons).

        What is switched off comes last: LLVM reads from left to right, and a later ``+sha512`` would bring AVX back.
        """
        if vector_bytes >= self.vector_bytes:
            return self
        wide = ("+avx512", "+avx10", "+evex512")
        banned = wide if vector_bytes >= 32 else (*wide, "+avx", "+fma", "+f16c", "+xop", "+vaes", "+vpclmul")
        known = [*self.features.split(","), "+avx512f" if vector_bytes >= 32 else "+avx"]  # the CPU's name implies it
        names = {f"-{n[1:]}" if n.startswith(banned) else n for n in known}
        ordered = sorted(names, key=lambda flag: (flag.startswith("-"), _feature_name(flag)))
        return replace(self, features=",".join(ordered), vector_bytes=vector_bytes)

    def using_all_of(self, vector_bytes: int) -> HostTarget:
        """Limited to this width, and using it even where LLVM prefers 32 bytes on a processor that has 64."""
        limited = self.limited_to(vector_bytes)
        if vector_bytes < 64 or not self.triple.startswith("x86_64"):
            return limited
        return replace(limited, features=f"{limited.features},-prefer-256-bit")


@once
def host_target() -> HostTarget:
    """The machine this process runs on."""
    with undivided:
        import llvmlite.binding as llvm

    triple: str = llvm.get_process_triple()
    names = [name for name in str(llvm.get_host_cpu_features().flatten()).split(",") if name]
    return HostTarget(
        triple=triple,
        cpu=str(llvm.get_host_cpu_name()),
        features=",".join(sorted(names, key=_feature_name)),
        vector_bytes=vector_bytes_of(triple, frozenset(names)),
    )


def vector_bytes_of(triple: str, features: frozenset[str]) -> int:
    """Bytes of the widest vector register that `features` allow on `triple`'s architecture."""
    if not triple.startswith("x86_64"):
        return 16
    if features >= _AVX512_NEEDED:
        return 64
    if "+avx2" in features and "+fma" in features:
        return 32
    return 16


def _feature_name(flag: str) -> str:
    return flag[1:]
