"""A Fourier neural operator: two spectral layers of 20 channels on 64 x 64 places, 8 modes, batch 8, Adam.

Complex weights are kept as pairs of reals, as people do who train on several devices: so all optimisers here serve.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.workloads.problem import Array, Namespace, Optimizer, Training, Work, leaf

BATCH, WIDTH, MODES, SIZE, LAYERS = 8, 20, 8, 64, 2
FREQUENCIES = SIZE // 2 + 1
OPTIMIZER = Optimizer("Adam", lr=1e-3)


def data() -> tuple[Array, Array, list[Array]]:
    """Fields before and after; the lift, per layer its two spectral weights and the one beside, the projection."""
    rng = np.random.default_rng(0)

    def normal(*shape: int, scale: float = 1.0) -> Array:
        return (scale * rng.standard_normal(shape)).astype(np.float32)

    parameters = [normal(WIDTH, 1, scale=0.3)]
    for _ in range(LAYERS):
        parameters += [normal(WIDTH, WIDTH, MODES, MODES, 2, scale=1 / WIDTH) for _ in range(2)]
        parameters.append(normal(WIDTH, WIDTH, scale=1 / WIDTH))
    parameters.append(normal(1, WIDTH, scale=0.3))
    return normal(BATCH, 1, SIZE, SIZE), normal(BATCH, 1, SIZE, SIZE), parameters


def work() -> Work:
    """Products over channels, complex ones as four real ones; transforms by 2.5 n log2 n; thrice for the gradients."""
    places = BATCH * SIZE * SIZE
    products = 2 * places * WIDTH * (2 + LAYERS * WIDTH) + LAYERS * 8 * 2 * BATCH * MODES**2 * WIDTH**2
    transforms = LAYERS * 2 * 2.5 * places * WIDTH * float(np.log2(SIZE * SIZE))
    return Work(flops=3 * (products + transforms))


def build(T: Namespace) -> Training:
    x, y, arrays = data()
    parameters = [leaf(T, array) for array in arrays]

    def mixed(weight: Any, field: Any) -> Any:
        return T.einsum("oi,bixy->boxy", weight, field)

    def modes(spectrum: Any, weight: Any) -> Any:
        return T.einsum("bixy,ioxy->boxy", spectrum, T.view_as_complex(weight))

    def spectral(field: Any, low: Any, high: Any) -> Any:
        spectrum = T.fft.rfft2(field)
        kept = T.zeros(BATCH, WIDTH, SIZE, FREQUENCIES, dtype=T.complex64)
        kept[:, :, :MODES, :MODES] = modes(spectrum[:, :, :MODES, :MODES], low)
        kept[:, :, -MODES:, :MODES] = modes(spectrum[:, :, -MODES:, :MODES], high)
        return T.fft.irfft2(kept, s=(SIZE, SIZE))

    def loss(x: Any, y: Any) -> Any:
        field = mixed(parameters[0], x)
        for layer in range(LAYERS):
            low, high, beside = parameters[1 + 3 * layer : 4 + 3 * layer]
            field = T.nn.functional.gelu(spectral(field, low, high) + mixed(beside, field))
        return (mixed(parameters[-1], field) - y).square().mean()

    return Training(loss, parameters, OPTIMIZER, (T.tensor(x), T.tensor(y)))


def build_jax() -> Training:
    import jax
    import jax.numpy as jnp

    x, y, parameters = data()

    def mixed(weight: Any, field: Any) -> Any:
        return jnp.einsum("oi,bixy->boxy", weight, field)

    def modes(spectrum: Any, weight: Any) -> Any:
        return jnp.einsum("bixy,ioxy->boxy", spectrum, jax.lax.complex(weight[..., 0], weight[..., 1]))

    def spectral(field: Any, low: Any, high: Any) -> Any:
        spectrum = jnp.fft.rfft2(field)
        kept = jnp.zeros((BATCH, WIDTH, SIZE, FREQUENCIES), jnp.complex64)
        kept = kept.at[:, :, :MODES, :MODES].set(modes(spectrum[:, :, :MODES, :MODES], low))
        kept = kept.at[:, :, -MODES:, :MODES].set(modes(spectrum[:, :, -MODES:, :MODES], high))
        return jnp.fft.irfft2(kept, s=(SIZE, SIZE))

    def loss(parameters: list[Any], x: Any, y: Any) -> Any:
        field = mixed(parameters[0], x)
        for layer in range(LAYERS):
            low, high, beside = parameters[1 + 3 * layer : 4 + 3 * layer]
            field = jax.nn.gelu(spectral(field, low, high) + mixed(beside, field), approximate=False)
        return jnp.square(mixed(parameters[-1], field) - y).mean()

    return Training(loss, parameters, OPTIMIZER, (x, y))
