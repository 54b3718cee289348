"""Messages of the library in the words of the command line."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from nclab.errors import NclabError

OTHER_NAMES = {
    "second_look=False": "--one-pass",
    "weight= (--head FILE)": "--head FILE",
    "weight=": "--head",
    "soft=True": "--soft",
}
"""What is not called on the command line as in Python."""
OPTIONS = ("num_classes", "ignore_index", "allow_missing", "class_names")


def as_flags(message: str) -> str:
    """A message with flags in the place of Python's options.

    >>> as_flags("Pass num_classes=13, or class_names= all of them.")
    'Pass --num-classes 13, or --class-names all of them.'
    >>> as_flags("Pass allow_missing=True to leave them out; my/class_names.npz stays.")
    'Pass --allow-missing to leave them out; my/class_names.npz stays.'
    """
    for python, flag in OTHER_NAMES.items():
        message = message.replace(python, flag)
    for name in OPTIONS:
        flag = "--" + name.replace("_", "-")
        message = message.replace(f"{name} ({flag})", flag).replace(f"{name}=True", flag)
        message = re.sub(rf"\b{name}=(?=\S)", f"{flag} ", message).replace(f"{name}=", flag)
        message = re.sub(rf"(?<![\w./'-]){name}(?!\w|\.\w|[/'])", flag, message)
    return message


@contextmanager
def in_flags(source: object = None) -> Iterator[None]:
    """Errors name flags and, if it is said, the file that they are about."""
    try:
        yield
    except NclabError as error:
        message = as_flags(str(error))
        about = "" if source is None or str(source) in message else f"{source}: "
        raise NclabError(about + message) from error
