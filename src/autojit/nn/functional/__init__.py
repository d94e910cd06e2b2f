"""torch.nn.functional's functions, as compositions of autojit's public ops. ``F`` in the examples."""

from autojit.core.lazy_modules import LazyNames as _LazyNames
from autojit.core.lazy_modules import list_names as _list_names
from autojit.functions.argument_errors import name_arguments_in_errors as _name_arguments_in_errors
from autojit.nn.functional.activation import *
from autojit.nn.functional.adaptive_pooling import *
from autojit.nn.functional.attention import multi_head_attention_forward as multi_head_attention_forward
from autojit.nn.functional.attention import scaled_dot_product_attention as scaled_dot_product_attention
from autojit.nn.functional.classification import *
from autojit.nn.functional.convolution import *
from autojit.nn.functional.ctc import ctc_loss as ctc_loss
from autojit.nn.functional.dispatching import assert_int_or_pair as assert_int_or_pair
from autojit.nn.functional.dispatching import boolean_dispatch as boolean_dispatch
from autojit.nn.functional.distance import *
from autojit.nn.functional.dropout import *
from autojit.nn.functional.folding import *
from autojit.nn.functional.fractional import *
from autojit.nn.functional.grids import affine_grid as affine_grid
from autojit.nn.functional.grids import grid_sample as grid_sample
from autojit.nn.functional.grouped import grouped_mm as grouped_mm
from autojit.nn.functional.grouped import linear_cross_entropy as linear_cross_entropy
from autojit.nn.functional.linear import *
from autojit.nn.functional.loss import *
from autojit.nn.functional.normalization import *
from autojit.nn.functional.padding import pad as pad
from autojit.nn.functional.pooling import *
from autojit.nn.functional.resampling import *
from autojit.nn.functional.vision import *
from autojit.tensor import Tensor as Tensor

__getattr__ = _LazyNames(__name__, {"grad": "autojit.nn:grad"})
_name_arguments_in_errors(globals(), _list_names(globals()))
