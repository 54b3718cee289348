"""Messages of the library in the words of the command line."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from nclab.errors import MissingExtra, NclabError

OTHER_NAMES = {
    "second_pass=False (--one-pass)": "--one-pass",
    "second_pass=False": "--one-pass",
    "Expected memory such": "Expected --memory such",
    "weight= (--head FILE)": "--head FILE",
    "weight=": "--head",
    "soft=True": "--soft",
}
"""What is not called on the command line as in Python."""
BEFORE = "0 <= |at least one of |a positive finite |a finite number as "
"""What may stand between `Expected` and the name of a field that a message is about."""
OPTIONS = ("num_classes", "ignore_index", "allow_missing", "class_names", "min_count", "skip_bad")
SET = ("memory", "workers", "metrics", "engine")
"""Options that are words as well, and meant where they are set."""


def as_flags(message: str) -> str:
    """A message with flags in the place of Python's options.

    >>> as_flags("Pass num_classes=13, or class_names= all of them.")
    'Pass --num-classes 13, or --class-names all of them.'
    >>> as_flags("Expected memory such as '8GB'. workers=0 does; or pass memory='8.1GB'.")
    "Expected --memory such as '8GB'. --workers 0 does; or pass --memory 8.1GB."
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
    for name in SET:
        message = re.sub(rf"(?<![\w.-]){name}=(?:'([^']*)'|(?=\S))", rf"--{name} \g<1>", message)
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


@contextmanager
def naming_flags(flags: Mapping[str, str]) -> Iterator[None]:
    """Errors about a field or a parameter name its flag, where it is plain that this is meant."""
    try:
        yield
    except NclabError as error:
        message = field_as_flag(str(error), flags)
        if message == str(error) or isinstance(error, MissingExtra):  # which makes its own words
            raise
        raise type(error)(message) from error


def field_as_flag(message: str, flags: Mapping[str, str]) -> str:
    """The message with the flag in the place of the field that it begins with, or that it sets.

    >>> flags = {"rate": "--rate", "norms": "--norm", "drop_last": "--drop-last"}
    >>> field_as_flag("Expected 0 <= rate < inf, got -1.0.", flags)
    'Expected 0 <= --rate < inf, got -1.0.'
    >>> field_as_flag("Expected at least one of norms, got none. Take drop_last=True.", flags)
    'Expected at least one of --norm, got none. Take --drop-last.'
    >>> field_as_flag("Expected data whose rate is known.", flags)
    'Expected data whose rate is known.'
    >>> field_as_flag("Expected rate=(first, last) or norms=, got rate=None.", flags)
    'Expected --rate first,last or --norm, got --rate none.'
    """
    begin = re.match(rf"Expected (?:{BEFORE})?(\w+)(?=[ ,])(?! data| \*)", message)
    if begin and begin[1] in flags:
        message = message[: begin.start(1)] + flags[begin[1]] + message[begin.end(1) :]
    for name, flag in flags.items():
        named = rf"(?<![\w-]){name}="
        message = re.sub(rf"{named}True\b", flag, message)
        message = re.sub(rf"{named}None\b", f"{flag} none", message)
        message = re.sub(rf"{named}\(([^()]*)\)", partial(_listed, flag), message)
        message = re.sub(rf"{named}(?=[\w'\"(])", f"{flag} ", message)
        message = re.sub(rf"{named}(?=[\s,;.:)])", flag, message)
    return message


def _listed(flag: str, found: re.Match[str]) -> str:
    """Several values of one option, as they are typed."""
    return f"{flag} {found[1].replace(', ', ',')}"
