"""Hook: what nclab hangs on a module, which does not follow the module into copies and files."""

from collections.abc import Callable
from typing import Any


class Hook:
    """Calls a function; a copy of it, as in a copied or saved model, does nothing.

    >>> from copy import deepcopy
    >>> hook = Hook(lambda: 7)
    >>> hook(), deepcopy(hook)()
    (7, None)
    """

    def __init__(self, act: Callable[..., None] | None = None) -> None:
        self._act = act

    def __call__(self, *args: Any) -> None:
        return None if self._act is None else self._act(*args)

    def __copy__(self) -> "Hook":
        return Hook()

    def __deepcopy__(self, memo: dict[int, Any]) -> "Hook":
        return Hook()

    def __reduce__(self) -> tuple[type["Hook"], tuple[()]]:
        return Hook, ()
