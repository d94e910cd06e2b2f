"""Pruning: parameters times masks of zeros and ones, which hold through training until the pruning is removed.

How to read: a method computes a mask (``compute_mask``); ``BasePruningMethod.apply`` moves the parameter to
``name_orig``, keeps the mask as ``name_mask`` and joins both before every call by a forward pre-hook, which is the
method itself. Pruning again makes a ``PruningContainer``, which prunes only what is left.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, TypeVar

import numpy as np

import autojit as aj
from autojit.nn.hooks import pre_hook_of
from autojit.nn.module import Module
from autojit.nn.utils.convert_parameters import parameters_to_vector
from autojit.tensor import Tensor

AnyModule = TypeVar("AnyModule", bound=Module)
Amount = int | float


class BasePruningMethod(ABC):
    """Base of pruning methods; a subclass defines ``compute_mask``."""

    PRUNING_TYPE: ClassVar[str]
    _tensor_name: str = ""

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask of a tensor; zero wherever ``default_mask`` is."""

    def apply_mask(self, module: Module) -> Tensor:
        """The parameter of the module times its mask."""
        if not self._tensor_name:
            raise AssertionError(f"Module {module} has to be pruned")
        mask: Tensor = getattr(module, self._tensor_name + "_mask")
        orig: Tensor = getattr(module, self._tensor_name + "_orig")
        return mask.to(orig.dtype) * orig

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any
    ) -> Any:
        """Prune the parameter ``name`` with a new method of this class, on top of what pruned it before.

        Args:
            args, kwargs: those of the class.
            importance_scores: in place of the parameter's elements, by which the mask is computed.
        """
        method: Any = cls(*args, **kwargs)
        method._tensor_name = name
        before = pre_hook_of(module, BasePruningMethod, _tensor_name=name)
        orig = getattr(module, name)
        scores = orig if importance_scores is None else importance_scores
        if scores.shape != orig.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as parameter {name} of {module}, got {scores.shape} vs "
                f"{orig.shape}"
            )
        if before is None:
            mask = method.compute_mask(scores, aj.ones_like(orig))
            delattr(module, name)
            module.register_parameter(name + "_orig", orig)
        else:
            key, old = before
            container = old if isinstance(old, PruningContainer) else PruningContainer(old)
            container.add_pruning_method(method)
            method = container
            mask = method.compute_mask(scores, getattr(module, name + "_mask").detach().clone())
            del module._forward_pre_hooks[key]
        module.register_buffer(name + "_mask", mask)
        setattr(module, name, method.apply_mask(module))
        module.register_forward_pre_hook(method)
        return method

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """The tensor times its mask."""
        scores = t if importance_scores is None else importance_scores
        if scores.shape != t.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as tensor t, got {scores.shape} vs {t.shape}"
            )
        mask = aj.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, mask)

    def remove(self, module: Module) -> None:
        """Make the pruned tensor the parameter; the zeros stay."""
        name = self._tensor_name
        if not name:
            raise AssertionError(f"Module {module} has to be pruned before pruning can be removed")
        weight = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        orig: Any = module._parameters[name + "_orig"]
        orig.data = weight.data
        delattr(module, name + "_orig")
        delattr(module, name + "_mask")
        setattr(module, name, orig)


class PruningContainer(BasePruningMethod):
    """Several methods one after the other; a new one sees what the others left."""

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: list[BasePruningMethod] = []
        if args:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod | None) -> None:
        """Add a method for the same tensor; TypeError for something else, ValueError for another tensor."""
        if not isinstance(method, BasePruningMethod) and method is not None:
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method is not None and self._tensor_name != method._tensor_name:
            raise ValueError(
                "Can only add pruning methods acting on the parameter named "
                f"'{self._tensor_name}' to PruningContainer {self}. Found '{method._tensor_name}'"
            )
        if method is not None:
            self._pruning_methods.append(method)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: int) -> BasePruningMethod:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask after the newest method, which prunes what ``default_mask`` left."""
        method: Any = self._pruning_methods[-1]
        mask = default_mask.to(t.dtype)
        left: Any
        if method.PRUNING_TYPE == "unstructured":
            left = default_mask.eq(1)
        elif method.PRUNING_TYPE == "structured":
            if not hasattr(method, "dim"):
                raise AttributeError('Pruning methods of PRUNING_TYPE "structured" need to have the attribute `dim`')
            axis = method.dim + t.ndim if method.dim < 0 else method.dim
            if axis < 0:
                raise IndexError(f"Index is out of bounds for tensor with dimensions {t.ndim}")
            others = [k for k in range(t.ndim) if k != axis]
            left = tuple(default_mask.sum(others) != 0 if k == axis else slice(None) for k in range(t.ndim))
        elif method.PRUNING_TYPE == "global":
            left = (slice(None),) * t.ndim
        else:
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        part = method.compute_mask(t[left], default_mask=default_mask[left])
        mask = mask.clone()
        mask[left] = part.to(mask.dtype)
        return mask


class Identity(BasePruningMethod):
    """Prunes nothing, but keeps a mask of ones."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask


class _Share(BasePruningMethod):
    """A method that prunes a number of elements or a share of them."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: Amount) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = _compute_nparams_toprune(self.amount, t.numel())
        mask = default_mask.clone()
        if count:
            mask.view(-1)[self._lowest(t, count)] = 0
        return mask

    def _lowest(self, t: Tensor, count: int) -> Tensor:
        """The places of ``count`` elements to prune."""
        raise NotImplementedError


class RandomUnstructured(_Share):
    """Prunes elements drawn at random: a number of them (int) or a share (float)."""

    def _lowest(self, t: Tensor, count: int) -> Tensor:
        return aj.topk(aj.rand_like(t).view(-1), k=count).indices


class L1Unstructured(_Share):
    """Prunes the elements of least absolute value: a number of them (int) or a share (float)."""

    def _lowest(self, t: Tensor, count: int) -> Tensor:
        return aj.topk(t.detach().abs().reshape(-1), k=count, largest=False).indices


class _Channels(BasePruningMethod):
    """A method that prunes whole slices along an axis."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Amount, dim: int = -1) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount
        self.dim = dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if t.ndim <= 1:
            raise ValueError(
                "Structured pruning can only be applied to multidimensional tensors. Found tensor of shape "
                f"{t.shape} with {t.ndim} dims"
            )
        if self.dim >= t.ndim:
            raise IndexError(f"Invalid index {self.dim} for tensor of size {t.shape}")
        channels = t.shape[self.dim]
        count = _compute_nparams_toprune(self.amount, channels)
        if not count:
            return default_mask
        kept = aj.topk(self._scores(t), k=channels - count).indices
        mask = aj.zeros_like(t)
        mask[(slice(None),) * (self.dim % t.ndim) + (kept,)] = 1
        return mask * default_mask.to(mask.dtype)

    def _scores(self, t: Tensor) -> Tensor:
        """Per slice how much it matters."""
        raise NotImplementedError


class RandomStructured(_Channels):
    """Prunes slices along ``dim`` drawn at random: a number of them (int) or a share (float)."""

    def _scores(self, t: Tensor) -> Tensor:
        return aj.rand(t.shape[self.dim], device=t.device)


class LnStructured(_Channels):
    """Prunes the slices along ``dim`` of least norm of order ``n``."""

    def __init__(self, amount: Amount, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _scores(self, t: Tensor) -> Tensor:
        axis = self.dim % t.ndim
        return aj.norm(t.detach(), p=self.n, dim=[k for k in range(t.ndim) if k != axis])


class CustomFromMask(BasePruningMethod):
    """Prunes by a given mask."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if default_mask.shape != self.mask.shape:
            raise AssertionError("the mask has another shape than the tensor")
        return default_mask * self.mask.to(default_mask.dtype)


def identity(module: AnyModule, name: str) -> AnyModule:
    """Give the parameter a mask of ones; returns the module.

    Example:
        >>> from autojit import nn
        >>> from autojit.nn.utils import prune
        >>> prune.identity(nn.Linear(1, 2), "bias").bias_mask
        tensor([1., 1.])
    """
    Identity.apply(module, name)
    return module


def random_unstructured(module: AnyModule, name: str, amount: Amount) -> AnyModule:
    """Prune elements drawn at random: a number of them (int) or a share (float); returns the module."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: AnyModule, name: str, amount: Amount, importance_scores: Tensor | None = None) -> AnyModule:
    """Prune the elements of least absolute value: a number of them (int) or a share (float); returns the module.

    Example:
        >>> from autojit import nn
        >>> from autojit.nn.utils import prune
        >>> layer = prune.l1_unstructured(nn.Linear(4, 4), "weight", 0.25)
        >>> int((layer.weight == 0).sum())
        4
    """
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: AnyModule, name: str, amount: Amount, dim: int) -> AnyModule:
    """Prune slices along ``dim`` drawn at random; returns the module."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: AnyModule, name: str, amount: Amount, n: Any, dim: int, importance_scores: Tensor | None = None
) -> AnyModule:
    """Prune the slices along ``dim`` of least norm of order ``n``; returns the module."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: AnyModule, name: str, mask: Tensor) -> AnyModule:
    """Prune by a given mask of zeros and ones; returns the module."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]],
    pruning_method: type[BasePruningMethod],
    importance_scores: dict[tuple[Module, str], Tensor] | None = None,
    **kwargs: Any,
) -> None:
    """Prune several parameters, ``(module, name)`` each, as if they were one vector.

    Args:
        kwargs: those of the method's class, such as ``amount``.

    Raises:
        TypeError: no iterable, no dict of scores, or a method that is not of unstructured kind.
    """
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    scores = {} if importance_scores is None else importance_scores
    if not isinstance(scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    chosen = list(parameters)
    tensors = [getattr(module, name) for module, name in chosen]
    masks = [
        getattr(module, name + "_mask", aj.ones_like(t)) for (module, name), t in zip(chosen, tensors, strict=True)
    ]
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
            f"{pruning_method} of type {method.PRUNING_TYPE}"
        )
    flat = parameters_to_vector([scores.get(place, t) for place, t in zip(chosen, tensors, strict=True)]).detach()
    found = PruningContainer(method).compute_mask(flat, parameters_to_vector(masks))
    start = 0
    for (module, name), t in zip(chosen, tensors, strict=True):
        custom_from_mask(module, name, found[start : start + t.numel()].view_as(t))
        start += t.numel()


def remove(module: AnyModule, name: str) -> AnyModule:
    """Make the pruned tensor the parameter, zeros and all; returns the module.

    Raises:
        ValueError: the parameter is not pruned.
    """
    found = pre_hook_of(module, BasePruningMethod, _tensor_name=name)
    if found is None:
        raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")
    key, method = found
    method.remove(module)
    del module._forward_pre_hooks[key]
    return module


def is_pruned(module: Module) -> bool:
    """Whether any parameter of the module or those below it is pruned."""
    return any(
        isinstance(hook, BasePruningMethod) for part in module.modules() for hook in part._forward_pre_hooks.values()
    )


def _validate_pruning_amount_init(amount: Any) -> None:
    if not isinstance(amount, int | float | np.number):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if amount < 0 or (not isinstance(amount, int | np.integer) and amount > 1.0):
        raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")


def _validate_pruning_amount(amount: float, tensor_size: int) -> None:
    """torch's name for the check of a number of parts against how many there are."""
    if isinstance(amount, int | np.integer) and amount > tensor_size:
        raise ValueError(f"amount={amount} should be smaller than the number of parameters to prune={tensor_size}")


def _compute_nparams_toprune(amount: float, tensor_size: int) -> int:
    """torch's name for how many parts an amount means."""
    _validate_pruning_amount(amount, tensor_size)
    return int(amount) if isinstance(amount, int | np.integer) else round(amount * tensor_size)
