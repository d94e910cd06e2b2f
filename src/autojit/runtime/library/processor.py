"""Which bits of CPUID a library asks for: those of the instructions that its code may hold.

Source: Intel SDM volume 2A, CPUID; AMD APM volume 3, appendix E. Names are LLVM's.
"""

from __future__ import annotations

from autojit.runtime.host import cached_host_target

_BITS: dict[str, dict[str, int]] = {
    "leaf1_ecx": {
        "sse3": 0, "pclmul": 1, "ssse3": 9, "fma": 12, "cx16": 13, "sse4.1": 19, "sse4.2": 20, "movbe": 22,
        "popcnt": 23, "aes": 25, "avx": 28, "f16c": 29, "rdrnd": 30,
    },
    "leaf7_ebx": {
        "bmi": 3, "avx2": 5, "bmi2": 8, "avx512f": 16, "avx512dq": 17, "adx": 19, "avx512ifma": 21, "avx512cd": 28,
        "sha": 29, "avx512bw": 30, "avx512vl": 31,
    },
    "leaf7_ecx": {
        "avx512vbmi": 1, "avx512vbmi2": 6, "gfni": 8, "vaes": 9, "vpclmulqdq": 10, "avx512vnni": 11,
        "avx512bitalg": 12, "avx512vpopcntdq": 14,
    },
    "leaf7_edx": {"avx512vp2intersect": 8, "avx512fp16": 23},
    "leaf7_1_eax": {"sha512": 0, "sm3": 1, "sm4": 2, "avxvnni": 4, "avx512bf16": 5, "avxifma": 23},
    "extended_ecx": {"lzcnt": 5, "sse4a": 6, "xop": 11, "fma4": 16, "tbm": 21},
}  # fmt: skip
_AVX_STATE, _AVX512_STATE = 0x6, 0xE6  # what the system must save


def described() -> dict[str, str]:
    """What libraries of this process are compiled for, in LLVM's words."""
    target = cached_host_target()
    return {"triple": target.triple, "cpu": target.cpu, "features": target.features}


def wanted_bits() -> dict[str, int]:
    """By the word of a library's description: the bits that must be set."""
    target = cached_host_target()
    features = {name[1:] for name in target.features.split(",") if name.startswith("+")}
    features -= {name[1:] for name in target.features.split(",") if name.startswith("-")}
    found = {word: sum(1 << bit for name, bit in bits.items() if name in features) for word, bits in _BITS.items()}
    saved = _AVX512_STATE if "avx512f" in features else _AVX_STATE if "avx" in features else 0
    return {**found, "xcr0": saved}
