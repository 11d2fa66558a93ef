"""Canary audits of the flagship with many runs: tests/estimators/test_audit.py with many more.

    python -m bench.canary_audit [--runs 500000]

Prints, for one step of all records and for three subsampled steps, the lower bound of epsilon that the runs prove (at
confidence 1 - 2e-4) beside the claim.
"""

from __future__ import annotations

import argparse

import pytest

from tests.estimators import test_audit as audit


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=500_000)
    runs = options.parse_args().runs
    patch = pytest.MonkeyPatch()
    print(f"claim: epsilon = {audit.CLAIM:g} at delta = {audit.DELTA:g}; {runs} runs of either data set")
    for steps, rate in ((1, 1.0), (3, 0.5)):
        pair = [audit.problem(patch, canary, steps, rate) for canary in (1.0, -1.0)]
        found = audit.proved(pair, steps, runs)
        print(f"{steps} step(s), sampling rate {rate:g}: epsilon is at least {found:.3f}")
        assert found <= audit.CLAIM


if __name__ == "__main__":
    main()
