"""The first paper's figures and tables, one command each.

    python -m bench.paper.run figure3 --quick        # minutes, files in bench/out/paper
    python -m bench.paper.run figure3 --full         # hours, files in bench/paper/results
    python -m bench.paper.run figure3 --full --replicates 50 --methods BLBquant     # part of it
    python -m bench.paper.run results                # RESULTS.md out of the files

A run that was stopped goes on where it was: one row for each replicate (the seed) is appended to a CSV file.  Figures
5 and 6 come with table1, tables S2 to S5 and S7 with figure3 (and figure4).
"""

from __future__ import annotations

import argparse

from bench.paper import blocking, curves, means, quantiles, regression, results
from bench.paper.common import Run

COMMANDS = {
    "figure1": curves.figure1,
    "figure2": blocking.figure2,
    "figure3": regression.figure3,
    "figure3b": regression.figure3b,
    "table_s6": regression.table_s6,
    "figure4": means.figure4,
    "table1": quantiles.table1,
}


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {number}")
    return number


def main() -> None:
    """Run what is missing of one experiment or of all, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*COMMANDS, "all", "results"])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="a few replicates, in files of their own (the default)")
    size.add_argument("--full", action="store_true", help="everything, for bench/paper/results")
    parser.add_argument("--methods", nargs="*", default=[], help="only these; all by default")
    parser.add_argument("--replicates", type=_count, help="only so many (figures 3 and 4, tables 1, S6)")
    args = parser.parse_args()
    quick = args.quick if args.what == "results" else not args.full
    run = Run(quick=quick, only=tuple(args.methods), replicates=args.replicates)
    for name, command in COMMANDS.items():
        if args.what in (name, "all"):
            command(run)
    results.results(run)


if __name__ == "__main__":
    main()
