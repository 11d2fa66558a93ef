"""What private baselines show once they are fitted."""

from __future__ import annotations

from pgbb_fast.budget.baseline import BaselineReport
from pgbb_fast.budget.spending import Spender
from pgbb_fast.posteriors.sampled import SampledPosterior

__all__ = ["Fitted"]


class Fitted(Spender):
    """What private baselines show once they are fitted."""

    _who = "Fitted"

    @property
    def posterior_(self) -> SampledPosterior:
        """The released posterior."""
        posterior: SampledPosterior = self._require_fitted()
        return posterior

    @property
    def privacy_(self) -> BaselineReport:
        """What was spent, on what, under which adjacency."""
        report = self.posterior_.privacy
        assert isinstance(report, BaselineReport)
        return report
