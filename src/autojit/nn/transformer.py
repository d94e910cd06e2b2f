"""Transformer layers and stacks. Source: arXiv:1706.03762; ``norm_first`` is the form of arXiv:2002.04745."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, ClassVar

import autojit as aj
from autojit.core.dtypes import DType
from autojit.nn import functional as F
from autojit.nn import init
from autojit.nn.containers import ModuleList
from autojit.nn.dropout import Dropout
from autojit.nn.linear import Linear
from autojit.nn.module import Module
from autojit.nn.multihead_attention import MultiheadAttention
from autojit.nn.normalization import LayerNorm
from autojit.tensor import Tensor

__all__ = [
    "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer",
]  # fmt: skip

_Activation = Callable[[Tensor], Tensor]


def _activation_of(activation: str | _Activation) -> _Activation:
    if not isinstance(activation, str):
        return activation
    if activation not in ("relu", "gelu"):
        raise RuntimeError(f"activation should be relu/gelu, not {activation}")
    found: _Activation = F.relu if activation == "relu" else F.gelu
    return found


class _Layer(Module):
    """What encoder and decoder layers share: self-attention, feed-forward network, norms and dropouts by number.

    A layer with ``_attends_memory`` has attention to the memory too, and a third norm and dropout.
    """

    _attends_memory: ClassVar[bool] = False

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | _Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        for name in ("self_attn", "multihead_attn") if self._attends_memory else ("self_attn",):
            attention = MultiheadAttention(
                d_model, nhead, dropout, bias, batch_first=batch_first, device=device, dtype=dtype
            )
            setattr(self, name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, bias, device, dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, device, dtype)
        self.norm_first = norm_first
        self.activation = _activation_of(activation)
        places = (1, 2, 3) if self._attends_memory else (1, 2)
        for place in places:
            norm = LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)
            setattr(self, f"norm{place}", norm)
        for place in places:
            setattr(self, f"dropout{place}", Dropout(dropout))

    def _feed_forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return output

    def _attend(
        self, attention: Module, x: Tensor, memory: Tensor, mask: Tensor | None, padding: Tensor | None,
        is_causal: bool,
    ) -> Tensor:  # fmt: skip
        is_causal = mask is not None and is_causal  # in this order a hint that nobody knows yet is handed on
        output: Tensor = attention(
            x, memory, memory, attn_mask=mask, key_padding_mask=padding, is_causal=is_causal, need_weights=False
        )[0]
        return output

    def _with_residuals(self, x: Tensor, *parts: Callable[[Tensor], Tensor]) -> Tensor:
        """The parts one after the other, each with its dropout, a residual, and its norm before or after that."""
        for place, part in enumerate(parts, start=1):
            norm, dropout = getattr(self, f"norm{place}"), getattr(self, f"dropout{place}")
            x = x + dropout(part(norm(x))) if self.norm_first else norm(x + dropout(part(x)))
        return x


class TransformerEncoderLayer(_Layer):
    """Self-attention and a feed-forward network, each with a residual and a norm."""

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            return self._attend(self.self_attn, x, x, src_mask, src_key_padding_mask, is_causal)

        return self._with_residuals(src, attend, self._feed_forward)


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the memory and a feed-forward network, each with a residual and a norm."""

    _attends_memory = True

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        def attend_self(x: Tensor) -> Tensor:
            return self._attend(self.self_attn, x, x, tgt_mask, tgt_key_padding_mask, tgt_is_causal)

        def attend_memory(x: Tensor) -> Tensor:
            return self._attend(self.multihead_attn, x, memory, memory_mask, memory_key_padding_mask, memory_is_causal)

        return self._with_residuals(tgt, attend_self, attend_memory, self._feed_forward)


def _is_causal(mask: Tensor | None, is_causal: bool | None) -> bool:
    """Only what the caller said: the mask itself is always applied, so a missing hint costs nothing."""
    return bool(is_causal) and mask is not None


class TransformerEncoder(Module):
    """A stack of copies of one encoder layer and an optional last norm.

    ``enable_nested_tensor`` and ``mask_check`` are accepted as in torch; there is no nested-tensor path here.
    """

    def __init__(
        self,
        encoder_layer: TransformerEncoderLayer,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(encoder_layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor = enable_nested_tensor
        self.mask_check = mask_check

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        x = src
        for layer in self.layers:
            x = layer(
                x, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=_is_causal(mask, is_causal)
            )
        return x if self.norm is None else self.norm(x)


class TransformerDecoder(Module):
    """A stack of copies of one decoder layer and an optional last norm."""

    def __init__(self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(decoder_layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        x = tgt
        for layer in self.layers:
            x = layer(
                x,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=_is_causal(tgt_mask, tgt_is_causal),
                memory_is_causal=_is_causal(memory_mask, memory_is_causal),
            )
        return x if self.norm is None else self.norm(x)


class Transformer(Module):
    """Encoder and decoder stacks with torch's defaults."""

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | _Activation = F.relu,
        custom_encoder: Any = None,
        custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        options = (dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, device, dtype)
        norm_options = {"eps": layer_norm_eps, "bias": bias, "device": device, "dtype": dtype}
        if custom_encoder is None:
            layer = TransformerEncoderLayer(d_model, nhead, *options)
            custom_encoder = TransformerEncoder(layer, num_encoder_layers, LayerNorm(d_model, **norm_options))
        if custom_decoder is None:
            decoder_layer = TransformerDecoderLayer(d_model, nhead, *options)
            custom_decoder = TransformerDecoder(decoder_layer, num_decoder_layers, LayerNorm(d_model, **norm_options))
        self.encoder = custom_encoder
        self.decoder = custom_decoder
        self._reset_parameters()
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def _reset_parameters(self) -> None:
        """Draw all matrices again."""
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        output: Tensor = self.decoder(
            tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal,
            memory_is_causal,
        )  # fmt: skip
        return output

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: DType | None = None) -> Tensor:
        """f[sz, sz] with -inf above the diagonal and 0 elsewhere."""
        dtype = aj.get_default_dtype() if dtype is None else dtype
        return aj.triu(aj.full((sz, sz), float("-inf"), dtype=dtype, device=device), diagonal=1)
