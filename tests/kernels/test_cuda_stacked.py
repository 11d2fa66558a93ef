"""The stacked CUDA kernels on the simulator: the reference within a derived tolerance, and the CPU kernels' bits.

As in ``test_cuda_simulated`` this module is run once on the simulator, in a process of its own.
"""

import math
import sys

import numpy as np
import pytest

from pgbb_fast.kernels import reference
from pgbb_fast.kernels.arguments import Records, Stack, Stream
from pgbb_fast.kernels.cuda import stacked_plan
from pgbb_fast.kernels.scalar.losses import WITH_SCALE
from tests.kernels import simulator
from tests.kernels.cases import GRID, REGRESSION

MAP = np.array([0.01, 0.0], np.float32)


def case(loss, n, p, L, q=1.0, intercept=True, clip=0.8, bound=0.8):
    """(loss, intercept, records, stack, stream) with triangular W and V, some features shortened and some scores."""
    rng = np.random.default_rng([n, p, L])
    scale = loss in WITH_SCALE
    m = p + intercept
    x = rng.uniform(-1, 1, (n, p)).astype(np.float32)
    y = (0.3 * x.sum(axis=1) + rng.normal(0, 0.5, n)).astype(np.float32)
    if loss == "logistic":
        y = (y > 0).astype(np.float32)
    theta = rng.normal(0, 0.3, (L, m + scale))
    if scale:
        theta[:, -1] = np.abs(theta[:, -1]) + 0.4
    whitening, mix, scale_mix = (np.tril(rng.normal(0, 0.3, (k, k))) + np.eye(k) for k in (m, L, L))
    stack = Stack(
        theta, np.tile([0.6, 0.35], (L, 1)), whitening, mix, scale_mix if scale else np.zeros((0, 0)),
        bound * math.sqrt(m), clip, math.floor(q * GRID), 1.5,
    )  # fmt: skip
    return loss, intercept, Records(x, y, np.zeros(n, np.uint8)), stack, Stream(rng.integers(0, 2**32, 8), 11)


def changed(made, **parts):
    """A case with other records."""
    return (*made[:2], made[2]._replace(**parts), *made[3:])


def spoiled(made, value):
    """A case one of whose features, and a response of another record, isn't finite or is far too large."""
    x, y = made[2].x.copy(), made[2].y.copy()
    x[5, 0] = value
    if not np.isfinite(value):
        y[7] = value
    return changed(made, x=x, y=y)


def compact(made):
    """A case of 8-bit integers under a public map, the response as last column."""
    table = np.rint(100 * np.clip(np.column_stack([made[2].x, made[2].y]), -1, 1)).astype(np.int8)
    return changed(made, x=table, y=table[:0, 0], map=np.tile(MAP, (table.shape[1], 1)))


def cases():
    """Name of a case to its arguments; 12 features, 9 rules, and minibatches of two don't fit into registers."""
    made = {loss: case(loss, 70, 3, 2) for loss in REGRESSION}
    made["one rule, no intercept"] = case("quantile_gaussian", 65, 3, 1, intercept=False)
    made["nothing shortened"] = case("quantile_gaussian", 65, 3, 2, clip=50.0, bound=50.0)
    made["mask"] = case("huber_concomitant", 130, 3, 1, 0.4)
    made["skips"] = case("huber_concomitant", 600, 3, 1, 0.02)
    made["empty sample"] = case("huber_fixed", 70, 2, 2, 1 / GRID)
    for n in (1, 64, 129):
        made[f"ragged, n = {n}"] = case("huber_concomitant", n, 3, 1, 0.5)
    made["integers"] = compact(case("quantile_gaussian", 70, 3, 2))
    made["float16"] = changed(case("expectile", 70, 3, 2), x=case("expectile", 70, 3, 2)[2].x.astype(np.float16))
    made["tile"] = case("huber_concomitant", 70, 3, 9)
    made["tile, many features"] = case("huber_concomitant", 65, 12, 2)
    made["tile, mask"] = case("huber_concomitant", 65, 3, 2, 0.5, intercept=False)
    made["tile, skips"] = compact(case("quantile_logistic", 600, 2, 9, 0.02))
    for name, value in (("nan", math.nan), ("infinite", math.inf), ("huge", 1e30)):
        made[name] = spoiled(case("huber_concomitant", 20, 3, 2), value)
    for name, value in (("tile, infinite", math.inf), ("tile, huge", 1e30)):
        made[name] = spoiled(case("huber_concomitant", 20, 3, 9), value)
    return made


IN_MEMORY = "tile, mask"    # also run with a tile that doesn't fit into shared memory
FLUSHED = "ragged, n = 129"         # also run with sums that leave 32 bits after two terms
MOMENTS = ["huber_concomitant", "one rule, no intercept", "float16", "nan"]


def alone():
    """Single records of which every score is shortened, some far outside the unit box, for both kinds of kernel."""
    made = []
    for loss, p, L in (("quantile_gaussian", 3, 2), ("huber_concomitant", 2, 2), ("huber_concomitant", 1, 9)):
        for factor in (1.0, 1e12):
            loss, intercept, records, stack, stream = case(loss, 1, p, L, clip=1e-3, bound=1e3)
            made.append((loss, intercept, records._replace(x=records.x * np.float32(factor)), stack, stream))
    return made


def moment_case(name):
    """(loss, intercept, records, stack); "features" are the shortened features' own second moment."""
    if name != "features":
        return cases()[name][:4]
    _, intercept, records, stack, _ = case("quantile_gaussian", 65, 3, 1, clip=2.2)
    one = np.eye(1)
    return "linear", intercept, records, stack._replace(mix=one, feature_bound=stack.clip)


def simulate(path: str, *names: str) -> None:
    """Run everything, or the releases named, on the simulator and write the numbers."""
    simulator.start()
    if names:
        from pgbb_fast.kernels.cuda.api import noisy_stacked

        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            np.savez(path, **{f"noisy {name}": noisy_stacked(*cases()[name]) for name in names})
        return
    from pgbb_fast.kernels.cuda import api, compile, records, stacked, stacked_registers

    assert compile.SIMULATED
    out = {}
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        made = cases()
        for name, arguments in made.items():
            out[f"noisy {name}"] = api.noisy_stacked(*arguments)
        for name in (*MOMENTS, "features"):
            out[f"moments {name}"] = api.stacked_moments(*moment_case(name))
        out["alone"] = np.array([sum(int(v) ** 2 for v in api.stacked_sums(*a).flat) / GRID**2 for a in alone()])
        # records from the host in chunks, twice
        loss, intercept, plain, stack, stream = made["huber_concomitant"]
        placed = records.place(plain, response=True)
        source = records.Streamed(plain.x, plain.y, plain.block, 3, 32)
        placed.chunk, placed.source, placed.sizes = None, source, source.sizes
        placed_steps = [api.noisy_stacked(loss, intercept, placed, stack, stream) for _ in range(2)]
        out["streamed"] = np.array(placed_steps)
        assert len(placed.steps) == 1
        out["streamed moments"] = api.stacked_moments(loss, intercept, placed, stack)
        stacked_plan.TILE_BYTES = stacked_plan.SAMPLED_BYTES = 0
        assert not stacked.StackedStep("huber_concomitant", True, placed, 9, GRID).kind.shared
        out["in memory"] = api.noisy_stacked(*made[IN_MEMORY])
        stacked_registers.MOST = 2
        stacked.stacked_kernel.cache_clear()
        out["flushed"] = api.noisy_stacked(*made[FLUSHED])
    np.savez(path, **out)


MODULE = "tests.kernels.test_cuda_stacked"
QUICK = ["quantile_gaussian"]     # what is run without the slow tests


@pytest.fixture(scope="module")
def simulated(common_folder):
    """What the simulator computed."""
    return simulator.simulated_by(MODULE, common_folder)


def tolerance(loss, intercept, records, stack, stream):
    """What single precision (v = 2^-24) may change, in units of 2^-32, for |x| <= 1.

    A slope's argument has at most m + 4 roundings of at most ``reach``, and ``steep`` bounds the slope's derivative in
    it; the rational functions add 1e-7, the exponential what it says.  V times the slopes, and W xbar, have L and m
    more roundings of sums of absolute values.  Shortening f x~ to B, and the stack to C, moves no two vectors apart (a
    projection), and adds at most 3 m + 3 L + 30 roundings of a vector of at most C.  One record's term then moves by at
    most 2^22 of all this in units of C, plus one for rounding to the grid.
    """
    v, (L, m) = 2.0**-24, (len(stack.theta), len(stack.map))
    drawn = int(reference.minibatch(stream.key, stream.step, len(records.x), stack.threshold).sum())
    y = records.y[np.isfinite(records.y)].astype(np.float64)
    reach = float((1 + np.abs(stack.theta).sum(axis=1)).max()) + float(np.abs(y).max(initial=1.0))
    first, second = stack.constants[0]
    s = float(stack.theta[:, -1].min()) if loss in WITH_SCALE else 1.0
    steep, most = {
        "quantile_gaussian": (0.4 / second, 1.0),
        "quantile_logistic": (0.25 / second, 1.0),
        "huber_concomitant": ((1 + first) / s, first),
        "huber_fixed": (1.0, first),
        "logistic": (0.25, 1.0),
        "expectile": (max(first, 1 - first), second),
        "poisson": (second * math.exp(first), max(second * math.exp(first), float(y.max(initial=0.0)))),
    }[loss]
    rough = 2.5e-7 * (1 + reach) * steep if loss == "poisson" else 1e-7
    slope = steep * (m + 4) * v * reach + rough
    mix = float(np.sqrt((np.abs(stack.mix).sum(axis=1) ** 2).sum()))
    moved = mix * (slope + (L + 2) * v * most) * stack.feature_bound
    moved += mix * most * (m + 2) * v * float(np.sqrt((np.abs(stack.map).sum(axis=1) ** 2).sum()))
    if loss in WITH_SCALE:
        scale_mix = float(np.sqrt((np.abs(stack.scale_mix).sum(axis=1) ** 2).sum()))
        moved += scale_mix * (slope + (L + 2) * v * (second / 2 + first**2 / 2))
    return drawn * (2.0**22 * (moved / stack.clip + (3 * m + 3 * L + 30) * v) + 1) * 2**10


def check(got, arguments):
    """A release against the reference; the noise is the same."""
    with np.errstate(invalid="ignore", over="ignore"):
        want = reference.noisy_stacked(*arguments)
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= tolerance(*arguments)


def test_a_quick_release_equals_the_reference(common_folder):
    got = simulator.simulated_by(MODULE, common_folder, *QUICK)
    for name in QUICK:
        check(got[f"noisy {name}"], cases()[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", list(cases()))
def test_a_release_equals_the_reference(simulated, name):
    check(simulated[f"noisy {name}"], cases()[name])


BITS = ["huber_concomitant", "quantile_gaussian", "one rule, no intercept", "nothing shortened", "mask", "skips"]
BITS += ["ragged, n = 129", "nan", "huge", "tile", "tile, mask", "tile, infinite", "tile, huge"]


@pytest.mark.slow
@pytest.mark.parametrize("name", BITS)
def test_a_release_has_the_bits_of_the_cpu(simulated, name):
    """The same minibatch, the same roundings and the same noise, whichever kernel it is; of losses and sizes that
    ``test_stacked`` compiles for the CPU."""
    from pgbb_fast.kernels import cpu

    assert np.array_equal(simulated[f"noisy {name}"], cpu.noisy_stacked(*cases()[name]))


def test_the_cases_shorten_some_features_and_some_scores():
    """And the tolerance would notice if a kernel didn't."""
    arguments = cases()["quantile_gaussian"]
    loss, intercept, records, stack, stream = arguments
    want = reference.stacked_sums(*arguments)
    for part in ({"feature_bound": 50.0}, {"clip": 50.0}):
        other = reference.stacked_sums(loss, intercept, records, stack._replace(**part), stream)
        assert np.abs(other * (part.get("clip", stack.clip) / stack.clip) - want).max() > 100 * tolerance(*arguments)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MOMENTS, "features"])
def test_moments_equal_the_reference(simulated, name):
    check_moments(simulated[f"moments {name}"], name)


def check_moments(got, name):
    arguments = moment_case(name)
    with np.errstate(invalid="ignore", over="ignore"):
        want = reference.stacked_moments(*arguments)
    # each product of at most one carries fewer than 200 roundings of 2^-53, and is truncated to the grid of 2^-32
    assert np.abs(got - want).max() <= len(arguments[2].x) * (1 + 200 * 2.0**-53 * GRID)
    assert np.array_equal(got, got.T)
    assert want.any()


@pytest.mark.slow
def test_chunks_and_tiles_in_memory_and_early_flushes_change_nothing(simulated):
    for got in simulated["streamed"]:
        assert np.array_equal(got, simulated["noisy huber_concomitant"])
    assert np.array_equal(simulated["streamed moments"], simulated["moments huber_concomitant"])
    assert np.array_equal(simulated["in memory"], simulated[f"noisy {IN_MEMORY}"])
    assert np.array_equal(simulated["flushed"], simulated[f"noisy {FLUSHED}"])


@pytest.mark.slow
def test_a_record_has_at_most_the_length_of_the_bound(simulated):
    """And nearly that where it is shortened."""
    assert (simulated["alone"] <= 1.0).all()
    assert (simulated["alone"] >= 0.999**2).all()


def test_which_kernel_serves_which_size():
    def kind(p, L, sampled=False, loss="quantile_gaussian"):
        return stacked_plan.kind_of(loss, True, p, L, sampled=sampled, mapped=False, stride=129)

    assert [kind(4, 1).features, kind(10, 5).features, kind(10, 5).rules] == [4, 10, 5]
    assert kind(10, 1, True).features == 10
    for other in (kind(4, 5, True), kind(16, 5), kind(4, 9), kind(10, 5, loss="huber_concomitant")):
        assert (other.features, other.rules, other.shared) == (0, 0, True)
    assert not kind(200, 1).shared


def test_arrays_of_other_shapes_are_refused_before_a_kernel_reads_them():
    stack = cases()["huber_concomitant"][3]
    for part in ("theta", "constants", "map", "mix", "scale_mix"):
        wrong = stack._replace(**{part: getattr(stack, part)[:-1]})
        with pytest.raises(ValueError, match="must have shape"):
            stacked_plan.check("huber_concomitant", wrong, 4, 1)
    stacked_plan.check("huber_concomitant", stack, 4, 1)
    with pytest.raises(ValueError, match="the records have 3"):
        stacked_plan.check("huber_concomitant", stack, 3, 1)


if __name__ == "__main__":
    simulate(*sys.argv[1:])
