"""Errors and warnings of nclab; every message is one line and says what to do."""


class NclabError(ValueError):
    """Base class of all errors of nclab.

    A message says what was expected, what came and what to do about it.

    >>> try:
    ...     raise DataError("Expected labels in [0, 10), got 12. Pass num_classes=13.")
    ... except NclabError as error:
    ...     print(error)
    Expected labels in [0, 10), got 12. Pass num_classes=13.
    """


class DataError(NclabError):
    """Features, labels, weights or a file that nclab cannot measure."""


class MissingData(DataError):
    """A data set that is missing or damaged; the message says how to get it."""


class ModelError(NclabError):
    """A model whose classifier or layers nclab cannot find or read."""


class RecordError(NclabError):
    """A run on disk that nclab cannot read, write or resume."""


class MissingExtra(NclabError, ImportError):
    """An optional package that is not installed; the message names the extra that installs it.

    >>> str(MissingExtra("The callback", package="lightning"))
    'The callback needs lightning. Run `pip install nclab[lightning]`.'
    """

    def __init__(self, feature: str, *, package: str, extra: str | None = None) -> None:
        super().__init__(f"{feature} needs {package}. Run `pip install nclab[{extra or package}]`.")


class NclabWarning(UserWarning):
    """A warning about a number that is correct but easily misread; the message says why."""
