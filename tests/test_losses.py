"""Proved bounds of the losses, attained and never exceeded."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgbb_fast import losses
from pgbb_fast.errors import DomainError
from pgbb_fast.kernels import reference
from pgbb_fast.kernels.scalar import losses as scalar

finite = st.floats(-1e12, 1e12)
LOSSES = [
    losses.smoothed_quantile([0.1, 0.5, 0.9], 0.2),
    losses.smoothed_quantile([0.25], 0.01, "logistic"),
    losses.huber(),
    losses.huber(0.5, 0.4),
    losses.huber_fixed_scale(0.7),
    losses.logistic(),
]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kernel)
@given(y=finite, eta=finite, scale=st.floats(1e-6, 1e6))
def test_slopes_never_exceed_their_bounds(loss, y, eta, scale):
    y = float(y > 0) if loss.kernel == "logistic" else y
    for a, b in loss.constants:
        by_eta, by_scale = getattr(scalar, loss.kernel)(y, eta, *scalar.CONSTANTS[loss.kernel](scale, a, b))
        assert abs(by_eta) <= loss.slope_bound
        assert abs(by_scale) <= loss.scale_bound * (1 + 2**-50)  # psi^2 / 2 - kappa / 2 has two roundings


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kernel)
def test_bounds_are_attained(loss):
    """Far residuals reach the bound of the slope to one part in 1e12, so that no tighter one exists."""
    y = np.array([-1e9, 0.0, 1e9]) if loss.kernel != "logistic" else np.array([0.0, 1.0])
    eta = np.array([0.0, 0.0, 0.0]) if loss.kernel != "logistic" else np.array([50.0, -50.0])
    slopes = [reference.REGRESSION_SLOPES[loss.kernel](y, eta, 1.0, a, b) for a, b in loss.constants]
    assert max(np.abs(s[0]).max() for s in slopes) == pytest.approx(loss.slope_bound, rel=1e-12)
    assert max(np.abs(s[1]).max() for s in slopes) == pytest.approx(loss.scale_bound, rel=1e-12)


def test_gradient_bound_is_that_of_the_method():
    B = 1.7
    c, kappa = 1.345, 0.71
    assert losses.huber().gradient_bound(B) == pytest.approx(
        math.sqrt(c**2 * B**2 + max(kappa / 2, (c**2 - kappa) / 2) ** 2), rel=1e-15
    )
    assert losses.smoothed_quantile([0.1, 0.7], 1.0).gradient_bound(B) == pytest.approx(0.9 * B, rel=1e-15)
    assert losses.logistic().gradient_bound(B) == B


@pytest.mark.parametrize("tau", [0.0, 1.0, -0.1, 1.5, math.nan, "0.5", None, True])
def test_levels_outside_the_unit_interval(tau):
    with pytest.raises(DomainError, match="tau"):
        losses.smoothed_quantile([tau], 0.1)


@pytest.mark.parametrize("h", [0.0, -1.0, math.nan, math.inf])
def test_bandwidths(h):
    with pytest.raises(DomainError, match="bandwidth"):
        losses.smoothed_quantile([0.5], h)
