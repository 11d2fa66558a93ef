"""Every error that this package raises on purpose.

All derive from :class:`PgbbError`, so that a pipeline can tell a refusal from a defect.  A message says who
asked, what is wrong and what to do; it never contains a value computed from records.
"""


class PgbbError(Exception):
    """Base of every deliberate error."""


class DomainError(PgbbError, ValueError):
    """A parameter lies outside its domain (nan included)."""


class DataError(PgbbError, ValueError):
    """The records have the wrong shape, type or domain; nothing was computed from them and nothing spent."""


class PrivacyError(PgbbError):
    """The guarantee asked for can't be given; nothing was released."""


class BudgetError(PrivacyError):
    """A release would exceed the declared budget."""


class DeviceError(PgbbError):
    """The device asked for can't be used here; nothing was computed and nothing spent."""


class NotFittedError(PgbbError, AttributeError):
    """A result was asked for before ``fit``."""


class MissingExtraError(PgbbError, ImportError):
    """An optional package is needed for this call."""
