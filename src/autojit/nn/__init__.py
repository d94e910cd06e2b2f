"""torch.nn's layers, losses and containers over autojit's public ops. README.md says how a Module is read."""

from autojit.core.lazy_modules import LazyNames as _LazyNames
from autojit.core.lazy_modules import list_names as _list_names
from autojit.core.lazy_modules import provide as _provide
from autojit.nn import functional as functional
from autojit.nn import grad as grad
from autojit.nn import init as init
from autojit.nn import jitted as _jitted  # noqa: F401 - says what jit makes of a module
from autojit.nn import parallel as parallel
from autojit.nn import parameter as parameter
from autojit.nn import utils as utils
from autojit.nn.activation import *
from autojit.nn.batchnorm import *
from autojit.nn.containers import *
from autojit.nn.convolution import *
from autojit.nn.data_parallel import DataParallel as DataParallel
from autojit.nn.dropout import *
from autojit.nn.factory import factory_kwargs as factory_kwargs
from autojit.nn.functional.grouped import LinearCrossEntropyOptions as LinearCrossEntropyOptions
from autojit.nn.lazy import *
from autojit.nn.linear import *
from autojit.nn.loss import *
from autojit.nn.module import Module as Module
from autojit.nn.multihead_attention import MultiheadAttention as MultiheadAttention
from autojit.nn.normalization import *
from autojit.nn.output_loss import AdaptiveLogSoftmaxWithLoss as AdaptiveLogSoftmaxWithLoss
from autojit.nn.output_loss import LinearCrossEntropyLoss as LinearCrossEntropyLoss
from autojit.nn.parameter import Buffer as Buffer
from autojit.nn.parameter import Parameter as Parameter
from autojit.nn.parameter import UninitializedBuffer as UninitializedBuffer
from autojit.nn.parameter import UninitializedParameter as UninitializedParameter
from autojit.nn.pooling import *
from autojit.nn.rnn import *
from autojit.nn.rnn_cells import *
from autojit.nn.shape import *
from autojit.nn.transformer import *
from autojit.nn.upsampling import *

__getattr__ = _LazyNames(__name__, modules="attention modules")
_provide("autojit.nn", {"common_types": "extents", "_reduction": "functional.reduction"})
_list_names(globals(), "functional grad init modules parallel parameter utils")
