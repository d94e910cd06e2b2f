"""Linear algebra with torch.linalg's names: factorisations, solving, determinants, norms."""

from autojit.functions.argument_errors import name_arguments_in_errors
from autojit.functions.matrix import matrix_exp
from autojit.linalg.factorizations import (
    cholesky,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    inv,
    lstsq,
    pinv,
    qr,
    solve,
    solve_triangular,
    svd,
    svdvals,
)  # fmt: skip
from autojit.linalg.indefinite import ldl_factor, ldl_factor_ex, ldl_solve
from autojit.linalg.products import (
    cond,
    cross,
    det,
    diagonal,
    matmul,
    matrix_norm,
    matrix_power,
    matrix_rank,
    multi_dot,
    norm,
    slogdet,
    vander,
    vecdot,
    vector_norm,
)  # fmt: skip
from autojit.linalg.reporting import cholesky_ex, inv_ex, solve_ex
from autojit.linalg.triangular import (
    householder_product,
    lu,
    lu_factor,
    lu_factor_ex,
    lu_solve,
    tensorinv,
    tensorsolve,
)  # fmt: skip
from autojit.ops.failed_matrices import LinAlgError

__all__ = [
    "LinAlgError", "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals",
    "eigvalsh", "householder_product", "inv", "inv_ex", "ldl_factor", "ldl_factor_ex",
    "ldl_solve", "lstsq", "lu", "lu_factor", "lu_factor_ex", "lu_solve",
    "matmul", "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank", "multi_dot", "norm", "pinv", "qr",
    "slogdet", "solve", "solve_ex", "solve_triangular", "svd", "svdvals", "tensorinv", "tensorsolve", "vander",
    "vecdot", "vector_norm",
]  # fmt: skip

name_arguments_in_errors(globals(), __all__)
