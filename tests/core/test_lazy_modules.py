"""Import paths of torch's files."""

from __future__ import annotations

import importlib

import pytest

PATHS = [
    "nn.modules.conv:_ConvNd", "nn.modules.batchnorm:_BatchNorm", "nn.modules.utils:_pair", "nn.modules.linear:Linear",
    "nn.modules.module:_addindent", "nn.modules.module:_IncompatibleKeys", "nn.modules.loss:_Loss",
    "nn.modules.activation:MultiheadAttention", "nn.modules.container:Sequential", "nn.modules.rnn:LSTM",
    "nn.modules.sparse:Embedding", "nn.modules.lazy:LazyModuleMixin", "nn.modules.pooling:MaxPool2d",
    "nn.modules.normalization:LayerNorm", "nn.modules.dropout:Dropout", "nn.modules:Module", "nn.modules:activation",
    "nn.parameter:UninitializedParameter", "nn.parameter:Parameter", "nn.parallel:DataParallel",
    "nn.utils.parametrizations:orthogonal", "nn.utils.weight_norm:WeightNorm", "nn.utils.clip_grad:clip_grad_norm_",
    "nn.utils.rnn:pad_sequence", "nn.utils.prune:l1_unstructured", "optim.adam:Adam", "optim.adamw:AdamW",
    "optim.sgd:SGD", "optim.rmsprop:RMSprop", "optim.optimizer:Optimizer", "optim.lr_scheduler:LambdaLR",
    "distributions.normal:Normal", "distributions.bernoulli:Bernoulli", "distributions.utils:broadcast_all",
    "distributions.utils:_standard_normal", "distributions.kl:register_kl", "distributions.von_mises:VonMises",
    "distributions.transformed_distribution:TransformedDistribution", "utils.data.dataset:Dataset",
    "utils.data.sampler:Sampler", "utils.data.dataloader:default_collate", "utils.data._utils.collate:default_collate",
    "utils.data.distributed:DistributedSampler", "autograd.anomaly_mode:detect_anomaly",
    "distributions.constraints:_IndependentConstraint", "distributions.constraints:_Real",
    "distributions.transforms:_InverseTransform", "distributed.tensor:DTensor",
    "distributed._composable.fsdp:FSDPModule",
    "distributed.tensor.experimental:implicit_replication", "nn.parallel:data_parallel", "futures:Future",
    "nn.parallel.scatter_gather:scatter", "utils._foreach_utils:_group_tensors_by_device_and_dtype",
    "utils.data.dataloader:_collate_fn_t", "utils.tensorboard.writer:SummaryWriter", "_dynamo:is_compiling",
    "hub:HASH_REGEX", "distributed:Backend", "__config__:show",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_a_name_is_found_under_the_path_it_has_in_torch(path: str) -> None:
    module, _, name = path.partition(":")
    assert getattr(importlib.import_module(f"autojit.{module}"), name) is not None


def test_a_star_import_takes_the_public_names() -> None:
    names: dict[str, object] = {}
    exec("from autojit.nn.modules.conv import *", names)
    assert "Conv2d" in names
    assert "_ConvNd" not in names


def test_public_names_are_listed_where_torch_lists_them() -> None:
    """Libraries take ``__all__`` of these modules, to add to it or to wrap what is in it."""
    for path in ("distributions.constraints", "distributions.transforms", "distributions", "nn.functional", "optim"):
        module = importlib.import_module(f"autojit.{path}")
        assert module.__all__ and all(hasattr(module, name) for name in module.__all__), path


def test_unknown_names_are_missing_and_not_looked_up_forever() -> None:
    module = importlib.import_module("autojit.nn.modules.conv")
    with pytest.raises(AttributeError, match="no attribute 'Conv9d'"):
        _ = module.Conv9d
    with pytest.raises(ImportError):
        importlib.import_module("autojit.nn.modules.nothing")
