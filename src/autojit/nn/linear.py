"""Linear layers, embeddings and the identity."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import autojit as aj
from autojit.core.dtypes import DType
from autojit.nn import functional as F
from autojit.nn import init
from autojit.nn.declared_layer import DeclaredLayer
from autojit.nn.module import Module
from autojit.nn.parameter import Parameter
from autojit.tensor import Tensor

__all__ = ["Bilinear", "Embedding", "EmbeddingBag", "Identity", "Linear"]


class Identity(Module):
    """Returns its input; takes and ignores any constructor arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class Linear(DeclaredLayer, shows="in_features out_features bias"):
    """x W^T + b with W uniform in +-1/sqrt(in_features). Shapes: ``f[..., in] -> f[..., out]``.

    Example:
        >>> import autojit as aj
        >>> tuple(aj.nn.Linear(3, 2)(aj.ones(5, 3)).shape)
        (5, 2)
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: DType | None = None
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        bias_shape = (out_features,) if bias else None
        self._add_parameters(device, dtype, weight=(out_features, in_features), bias=bias_shape)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters again."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0.0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight, self.bias)


class NonDynamicallyQuantizableLinear(Linear):
    """``Linear`` under the name that torch's attention shows for its last layer."""


class Bilinear(DeclaredLayer, shows="in1_features in2_features out_features bias"):
    """x1 W x2 + b. Shapes: ``f[..., in1], f[..., in2] -> f[..., out]``."""

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got {in1_features}")
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        shape = (out_features, in1_features, in2_features)
        self._add_parameters(device, dtype, weight=shape, bias=(out_features,) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters again."""
        bound = 1 / math.sqrt(self.in1_features)
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)


class _Table(DeclaredLayer):
    """Rows that are looked up by index."""

    _index_name: ClassVar[str] = "Padding_idx"  # how errors call it
    weight: Parameter
    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None

    def _take(self, given: Tensor | None, freeze: bool, device: Any, dtype: DType | None) -> None:
        """Keep the table; without a given one draw it."""
        if self.padding_idx is not None:
            if not -self.num_embeddings <= self.padding_idx < self.num_embeddings:
                raise AssertionError(f"{self._index_name} must be within num_embeddings")
            self.padding_idx %= self.num_embeddings
        shape = (self.num_embeddings, self.embedding_dim)
        if given is None:
            self.weight = Parameter(aj.empty(shape, device=device, dtype=dtype), requires_grad=not freeze)
            self.reset_parameters()
            return
        if tuple(given.shape) != shape:
            raise AssertionError("Shape of weight does not match num_embeddings and embedding_dim")
        self.weight = Parameter(given, requires_grad=not freeze)

    def reset_parameters(self) -> None:
        """Draw the table again; the padding row becomes zero."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with aj.no_grad():
                self.weight[self.padding_idx].fill_(0)


def _rows_and_size(embeddings: Tensor) -> tuple[int, int]:
    if embeddings.ndim != 2:
        raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
    return embeddings.shape[0], embeddings.shape[1]


class Embedding(_Table):
    """A table of rows looked up by index. Shapes: ``i[...] -> f[..., embedding_dim]``; see ``F.embedding``."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = padding_idx
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        self._take(_weight, _freeze, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse
        )

    def extra_repr(self) -> str:
        others = self._unlike(padding_idx=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, sparse=False)
        return ", ".join([f"{self.num_embeddings}, {self.embedding_dim}", *others])

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """A layer over an existing table f[rows, n]; ``freeze`` keeps it from training."""
        rows, size = _rows_and_size(embeddings)
        return cls(
            rows, size, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight=embeddings,
            _freeze=freeze,
        )  # fmt: skip


class EmbeddingBag(_Table):
    """Sums, means or maxima of bags of table rows; see ``F.embedding_bag``."""

    _index_name = "padding_idx"

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset
        self.padding_idx = padding_idx
        self._take(_weight, False, device, dtype)

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode,
            self.sparse, per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    def extra_repr(self) -> str:
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        parts += self._unlike(max_norm=None, norm_type=2, scale_grad_by_freq=False)
        return ", ".join([*parts, f"mode={self.mode!r}", *self._unlike(padding_idx=None)])

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """A layer over an existing table f[rows, n]; ``freeze`` keeps it from training."""
        rows, size = _rows_and_size(embeddings)
        made = cls(
            rows, size, max_norm, norm_type, scale_grad_by_freq, mode, sparse, embeddings, include_last_offset,
            padding_idx,
        )  # fmt: skip
        made.weight.requires_grad = not freeze
        return made
