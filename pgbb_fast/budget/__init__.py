"""One budget for all that is released from one data set.

``filters``   how charges add up when each may be chosen after earlier ones were seen: the theorems and their proofs
``session``   the budget itself, in memory or in a locked file

Nothing here sees a record: a charge is made of public numbers.  A further way of adding up is one class in ``filters``,
with its theorem, and a name in ``FILTERS``.
"""

from pgbb_fast.budget.filters import Charge
from pgbb_fast.budget.session import Budget

__all__ = ["Budget", "Charge"]
