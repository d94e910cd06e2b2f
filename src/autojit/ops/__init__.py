"""The vocabulary: every op class and the function that applies it, by name."""

from __future__ import annotations

from autojit.ops.composites_activation import *
from autojit.ops.composites_loss import *
from autojit.ops.composites_normalization import *
from autojit.ops.composites_reduction import *
from autojit.ops.decompositions import *
from autojit.ops.einsum import *
from autojit.ops.elementwise_arithmetic import *
from autojit.ops.elementwise_complex import *
from autojit.ops.elementwise_exponential import *
from autojit.ops.elementwise_logic import *
from autojit.ops.elementwise_rounding import *
from autojit.ops.elementwise_selection import *
from autojit.ops.elementwise_special import *
from autojit.ops.elementwise_trigonometric import *
from autojit.ops.indexing import *
from autojit.ops.joining import *
from autojit.ops.linalg import *
from autojit.ops.matmul import *
from autojit.ops.random import *
from autojit.ops.reductions import *
from autojit.ops.scans import *
from autojit.ops.scatter import *
from autojit.ops.shape import *
from autojit.ops.sorting import *
from autojit.ops.sources import *
from autojit.ops.triangles import *
from autojit.ops.views import *
