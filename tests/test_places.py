"""Programs whose operands are on another device than the default one: results are there, and are those of the CPU."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import distributions as d
from autojit import func, nn, optim
from autojit.autograd import functional
from autojit.nn import functional as F
from autojit.testing import second_device

Put = Callable[..., aj.Tensor]  # a tensor of numbers where a program runs
Program = Callable[[Put], Any]

RNG = np.random.default_rng(3)
X = RNG.normal(size=(4, 5)).astype(np.float32)
Y = RNG.normal(size=(4, 5)).astype(np.float32)
SQUARE = (X[:, :4] @ X[:, :4].T + 4 * np.eye(4)).astype(np.float32)
IMAGE = RNG.normal(size=(2, 4, 6, 6)).astype(np.float32)
FRAMES = RNG.normal(size=(6, 2, 5)).astype(np.float32)
CLASSES = np.array([0, 4, 2, 1])
SHARES = np.array([0.2, 0.5, 0.3], np.float32)


@pytest.fixture(scope="module")
def there() -> Iterator[str]:
    with second_device("there") as name:
        yield name


def tensors_of(found: Any) -> list[aj.Tensor]:
    """The tensors of nested results."""
    if isinstance(found, aj.Tensor):
        return [found.coalesce().indices(), found.coalesce().values()] if found.is_sparse else [found]
    parts = found.values() if isinstance(found, dict) else found if isinstance(found, tuple | list) else ()
    return [tensor for part in parts for tensor in tensors_of(part)]


def assert_the_same_there(program: Program, there: str) -> None:
    """A program gives on the other device what it gives on the CPU, and it is on that device."""

    def ran(place: str) -> list[aj.Tensor]:
        aj.manual_seed(5)
        return tensors_of(program(lambda array, **options: aj.tensor(array, device=place, **options)))

    here, elsewhere = ran("cpu"), ran(there)
    assert elsewhere
    assert {t.device.type for t in elsewhere} == {there}
    for found, expected in zip(elsewhere, here, strict=True):
        assert found.dtype is expected.dtype
        np.testing.assert_allclose(found.cpu().detach().numpy(), expected.detach().numpy(), rtol=1e-4, atol=1e-6)


def _cube(x: aj.Tensor) -> aj.Tensor:
    return (x**3).sum()


def _with_gradients(function: Callable[..., Any], *operands: aj.Tensor) -> Any:
    """Results, and gradients by the floating-point operands."""
    leaves = [x for x in operands if x.is_floating_point()]
    for leaf in leaves:
        leaf.requires_grad_()
    found = function(*operands)
    total = sum(t.sum() for t in tensors_of(found) if t.is_floating_point() and t.requires_grad)
    return [found, *(aj.autograd.grad(total, leaves, allow_unused=True) if isinstance(total, aj.Tensor) else ())]


DERIVATIVES: dict[str, Program] = {
    "hessian": lambda put: func.hessian(_cube)(put(X[0])),
    "jacrev": lambda put: func.jacrev(aj.sin)(put(X)),
    "jacrev in chunks": lambda put: func.jacrev(aj.sin, chunk_size=2)(put(X)),
    "jacfwd": lambda put: func.jacfwd(aj.sin)(put(X)),
    "vmap of grad": lambda put: func.vmap(func.grad(_cube))(put(X)),
    "vmap with random numbers": lambda put: func.vmap(F.dropout, randomness="different")(put(X)),
    "jvp": lambda put: func.jvp(aj.sin, (put(X),), (put(Y),)),
    "vjp": lambda put: func.vjp(aj.sin, put(X))[1](put(Y)),
    "linearize": lambda put: func.linearize(aj.sin, put(X))[1](put(Y)),
    "jacobian": lambda put: functional.jacobian(aj.sin, put(X[0])),
    "vectorized jacobian": lambda put: functional.jacobian(aj.sin, put(X[0]), vectorize=True),
    "forward jacobian": lambda put: functional.jacobian(aj.sin, put(X[0]), vectorize=True, strategy="forward-mode"),
    "jacobian of what is not used": lambda put: functional.jacobian(lambda x, y: x * 2, (put(X[0]), put(Y[0]))),
    "unused, vectorized": lambda put: functional.jacobian(lambda x, y: x * 2, (put(X[0]), put(Y[0])), vectorize=True),
    "functional hessian": lambda put: functional.hessian(_cube, put(X[0])),
    "hvp": lambda put: functional.hvp(_cube, put(X[0]), put(Y[0])),
    "vhp": lambda put: functional.vhp(_cube, put(X[0]), put(Y[0])),
    "gradient of a sum": lambda put: _with_gradients(_cube, put(X)),
}

OF_DISTRIBUTIONS: dict[str, Callable[[Put], Any]] = {
    "normal": lambda put: d.Normal(put(X[0]), put(1.5)),
    "a number beside": lambda put: d.Normal(put(X[0]), 1.5),
    "log normal": lambda put: d.LogNormal(put(0.3), put(0.3)),
    "laplace": lambda put: d.Laplace(put(0.3), put(1.5)),
    "cauchy": lambda put: d.Cauchy(put(0.3), put(1.5)),
    "gumbel": lambda put: d.Gumbel(put(0.3), put(1.5)),
    "uniform": lambda put: d.Uniform(put(0.3), put(1.5)),
    "exponential": lambda put: d.Exponential(put(1.5)),
    "gamma": lambda put: d.Gamma(put(0.4), put(1.5)),
    "chi2": lambda put: d.Chi2(put(7.0)),
    "inverse gamma": lambda put: d.InverseGamma(put(7.0), put(2.0)),
    "beta": lambda put: d.Beta(put(0.7), put(2.0)),
    "student": lambda put: d.StudentT(put(9.0), put(1.0), put(2.0)),
    "fisher": lambda put: d.FisherSnedecor(put(5.0), put(20.0)),
    "half normal": lambda put: d.HalfNormal(put(2.0)),
    "half cauchy": lambda put: d.HalfCauchy(put(2.0)),
    "weibull": lambda put: d.Weibull(put(1.5), put(2.0)),
    "pareto": lambda put: d.Pareto(put(1.5), put(2.0)),
    "kumaraswamy": lambda put: d.Kumaraswamy(put(1.5), put(2.0)),
    "dirichlet": lambda put: d.Dirichlet(put(SHARES * 5)),
    "multivariate": lambda put: d.MultivariateNormal(put(X[0, :4]), put(SQUARE)),
    "multivariate by precision": lambda put: d.MultivariateNormal(put(X[0, :4]), precision_matrix=put(SQUARE)),
    "low rank": lambda put: d.LowRankMultivariateNormal(put(X[0]), put(X.T[:, :2]), put(np.abs(Y[0]) + 1)),
    "wishart": lambda put: d.Wishart(put(6.0), put(SQUARE)),
    "correlations": lambda put: d.LKJCholesky(3, put(1.5)),
    "von mises": lambda put: d.VonMises(put(0.3), put(2.0)),
    "continuous bernoulli": lambda put: d.ContinuousBernoulli(put(SHARES)),
    "bernoulli": lambda put: d.Bernoulli(put(SHARES)),
    "relaxed bernoulli": lambda put: d.RelaxedBernoulli(put(0.7), put(SHARES)),
    "geometric": lambda put: d.Geometric(put(SHARES)),
    "binomial": lambda put: d.Binomial(40, put(SHARES)),
    "negative binomial": lambda put: d.NegativeBinomial(put(2.5), put(SHARES)),
    "poisson": lambda put: d.Poisson(put(np.float32([0.5, 30.0]))),
    "categorical": lambda put: d.Categorical(put(SHARES)),
    "one hot": lambda put: d.OneHotCategorical(put(SHARES)),
    "one hot, straight through": lambda put: d.OneHotCategoricalStraightThrough(put(SHARES)),
    "relaxed one hot": lambda put: d.RelaxedOneHotCategorical(put(0.7), put(SHARES)),
    "multinomial": lambda put: d.Multinomial(40, put(SHARES)),
    "mixture": lambda put: d.MixtureSameFamily(d.Categorical(put(SHARES)), d.Normal(put(SHARES), put(SHARES))),
    "independent": lambda put: d.Independent(d.Normal(put(SHARES), put(SHARES)), 1),
    "transformed": lambda put: d.TransformedDistribution(
        d.Normal(put(X[0, :3]), put(SHARES)), [d.StickBreakingTransform()]
    ),
    "correlations by a transform": lambda put: d.TransformedDistribution(
        d.Normal(put(X[0, :3]), put(SHARES)), [d.CorrCholeskyTransform()]
    ),
}


def _asked(made: Any) -> list[Any]:
    """What a distribution answers."""
    drawn = made.sample((3,))
    found = [drawn, made.log_prob(drawn)]
    found += [made.rsample((2,))] if made.has_rsample else []
    for ask in (
        lambda: made.entropy(),
        lambda: made.enumerate_support(),
        lambda: made.cdf(drawn),
        lambda: made.mean,
        lambda: made.variance,
        lambda: made.mode,
        lambda: made.covariance_matrix,
        lambda: made.precision_matrix,
        lambda: made.scale_tril,
        lambda: d.kl_divergence(made, made),
    ):
        with suppress(NotImplementedError, AttributeError):  # not every one answers
            found.append(ask())
    return found


LAYERS: dict[str, tuple[Callable[[], nn.Module], Any]] = {
    "linear": (lambda: nn.Linear(5, 3), X),
    "bilinear": (lambda: nn.Bilinear(5, 5, 2), (X, Y)),
    "convolution": (lambda: nn.Conv2d(4, 2, 3, padding=1, padding_mode="reflect"), IMAGE),
    "transposed": (lambda: nn.ConvTranspose2d(4, 2, 3), IMAGE),
    "batch norm": (lambda: nn.BatchNorm2d(4), IMAGE),
    "instance norm": (lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True), IMAGE),
    "group norm": (lambda: nn.GroupNorm(2, 4), IMAGE),
    "local response": (lambda: nn.LocalResponseNorm(2), IMAGE),
    "rms norm": (lambda: nn.RMSNorm(5), X),
    "dropout": (lambda: nn.Dropout(0.3), X),
    "dropout of channels": (lambda: nn.Dropout2d(0.3), IMAGE),
    "alpha dropout": (lambda: nn.AlphaDropout(0.3), X),
    "randomized relu": (lambda: nn.RReLU(), X),
    "learned slope": (lambda: nn.PReLU(), X),
    "maxima": (lambda: nn.MaxPool2d(2, return_indices=True), IMAGE),
    "fractional maxima": (lambda: nn.FractionalMaxPool2d(2, output_size=3), IMAGE),
    "adaptive means": (lambda: nn.AdaptiveAvgPool2d(4), IMAGE),
    "adaptive maxima": (lambda: nn.AdaptiveMaxPool2d(4), IMAGE),
    "upsampling": (lambda: nn.Upsample(scale_factor=1.5, mode="bicubic"), IMAGE),
    "folds": (lambda: nn.Unfold(2), IMAGE),
    "shuffled": (lambda: nn.PixelShuffle(2), IMAGE),
    "embedding": (lambda: nn.Embedding(6, 3, padding_idx=1, max_norm=1.0), CLASSES),
    "sparse embedding": (lambda: nn.Embedding(6, 3, sparse=True), CLASSES),
    "bags": (lambda: nn.EmbeddingBag(6, 3, mode="max"), CLASSES[None]),
    "recurrent": (lambda: nn.RNN(5, 3), X[None]),
    "lstm": (lambda: nn.LSTM(5, 3, 2, bidirectional=True, dropout=0.2), X[None]),
    "gru": (lambda: nn.GRU(5, 3), X[None]),
    "cell": (lambda: nn.LSTMCell(5, 3), X),
    "attention": (lambda: nn.MultiheadAttention(4, 2), (SQUARE, SQUARE, SQUARE)),
    "encoder": (lambda: nn.TransformerEncoderLayer(4, 2, 8), SQUARE[None]),
    "output loss": (lambda: nn.AdaptiveLogSoftmaxWithLoss(5, 5, [2]), (X, CLASSES)),
    "lazy": (lambda: nn.LazyLinear(2), X),
    "spectral": (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(5, 3)), X),
    "orthogonal": (lambda: nn.utils.parametrizations.orthogonal(nn.Linear(5, 3)), X),
    "weight norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(5, 3)), X),
}


def _layer(make: Callable[[], nn.Module], given: Any) -> Program:
    def program(put: Put) -> Any:
        inputs = [put(array) for array in (given if isinstance(given, tuple) else (given,))]
        layer = make().to(inputs[0].device)
        for x in inputs:
            x.requires_grad_(x.is_floating_point())
        found = layer(*inputs)
        sum(t.sin().sum() for t in tensors_of(found) if t.requires_grad).backward()
        slopes = [x.grad for x in (*inputs, *layer.parameters()) if x.grad is not None]
        return [found, slopes, list(layer.buffers())]

    return program


LOSSES: dict[str, Program] = {
    "cross entropy": lambda put: _with_gradients(
        lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), put(X), put(CLASSES)
    ),
    "nll of images": lambda put: _with_gradients(F.nll_loss, put(IMAGE), put(np.ones((2, 6, 6), np.int64))),
    "ctc": lambda put: _with_gradients(
        lambda x: F.ctc_loss(x.log_softmax(-1), put(np.array([[1, 2], [3, 1]])), [6, 5], [2, 1]),
        put(FRAMES),
    ),
    "multi margin": lambda put: _with_gradients(F.multi_margin_loss, put(X), put(CLASSES)),
    "multilabel margin": lambda put: _with_gradients(
        F.multilabel_margin_loss, put(X), put(np.array([[3, 0, -1, 1, 2]] * 4))
    ),
    "multilabel": lambda put: _with_gradients(F.multilabel_soft_margin_loss, put(X), put((Y > 0).astype(np.float32))),
    "gaussian": lambda put: _with_gradients(F.gaussian_nll_loss, put(X), put(Y), put(np.abs(Y) + 1)),
    "poisson": lambda put: _with_gradients(lambda x, y: F.poisson_nll_loss(x, y, full=True), put(X), put(np.abs(Y))),
    "kl": lambda put: _with_gradients(lambda x, y: F.kl_div(x, y, reduction="sum"), put(X), put(np.abs(Y))),
    "binary": lambda put: _with_gradients(F.binary_cross_entropy_with_logits, put(X), put(np.abs(Y) % 1)),
    "huber": lambda put: _with_gradients(F.huber_loss, put(X), put(Y)),
    "cosine": lambda put: _with_gradients(
        lambda x, y: F.cosine_embedding_loss(x, y, put(np.float32([1, -1, 1, -1]))), put(X), put(Y)
    ),
    "triplets": lambda put: _with_gradients(F.triplet_margin_loss, put(X), put(Y), put(X + 1)),
    "ranking": lambda put: F.margin_ranking_loss(put(X), put(Y), put(np.sign(X))),
    "distances": lambda put: _with_gradients(F.pdist, put(X)),
    "all distances": lambda put: _with_gradients(aj.cdist, put(X), put(Y)),
}


def _slope_of_rows(weight: aj.Tensor, rows: aj.Tensor) -> aj.Tensor:
    F.embedding(rows, weight.requires_grad_(), sparse=True).sum().backward()
    assert weight.grad is not None and weight.grad.is_sparse
    return weight.grad


def _there_and_back(signal: aj.Tensor) -> list[aj.Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a window of ones leaks
        spectra = aj.stft(signal, 16, 4, win_length=12, return_complex=True)
        return [aj.view_as_real(spectra), aj.istft(spectra, 16, 4, win_length=12)]


FUNCTIONS: dict[str, Program] = {
    "one hot": lambda put: F.one_hot(put(CLASSES)),
    "gumbel softmax": lambda put: F.gumbel_softmax(put(X), hard=True),
    "grid": lambda put: F.grid_sample(
        put(IMAGE),
        F.affine_grid(put(np.float32([[[1, 0, 0.1], [0, 1, 0]]] * 2)), (2, 4, 3, 3), False),
        align_corners=False,
    ),
    "attention": lambda put: F.scaled_dot_product_attention(
        put(IMAGE), put(IMAGE), put(IMAGE), is_causal=True, dropout_p=0.2
    ),
    "folded": lambda put: F.fold(F.unfold(put(IMAGE), 2), (6, 6), 2),
    "unpooled": lambda put: F.max_unpool2d(*F.max_pool2d(put(IMAGE), 2, return_indices=True), 2),
    "lu": lambda put: aj.linalg.lu(put(SQUARE)),
    "lu without pivots": lambda put: aj.linalg.lu(put(SQUARE), pivot=False),
    "lu factors": lambda put: aj.lu_unpack(*aj.linalg.lu_factor(put(SQUARE))),
    "least squares": lambda put: list(aj.linalg.lstsq(put(X.T), put(Y.T), driver="gels")),
    "reflections": lambda put: aj.linalg.householder_product(put(X.T), put(np.float32([0.1, 0.2, 0.3, 0.4]))),
    "reflected": lambda put: aj.ormqr(put(X.T), put(np.float32([0.1, 0.2, 0.3, 0.4])), put(Y.T)),
    "reported inverse": lambda put: list(aj.linalg.inv_ex(put(SQUARE))),
    "reported factor": lambda put: list(aj.linalg.cholesky_ex(put(-SQUARE))),
    "powers": lambda put: aj.linalg.matrix_power(put(SQUARE), -2),
    "exponential": lambda put: aj.linalg.matrix_exp(put(SQUARE * 0.1)),
    "determinant": lambda put: list(aj.linalg.slogdet(put(SQUARE))),
    "eigen": lambda put: aj.linalg.eigvalsh(put(SQUARE)),
    "singular": lambda put: aj.linalg.svdvals(put(X)),
    "pseudo inverse": lambda put: aj.linalg.pinv(put(X)),
    "vander": lambda put: aj.linalg.vander(put(X[0])),
    "cross": lambda put: aj.linalg.cross(put(X[:, :3]), put(Y[:, :3])),
    "norms": lambda put: [aj.linalg.norm(put(X)), aj.linalg.cond(put(SQUARE)), aj.linalg.matrix_rank(put(X))],
    "spectra": lambda put: [aj.fft.rfft(put(X)), aj.fft.fftshift(put(X)), aj.fft.irfft(aj.fft.rfft(put(X)), 5)],
    "short spectra": lambda put: _there_and_back(put(IMAGE.reshape(2, -1))),
    "special": lambda put: [
        f(put(np.abs(X) + 0.5)) for f in (aj.special.digamma, aj.special.ndtri, aj.special.i0e, aj.special.bessel_j0)
    ],
    "polynomials": lambda put: aj.special.hermite_polynomial_h(put(X), 3),
    "zeta": lambda put: aj.special.zeta(put(np.abs(X) + 2), 1.5),
    "static places": lambda put: aj.nonzero_static(put((X > 0).astype(np.int64)), size=7),
    "counts": lambda put: [aj.bincount(put(CLASSES)), aj.histc(put(X), 5), aj.unique(put(CLASSES), return_counts=True)],
    "histogram": lambda put: list(aj.histogram(put(X), 4)),
    "searched": lambda put: [aj.searchsorted(put(np.sort(X)), put(Y)), aj.bucketize(put(X), put(np.sort(Y[0])))],
    "combinations": lambda put: [aj.combinations(put(CLASSES)), aj.cartesian_prod(put(CLASSES), put(CLASSES))],
    "triangles": lambda put: [aj.tril(put(X)), aj.diag_embed(put(X)), aj.block_diag(put(X), put(Y))],
    "covariances": lambda put: [aj.cov(put(X)), aj.corrcoef(put(X))],
    "integrals": lambda put: [aj.trapezoid(put(X)), *aj.gradient(put(X)), aj.cumulative_trapezoid(put(X))],
    "quantiles": lambda put: [aj.quantile(put(X), 0.3), aj.quantile(put(X), put(SHARES), 0), aj.nanmedian(put(X))],
    "dropout of features": lambda put: aj.feature_dropout(put(IMAGE), 0.5, True),
    "native dropout": lambda put: [aj.native_dropout(put(X), 0.5, True), aj.native_dropout(put(X), 0.5, False)],
    "draws": lambda put: [
        aj.poisson(put(np.abs(X) * 9)),
        aj.binomial(put(np.full(3, 9, np.float32)), put(SHARES)),
        aj.bernoulli(put(SHARES)),
        aj.normal(put(X), put(np.abs(Y))),
        put(X).exponential_(),
        put(X).geometric_(0.3),
        put(X).cauchy_(),
    ],
    "written": lambda put: [put(X).copy_(7), put(X).map_(put(Y), lambda a, b: a + b), put(X).fill_diagonal_(2)],
    "sparse": lambda put: [
        s := aj.sparse_coo_tensor(put(np.array([[0, 1, 1], [2, 0, 0]])), put(SHARES), (2, 4)),
        s.to_dense(),
        s @ put(X),
        (s * 2 + s).to_dense(),
        s.to_sparse_csr().to_dense(),
        aj.sparse.sum(s),
        s * aj.sparse_coo_tensor(put(np.array([[1, 0], [0, 3]])), put(SHARES[:2]), (2, 4)),
        s @ s.t(),
        s.to_sparse_csr().values(),
        s.to_sparse_csr().crow_indices(),
        s.to_sparse_csc().row_indices(),
        s.to_sparse_bsr((1, 2)).values(),
    ],
    "gradient of an embedding": lambda put: _slope_of_rows(put(X), put(CLASSES % 4)),
    "checked gradients": lambda put: (
        [put(X)] * aj.autograd.gradcheck(aj.sin, put(X, dtype=aj.float64).requires_grad_())
    ),
    "sparse of numbers": lambda put: aj.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], device=put(X).device),
    "blocks": lambda put: aj.sparse_bsr_tensor([0, 1], [1], put(X[None, :2]), (2, 10)).to_dense(),
    "masked": lambda put: [
        getattr(aj.masked, name)(put(X), 1, mask=put(X > 0)) for name in ("softmax", "mean", "argmax", "median", "var")
    ],
    "numpy's functions": lambda put: [
        np.delete(put(X), [1], 1),
        np.insert(put(X), 1, 5.0, 1),
        np.pad(put(X), 1, mode="reflect"),
        np.resize(put(X), (3, 3)),
        np.union1d(put(CLASSES), put(CLASSES)),
        np.gradient(put(X[0])),
        np.polyder(put(X[0])),
        np.polyint(put(X[0])),
        np.histogram(put(X), 4),
        np.unique(put(CLASSES), return_counts=True),
    ],
    "loops": lambda put: aj.scan(lambda c, x: (c + x, c * x), put(X[0]), put(X)),
    "norm of gradients": lambda put: nn.utils.clip_grads_with_norm_([put(X)], 1.0, put(2.0)) or put(X),
    "padded sequences": lambda put: nn.utils.rnn.pad_sequence([put(X[0]), put(X[0, :2])]),
    "a stacked batch": lambda put: aj.utils.data.default_collate([(put(x), put(y)) for x, y in zip(X, Y, strict=True)]),
    "a data set": lambda put: list(aj.utils.data.DataLoader(aj.utils.data.TensorDataset(put(X), put(Y)), 2, True)),
}

INITS: dict[str, Callable[[aj.Tensor], Any]] = {
    name: getattr(nn.init, name)
    for name in (
        "uniform_", "normal_", "trunc_normal_", "zeros_", "ones_", "xavier_uniform_", "xavier_normal_",
        "kaiming_uniform_", "kaiming_normal_", "orthogonal_", "eye_",
    )
} | {"sparse_": lambda x: nn.init.sparse_(x, 0.4), "dirac_": lambda x: nn.init.dirac_(x[:, :, None])}  # fmt: skip

OPTIMIZERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "sgd": lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: optim.Adam(p, 0.1, amsgrad=True),
    "capturable": lambda p: optim.AdamW(p, aj.tensor(0.1), capturable=True),
    "lbfgs": lambda p: optim.LBFGS(p, max_iter=3, line_search_fn="strong_wolfe"),
} | {
    name: lambda p, name=name: getattr(optim, name)(p)
    for name in ("Adadelta", "Adagrad", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "ASGD", "Adafactor")
}


def _scaled(put: Put) -> Any:
    """Steps whose loss is scaled, the second of which has gradients that are not finite."""
    x = put(X)
    model = nn.Linear(5, 3).to(x.device)
    optimizer, scaler = optim.SGD(model.parameters(), 0.1), aj.amp.GradScaler(x.device.type, init_scale=4.0)
    for factor in (1.0, float("inf"), 2.0):
        optimizer.zero_grad()
        scaler.scale((model(x) * factor).square().sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert scaler.is_enabled() and scaler.get_scale() == 2.0
    return list(model.parameters())


def _trained(make: Callable[[Any], optim.Optimizer]) -> Program:
    def program(put: Put) -> Any:
        model = nn.Linear(5, 3).to(put(X).device)
        optimizer = make(model.parameters())
        x = put(X)

        def closure() -> aj.Tensor:
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)
        return [list(model.parameters()), closure()]

    return program


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives(there: str, name: str) -> None:
    assert_the_same_there(DERIVATIVES[name], there)


@pytest.mark.parametrize("name", OF_DISTRIBUTIONS)
def test_distributions(there: str, name: str) -> None:
    assert_the_same_there(lambda put: _asked(OF_DISTRIBUTIONS[name](put)), there)


@pytest.mark.parametrize("name", LAYERS)
def test_layers(there: str, name: str) -> None:
    assert_the_same_there(_layer(*LAYERS[name]), there)


@pytest.mark.parametrize("name", LOSSES)
def test_losses(there: str, name: str) -> None:
    assert_the_same_there(LOSSES[name], there)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(there: str, name: str) -> None:
    assert_the_same_there(FUNCTIONS[name], there)


@pytest.mark.parametrize("name", INITS)
def test_initialisation(there: str, name: str) -> None:
    def program(put: Put) -> aj.Tensor:
        x = put(X)
        INITS[name](x)
        return x

    assert_the_same_there(program, there)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(there: str, name: str) -> None:
    assert_the_same_there(_trained(OPTIMIZERS[name]), there)


def test_a_scaled_loss(there: str) -> None:
    assert_the_same_there(_scaled, there)


def _pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def _saved(value: Any) -> Any:
    file = io.BytesIO()
    aj.save(value, file)
    file.seek(0)
    return aj.load(file, weights_only=False)


COPIES: dict[str, Callable[[Any], Any]] = {"deepcopy": copy.deepcopy, "pickle": _pickled, "save": _saved}


@pytest.mark.parametrize("copied", COPIES.values(), ids=list(COPIES))
def test_copies_are_where_the_original_is(there: str, copied: Callable[[Any], Any]) -> None:
    def program(put: Put) -> Any:
        place = put(X).device
        model = nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3)).to(place)
        optimizer = optim.Adam(model.parameters())
        model(put(X)).sum().backward()
        optimizer.step()
        twin, leaf = copied(model), copied(put(X).requires_grad_())
        tied = copied([model[0].weight, model[0].weight, nn.Buffer(put(Y))])
        assert tied[0] is tied[1] and type(tied[0]) is nn.Parameter
        assert leaf.requires_grad and all(p.requires_grad for p in twin.parameters())
        assert copied(model.state_dict()).keys() == model.state_dict().keys()
        states = [{k: v for k, v in s.items() if k != "step"} for s in copied(optimizer.state_dict())["state"].values()]
        lazy = (copy.deepcopy if copied is _saved else copied)(nn.LazyLinear(2, device=place))
        return [list(twin.parameters()), list(twin.buffers()), leaf, tied, states, lazy(put(X))]

    assert_the_same_there(program, there)


def test_what_is_made_of_a_tensor_goes_where_it_is_asked_for(there: str) -> None:
    x = aj.tensor(X, device=there)
    for make in (aj.tensor, aj.as_tensor, aj.asarray):
        assert make(x, device="cpu").device.type == "cpu"
        assert make(x).device.type == there
        assert make(x, device="cpu").tolist() == x.tolist()
    leaf = aj.ones(2, requires_grad=True)
    aj.as_tensor(leaf, device=there).sum().backward()
    assert leaf.grad is not None and leaf.grad.tolist() == [1.0, 1.0]
    assert aj.sparse_coo_tensor([[0]], aj.ones(1, device=there), device="cpu").device.type == "cpu"
