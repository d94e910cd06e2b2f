"""Linear algebra with torch.linalg's names: factorisations, solving, determinants, norms."""

from autojit.functions.argument_errors import name_arguments_in_errors
from autojit.functions.matrix import matrix_exp
from autojit.linalg.factorizations import *
from autojit.linalg.factorizations import __all__ as _factorizations
from autojit.linalg.indefinite import *
from autojit.linalg.indefinite import __all__ as _indefinite
from autojit.linalg.products import *
from autojit.linalg.products import __all__ as _products
from autojit.linalg.reporting import *
from autojit.linalg.reporting import __all__ as _reporting
from autojit.linalg.triangular import *
from autojit.linalg.triangular import __all__ as _triangular
from autojit.ops.failed_matrices import LinAlgError

__all__ = ["LinAlgError", "matrix_exp", *_factorizations, *_indefinite, *_products, *_reporting, *_triangular]

name_arguments_in_errors(globals(), __all__)
