"""The errors nclab raises: every one is a single line that says what to do."""


class NclabError(ValueError):
    """What was expected, what came, and what to do about it, in one line.

    >>> try:
    ...     raise DataError("Expected labels in [0, 10), got 12. Pass num_classes=13.")
    ... except NclabError as error:
    ...     print(error)
    Expected labels in [0, 10), got 12. Pass num_classes=13.
    """


class DataError(NclabError):
    """Features, labels, weights or a file that cannot be measured."""


class MissingData(DataError):
    """A data set that is not on this machine, or damaged; the message says how to get it."""


class ModelError(NclabError):
    """A model whose classifier or layers cannot be found or read."""


class RecordError(NclabError):
    """A run on disk that cannot be written, read or gone on with."""


class MissingExtra(NclabError, ImportError):
    """An optional package that is not installed; the message says which extra brings it.

    >>> str(MissingExtra("The callback", package="lightning"))
    'The callback needs lightning. Run `pip install nclab[lightning]`.'
    """

    def __init__(self, what: str, *, package: str, extra: str | None = None) -> None:
        super().__init__(f"{what} needs {package}. Run `pip install nclab[{extra or package}]`.")


class NclabWarning(UserWarning):
    """A number is right but less telling than it looks; the message says why."""
