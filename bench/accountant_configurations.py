"""Random configurations of the accountant against an oracle that shares no code with it.

``python -m bench.accountant_configurations`` draws configurations over the domain that is documented (n 100 to 1e8, S 3
to 1000, q 1e-6 to 1, T 1 to 1e6, K 1 to 50, epsilon .01 to 50, delta 1e-15 to .3), adds those that users reported, and
writes ``bench/results/accountant_configurations.md``.

*The oracle* (NumPy and SciPy's beta density only).  The radius: Gauss-Legendre panels for one draw; for K draws a
convolution of squared weights on a fine grid with a mean-preserving deposit.  The loss of one step: trapezoidal rule in
x, each loss deposited on a lattice by cubic Lagrange weights, which keep its first three moments.  T steps: the
characteristic function, less one, in ``T log1p``, and back by one FFT.  It is no bound.  Its error is taken to be the
difference from itself on a lattice twice and an x-grid 1.5 times as coarse; its round-off is about 1e-13, so it is used
for delta of at least 1e-9 only, and where that difference is below 0.2%.  Elsewhere the accountant's own lower end
stands in, which says nothing of safety: the column "against" tells which.
"""

from __future__ import annotations

import argparse
import math
import platform
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

SPARSE = (  # q, T, S, K, epsilon, delta
    (1e-5, 100_000, 20, 1, 1.0, 1e-5),
    (1e-4, 10_000, 100, 1, 1.0, 1e-5),
    (1e-4, 10_000, 1000, 1, 1.0, 1e-5),
    (1e-4, 10_000, 100, 50, 1.0, 1e-5),
)
PLAIN = (1.2e-5, 300_000, 1.0, 1e-5)
MIN_DELTA = 1e-9


def radius_nodes(gamma: float, blocks: int, draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of R."""
    from scipy import special, stats

    law = stats.beta(gamma, (blocks - 1) * gamma)
    top = float(law.isf(1e-22)) or 1.0
    if draws == 1:
        x, w = np.polynomial.legendre.leggauss(12)
        ends = np.concatenate(([0.0], top * np.geomspace(1e-5, 1.0, 60)))
        half = np.diff(ends)[:, None] / 2
        u = (ends[:-1, None] + half * (1 + x)).ravel()
        mass = (half * w).ravel() * law.pdf(np.minimum(u, 1 - 1e-15))
        return u, mass / mass.sum()
    second = (gamma + 1) / (blocks * (blocks * gamma + 1))
    cell = max(second / 400, top * top / 2**18)
    edges = np.minimum(np.sqrt(cell * np.arange(math.ceil(top * top / cell) + 1)), 1.0)
    below = special.betaincc(gamma, (blocks - 1) * gamma, edges)
    mass = -np.diff(below)
    share = gamma * (gamma + 1) / (blocks * gamma * (blocks * gamma + 1))
    first = share * -np.diff(special.betaincc(gamma + 2, (blocks - 1) * gamma, edges))
    mean = np.clip(np.where(mass > 0, first / np.maximum(mass, 1e-300) / cell - np.arange(len(mass)), 0.5), 0, 1)
    deposit = np.append(mass * (1 - mean), 0.0) + np.append(0.0, mass * mean)
    size = 2 ** math.ceil(math.log2(len(deposit) * 4))
    total = np.fft.irfft(np.fft.rfft(deposit, size) ** draws, size)[: size // 2]
    v = cell * np.arange(len(total))
    group = np.minimum((np.sqrt(v / v[-1]) * 6000).astype(int), 5999) // 4
    weight = np.bincount(group, np.maximum(total, 0.0))
    mean_v = np.bincount(group, np.maximum(total, 0.0) * np.sqrt(v)) / np.maximum(weight, 1e-300)
    keep = weight > 1e-18
    return mean_v[keep], weight[keep] / weight[keep].sum()


def losses(q: float, r: np.ndarray, w: np.ndarray, dx: float, one_sided: bool) -> tuple[np.ndarray, np.ndarray]:
    """Losses of one step under P and their probabilities."""
    x = np.arange(-10.0, min(float(r.max()) + 10.0, 400.0), dx)[None, :]
    r = r[:, None]
    density = ((1 - q) * np.exp(-x * x / 2) + q * np.exp(-((x - r) ** 2) / 2)) * dx / math.sqrt(2 * math.pi)
    with np.errstate(over="ignore"):
        a, b = r * x - r * r / 2, -r * x - r * r / 2
        top = np.where(a > 500, a + math.log(q), np.log1p(q * np.expm1(np.minimum(a, 500))))
        bottom = np.where(b > 500, b + math.log(q), np.log1p(q * np.expm1(np.minimum(b, 500))))
    loss = top if one_sided else top - bottom
    return loss.ravel(), (w[:, None] * density).ravel()


def composed_delta(
    loss: np.ndarray, mass: np.ndarray, count: int, epsilon: float, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Lattice losses near epsilon and delta there."""
    cap = epsilon + 30.0
    clipped = np.clip(loss, -cap, cap)
    near = np.abs(clipped) < cap
    spread = math.sqrt(count * float((mass[near] * clipped[near] ** 2).sum()))
    tail = count * float(mass[~near].sum())
    width = max(4 * cap if tail > 1e-12 else 2 * float(np.abs(clipped).max()), 0.0) + 14 * spread + 3 * epsilon
    h = epsilon / max(1, math.floor(epsilon * size / width))
    place = clipped / h
    base = np.floor(place).astype(int)
    t = place - base
    values = np.zeros(size)
    for shift, weight in (
        (-1, -t * (t - 1) * (t - 2) / 6),
        (0, (t * t - 1) * (t - 2) / 2),
        (1, -t * (t + 1) * (t - 2) / 2),
        (2, t * (t * t - 1) / 6),
    ):
        values += np.bincount((base + shift) % size, mass * weight, minlength=size)
    values[0] = 0.0
    values[0] = -values.sum()
    law = np.fft.irfft(np.exp(count * np.log1p(np.fft.rfft(values))), size)
    top = 2 * size // 3
    x = h * np.arange(top)
    s1 = np.cumsum(law[:top][::-1])[::-1]
    s2 = np.cumsum((law[:top] * np.exp(-x))[::-1])[::-1]
    return x, s1 - np.exp(x) * s2


def oracle(q, count, r, w, epsilon, delta, one_sided=False):
    """epsilon at ``delta`` and delta at ``epsilon``, each with its error, by two grids."""
    found = []
    for size, dx in ((2**19, 0.03), (2**20, 0.02)):
        x, d = composed_delta(*losses(q, r, w, dx, one_sided), count, epsilon, size)
        last = int(np.flatnonzero(d > delta)[-1])
        at = x[last] + (x[last + 1] - x[last]) * (d[last] - delta) / (d[last] - d[last + 1])
        found.append((at, float(np.interp(epsilon, x, d))))
    (e1, d1), (e2, d2) = found
    return e2, abs(e2 - e1), d2, abs(d2 - d1)


def draw(rng: np.random.Generator):
    """A mechanism and a target."""
    from pgbb_fast.accountant import BlockedGaussian, SubsampledGaussian

    def logs(low: float, high: float) -> float:
        return float(math.exp(rng.uniform(math.log(low), math.log(high))))

    n, blocks = round(logs(100, 1e8)), round(logs(3, 1000))
    q, count, draws = logs(1e-6, 1.0), round(logs(1, 1e6)), round(logs(1, 50))
    epsilon, delta = logs(0.01, 50), logs(1e-15, 0.3)
    kind = ("blocked", "blocked", "blocked", "replace-one", "add-remove")[rng.integers(5)]
    if kind == "blocked":
        m = BlockedGaussian(
            n=n, n_blocks=min(blocks, n), sampling_rate=q, steps=count, minibatch="shared", draws_per_step=draws
        )
    else:
        m = SubsampledGaussian(sampling_rate=q, steps=count, adjacency=kind)
    return m, epsilon, delta


def reported():
    """The configurations that users reported."""
    from pgbb_fast.accountant import BlockedGaussian, SubsampledGaussian

    for q, count, blocks, draws, epsilon, delta in SPARSE:
        yield (
            BlockedGaussian(
                n=10**7, n_blocks=blocks, sampling_rate=q, steps=count, minibatch="shared", draws_per_step=draws
            ),
            epsilon,
            delta,
        )
    q, count, epsilon, delta = PLAIN
    for adjacency in ("add-remove", "replace-one"):
        yield SubsampledGaussian(sampling_rate=q, steps=count, adjacency=adjacency), epsilon, delta


def truth(m, epsilon: float, delta: float):
    """The oracle's epsilon and its error at the mechanism's own noise; None where it can't tell."""
    if delta < MIN_DELTA:
        return None
    if hasattr(m, "n_blocks"):
        r, w = radius_nodes(m.concentration, m.n_blocks, m.draws_per_release)
    else:
        r, w = np.ones(1), np.ones(1)
    one_sided = m.adjacency == "add-remove"
    args = (float(m.sampling_rate), m.releases, r / m.noise_multiplier, w, epsilon, delta)
    try:
        e, error, *_ = oracle(*args, one_sided)
    except IndexError:
        return None
    return (e, error) if error < 2e-3 * e else None


def row(m, epsilon: float, delta: float) -> dict:
    """One configuration: calibrate, ask both ways, compare."""
    from pgbb_fast import accountant as a

    def timed(call, **keys):
        start = time.process_time()
        value = call(**keys)
        return value, time.process_time() - start

    noise, calibration = timed(lambda: a.noise_multiplier(m, epsilon=epsilon, delta=delta))
    out = {"m": m, "epsilon": epsilon, "delta": delta, "noise": noise, "calibration": calibration}
    if noise <= 1.01e-4:
        return out | {"against": "any noise will do"}
    m = replace(m, noise_multiplier=noise)
    value, seconds = timed(lambda: a.epsilon(m, delta=delta))
    back, delta_seconds = timed(lambda: a.delta(m, epsilon=value))
    known = truth(m, epsilon, delta)
    if known is None:
        bounds, bracket = timed(lambda: a.epsilon_bounds(m, delta=delta))
        base, error, against = bounds.lower, 0.0, f"lower end, {bracket:.1f} s"
    else:
        (base, error), bracket, against = known, math.nan, "oracle"
    return out | {
        "ratio": value / base if base > 0 else math.inf,
        "error": error / base if base > 0 else 0.0,
        "inverse": back / delta,
        "seconds": max(seconds, delta_seconds),
        "bracket": bracket,
        "against": against,
    }


def describe(m) -> str:
    """A row's first cells."""
    if hasattr(m, "n_blocks"):
        kind = f"blocked, n = {m.n:,}, S = {m.n_blocks}, K = {m.draws_per_step}"
    else:
        kind = f"plain, {m.adjacency}"
    return f"{kind} | {m.sampling_rate:.3g} | {m.steps:,}"


def main() -> None:
    """Draw, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configurations", type=int, default=40)
    parser.add_argument("--seed", type=int, default=2024)
    out = Path(__file__).parent / "results" / "accountant_configurations.md"
    parser.add_argument("--out", type=Path, default=out)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    cases = [*reported(), *(draw(rng) for _ in range(options.configurations))]
    lines, worst, below = [], 0.0, 0
    for m, epsilon, delta in cases:
        try:
            r = row(m, epsilon, delta)
        except Exception as error:  # a row of the table, not a crash of the bench
            lines.append(f"| {describe(m)} | {epsilon:.3g} | {delta:.2g} | {type(error).__name__}: {error} | | | | | |")
            continue
        start = f"| {describe(m)} | {epsilon:.3g} | {delta:.2g} | {r['noise']:.4g} | {r['calibration']:.2f}"
        if "ratio" not in r:
            lines.append(f"{start} | | | | {r['against']} |")
            continue
        if r["against"] == "oracle":
            worst = max(worst, r["ratio"])
            below += r["ratio"] < 1 - r["error"] - 1e-6
        lines.append(
            f"{start} | {r['ratio']:.4f} | {r['inverse']:.4f} | {r['seconds']:.2f} | "
            f"{r['against']}" + (f" (error {r['error']:.0e}) |" if r["against"] == "oracle" else " |")
        )
        print(lines[-1], flush=True)
        _write(options, lines, worst, below)
    _write(options, lines, worst, below)


def _write(options: argparse.Namespace, lines: list[str], worst: float, below: int) -> None:
    processor = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.processor(),
    )
    options.out.write_text(
        "# Random configurations of the accountant\n\n"
        f"`python -m bench.accountant_configurations --configurations {options.configurations} "
        f"--seed {options.seed}`, {processor}, processor seconds of one thread on a shared machine.\n\n"
        "Looseness: `epsilon` at the calibrated noise over the oracle's (or the accountant's lower end). Inverse: "
        "`delta(epsilon(delta)) / delta`. Seconds: calibration; the longer of `epsilon` and `delta`.\n\n"
        f"Upper bounds below the oracle by more than its error: {below}. Largest looseness against the oracle: "
        f"{worst:.4f}.\n\n"
        "| mechanism | q | T | epsilon | delta | noise | calibration, s | looseness | inverse | call, s | against |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|\n" + "\n".join(lines) + "\n"
    )


if __name__ == "__main__":
    main()
