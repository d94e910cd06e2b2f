"""Functions composed of others: angles, products of many operands, distances, integrals, statistics of rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from autojit.core.errors import UsageError
from autojit.tensor.factories import zeros
from autojit.tensor.functions_elementwise import (
    add,
    div,
    exp2,
    lgamma,
    log,
    logaddexp,
    mul,
    ones_where,
    pow,
    sin,
    sub,
    where,
)
from autojit.tensor.functions_indexing import index_select
from autojit.tensor.functions_reduction import mean, norm, sum
from autojit.tensor.functions_shape import bmm, cat, diag_embed, expand, matmul, meshgrid, reshape, stack, unsqueeze
from autojit.tensor.promotion import floating
from autojit.tensor.tensor import Tensor, type_of
