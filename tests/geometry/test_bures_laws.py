"""Laws of the Bures-Wasserstein distance, logarithm, exponential and geodesic."""

from __future__ import annotations

import pytest
import torch

from gbwatt.errors import DomainError
from gbwatt.geometry import AffineInvariant, BuresWasserstein, GeneralizedBuresWasserstein, lyapunov, sqrtm
from gbwatt.geometry.linalg import factor
from tests.conftest import SPECTRA, spectrum
from tests.geometry.conftest import CONDITIONS, DTYPES, SIZES, assert_close, exact

BW = BuresWasserstein()


@pytest.fixture(params=SIZES)
def k(request):
    return request.param


@pytest.fixture
def pair(spd):
    """Two matrices of independent orientation, the second twice as large, so that they differ at condition 1 too."""

    def make(**how):
        x, y = spd(2, **how)
        return x, 2 * y

    return make


def transport_norm(x, y):
    """Largest eigenvalue of the transport maps both ways: what rounding in x or y is multiplied by."""
    x, y = (a.detach().double().clone().requires_grad_() for a in (x, y))
    gx, gy = torch.autograd.grad(BW.sqdist(x, y).sum(), (x, y))
    return torch.maximum(*(torch.linalg.matrix_norm(g, 2) for g in (gx, gy)))


@pytest.mark.parametrize("kind", SPECTRA)
def test_distance_is_the_procrustes_minimum(pair, orthogonal, case, k, kind):
    """d = min over orthogonal Q of |A - B Q|, attained at the polar factor (scipy's solution)."""
    scipy_linalg = pytest.importorskip("scipy.linalg")
    dtype, cond = case
    x, y = pair(k=k, cond=cond, dtype=dtype, kind=kind)
    a, b = factor(x).double(), factor(y).double()
    q, _ = scipy_linalg.orthogonal_procrustes(b.numpy(), a.numpy())
    assert_close(BW.dist(x, y).double(), torch.linalg.matrix_norm(a - b @ torch.from_numpy(q)), exact(dtype))
    for seed in range(5):
        other = torch.linalg.matrix_norm(a - b @ orthogonal(k, seed))
        assert BW.dist(x, y).double() <= other * (1 + exact(dtype))


def test_commuting_matrices_differ_by_their_square_roots(case, k):
    """d² = Σ (√a - √b)² for diagonal matrices, also where one is large and the other small."""
    dtype, cond = case
    a, b = spectrum("spread", k, cond).to(dtype), spectrum("spread", k, cond).flip(0).to(dtype) * 2
    assert_close(
        BW.sqdist(torch.diag(a), torch.diag(b)),
        (a.double().sqrt() - b.double().sqrt()).square().sum(),
        exact(dtype),
    )


def test_commuting_matrices_in_a_common_basis(orthogonal, case, k):
    """The same in a rotated basis, where rounding of x is multiplied by the transport map."""
    dtype, cond = case
    q = orthogonal(k)
    a, b = spectrum("spread", k, cond), 2 * spectrum("spread", k, cond).flip(0)
    x, y = ((q * a) @ q.mT).to(dtype), ((q * b) @ q.mT).to(dtype)
    want = (a.sqrt() - b.sqrt()).square().sum()
    assert_close(BW.sqdist(x, y).double(), want, exact(dtype, (cond * 2) ** 0.5))


def test_size_one_is_the_wasserstein_distance_of_gaussians(case):
    """W2 of two centred Gaussians on the line is the difference of their standard deviations."""
    dtype, cond = case
    x, y = torch.tensor([[1.0]], dtype=dtype), torch.tensor([[4 / cond]], dtype=dtype)
    assert_close(BW.dist(x, y), (1 - y.double().sqrt())[0, 0].abs(), exact(dtype))


@pytest.mark.parametrize("kind", SPECTRA)
def test_distance_is_invariant_under_rotation(pair, orthogonal, case, k, kind):
    """d(Q X Qᵀ, Q Y Qᵀ) = d(X, Y)."""
    dtype, cond = case
    x, y = pair(k=k, cond=cond, dtype=dtype, kind=kind)
    q = orthogonal(k).to(dtype)
    rotated = [torch.triu(z := q @ a @ q.mT) + torch.triu(z, 1).mT for a in (x, y)]
    d2 = BW.sqdist(x, y)
    amplification = (1 + transport_norm(x, y)) / d2.double().clamp_min(1e-30)
    assert_close(BW.sqdist(*rotated), d2, exact(dtype, amplification))


def test_squared_distance_scales_linearly(pair, case, k):
    """d²(s X, s Y) = s d²(X, Y), also in the units of V² of EEG."""
    dtype, cond = case
    x, y = pair(k=k, cond=cond, dtype=dtype)
    for s in (1e-12, 3.0, 1e6):
        assert_close(BW.sqdist(s * x, s * y), s * BW.sqdist(x, y), exact(dtype))


def test_distance_is_bounded_by_the_roots(pair, case, k):
    """d ≤ |X^½ - Y^½|."""
    dtype, cond = case
    x, y = pair(k=k, cond=cond, dtype=dtype)
    bound = torch.linalg.matrix_norm(sqrtm(x) - sqrtm(y))
    assert BW.dist(x, y) <= bound * (1 + exact(dtype))


def test_generalised_distance_is_invariant_under_joint_congruence(spd, k):
    """d(G X Gᵀ, G Y Gᵀ; G M Gᵀ) = d(X, Y; M); M = I is Bures-Wasserstein; M = s I divides d² by s."""
    x, y, m, g = spd(4, k=k, cond=1e2)
    moved = [(z := g @ a @ g.mT, (z + z.mT) / 2)[1] for a in (x, y, m)]
    assert_close(
        GeneralizedBuresWasserstein(moved[2]).sqdist(*moved[:2]),
        GeneralizedBuresWasserstein(m).sqdist(x, y),
        exact(torch.float64, 1e4),
    )
    eye = torch.eye(k, dtype=torch.float64)
    assert_close(GeneralizedBuresWasserstein(eye).sqdist(x, y), BW.sqdist(x, y), 1e-12)
    assert_close(GeneralizedBuresWasserstein(5 * eye).sqdist(x, y), BW.sqdist(x, y) / 5, 1e-12)


@pytest.mark.parametrize("theta", [1.0, 1.5, -0.7])
def test_generalised_metric_at_its_own_point_is_a_quarter_of_the_affine_invariant(spd, k, theta):
    """g_X with M = X^θ equals ¼ g^AIM of X^θ pulled back by the power, scaled by θ⁻²; for θ = 1, ¼ g^AIM."""
    from gbwatt.geometry import powm
    from gbwatt.geometry.linalg import POWER, spectral_derivative

    x, u, v = spd(3, k=k, cond=50)
    m = powm(x, theta)
    pushed = [spectral_derivative(x, a, POWER, theta) for a in (u, v)]
    want = AffineInvariant().inner(m, *pushed) / (4 * theta**2)
    assert_close(GeneralizedBuresWasserstein(m, theta).inner(x, u, v), want, 1e-11)


def test_exp_inverts_log(pair, case, k):
    """Exp_X(Log_X Y) = Y; the Lyapunov equation amplifies rounding by the square root of the condition."""
    dtype, cond = case
    x, y = pair(k=k, cond=cond, dtype=dtype)
    amplification = (1 + transport_norm(x, y)) ** 2
    assert_close(BW.exp(x, BW.log(x, y)), y, exact(dtype, amplification))


def test_transport_map_carries_x_to_y(pair, case, k):
    """With T = I + L_X(Log_X Y): T X T = Y, and L_X(Log_X Y) = T - I is the gradient of -½ d²."""
    dtype, cond = case
    x, y = pair(k=k, cond=cond, dtype=dtype)
    t = torch.eye(k, dtype=dtype) + lyapunov(x, BW.log(x, y))
    assert_close(t @ x @ t, y, exact(dtype, cond))
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(BW.sqdist(leaf, y), leaf)
    assert_close(gradient, torch.eye(k, dtype=dtype) - t, exact(dtype, cond))


def test_log_and_exp_at_the_identity(spd, case, k):
    """Log_I X = 2 (X^½ - I) and Exp_I S = (I + S / 2)²; the root multiplies rounding of X by ½ λ_min^-½."""
    dtype, cond = case
    eye = torch.eye(k, dtype=dtype)
    x = spd(k=k, cond=cond, dtype=dtype)
    root = 2 * (sqrtm(x) - eye)
    assert_close(BW.log(eye, x) + 2 * eye, root + 2 * eye, exact(dtype, cond**0.5))
    assert_close(BW.exp(eye, root), (eye + root / 2) @ (eye + root / 2), exact(dtype))


def test_geodesic_stays_positive_inside_its_interval_and_is_singular_at_its_ends(pair, k):
    """γ(t) is SPD inside the interval of the paper's proposition, singular at its finite ends, an error outside."""
    x, y = pair(k=k, cond=1e2)
    y = y + 0.5 * torch.diag(torch.linspace(-1, 1, k, dtype=torch.float64)).abs()
    v = BW.log(x, y)
    low, high = BW.interval(x, v)
    speed = lyapunov(x, v)
    for end in (low, high):
        if torch.isfinite(end):
            point = torch.eye(k, dtype=torch.float64) + end * speed
            assert torch.linalg.eigvalsh(point).abs().min() < 1e-12
            inside, outside = float(end) * (1 - 1e-6), float(end) * (1 + 1e-6)
            assert torch.linalg.eigvalsh(BW.geodesic(x, y, inside)).min() > 0
            with pytest.raises(DomainError, match="interval"):
                BW.geodesic(x, y, outside)
            with pytest.raises(DomainError, match="interval"):
                BW.exp(x, outside * v)
    assert low < 0 < 1 < high


def test_interval_covers_the_three_cases_of_the_proposition():
    """Shrinking, growing and mixed directions at the identity."""
    eye = torch.eye(2, dtype=torch.float64)
    for diagonal, want in (
        ((2.0, 4.0), (-0.5, torch.inf)),
        ((-2.0, -4.0), (-torch.inf, 0.5)),
        ((-2.0, 4.0), (-0.5, 1.0)),
    ):
        low, high = BW.interval(eye, torch.diag(torch.tensor(diagonal, dtype=torch.float64)))
        assert (float(low), float(high)) == pytest.approx(want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cond", CONDITIONS)
def test_nothing_is_nan_at_any_condition_number(spd, dtype, cond):
    """Distances and their gradients are finite where float32 covariances are no longer definite."""
    x, y = spd(2, 6, k=18, cond=cond, dtype=dtype, kind="gap").requires_grad_()
    d = BW.dist(x, y)
    (gradient,) = torch.autograd.grad(d.sum(), x)
    assert torch.isfinite(d).all()
    assert torch.isfinite(gradient).all()
