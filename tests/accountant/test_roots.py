"""Root search on values that rise, jump or are nowhere met: it ends, and the good end was tested and is good."""

import math

import pytest

from pgbb_fast.accountant.roots import bracket_root
from pgbb_fast.errors import PrivacyError


class Counted:
    """A function that keeps what it was asked."""

    def __init__(self, function):
        self.function, self.seen = function, {}
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        self.seen[x] = self.function(x)
        return self.seen[x]


def search(function, start=0.0, **limits):
    counted = Counted(function)
    found = bracket_root(counted, start, who="test", **{"low": -10.0, "high": 30.0, **limits})
    assert counted.seen[found.good] <= 0
    assert found.good == min(x for x, f in counted.seen.items() if f <= 0)
    return found, counted.calls


@pytest.mark.parametrize("slope", [0.1, 1.0, 13.0])
@pytest.mark.parametrize("root", [-3.7, 0.0, 0.21, 11.0])
def test_a_smooth_value_is_bracketed_within_the_tolerance(slope, root):
    found, calls = search(lambda x: slope * (root - x))
    assert found.bad < root <= found.good <= found.bad + 1e-5
    assert calls <= 20


@pytest.mark.parametrize("phase", range(8))
@pytest.mark.parametrize("blur", [1e-4, 1e-2, 0.1])
def test_a_blurred_value_ends_within_the_blur(phase, blur):
    """The value rises and falls by ``blur`` at every scale above 1e-6: no end is right, many are good."""
    found, calls = search(lambda x: 0.7 - x + blur * math.sin(1e6 * x + phase) * math.cos(7e3 * x))
    assert abs(found.good - 0.7) <= 2.5 * blur
    assert calls <= 60


def test_a_jump_is_bracketed_to_a_thousandth():
    found, calls = search(lambda x: 0.7123 - x + (0.06 if x < 0.7 else -0.06))
    assert found.bad < 0.7 <= found.good <= found.bad + 1e-3
    assert calls <= 15


def test_infinite_values_beside_the_root_are_bisected():
    found, calls = search(lambda x: math.inf if x < 0.7 else 0.5 - x)
    assert found.bad < 0.7 <= found.good <= found.bad + 1e-5
    assert calls <= 60


def test_nan_never_counts_as_met():
    found, _ = search(lambda x: math.nan if x < 2.0 else -math.inf)
    assert found.good >= 2.0
    with pytest.raises(PrivacyError, match="meets the target"):
        search(lambda _: math.nan)


def test_a_search_that_creeps_is_ended():
    """Values that stay tiny move the search by tiny steps, to neither end."""
    with pytest.raises(PrivacyError, match="30 looks"):
        search(lambda _: 1e-7)
    found, calls = search(lambda _: -1e-7)
    assert found.bad == -10.0
    assert calls == 30
