"""Nested dictionaries of tensors and plain values in one safetensors file."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from nclab.errors import NclabError
from nclab.files import write_whole

_PLAIN = "nclab"
"""Key in the metadata of the file under which the plain values are stored as JSON."""
_TENSOR = "tensor"
"""Key of the placeholder that stands for a tensor in this JSON."""


def write_tree(path: Path, state: Mapping[str, Any]) -> None:
    """Write a tree of dictionaries, lists, plain values and tensors atomically.

    >>> import tempfile, torch
    >>> file = Path(tempfile.mkdtemp()) / "state"
    >>> write_tree(file, {"steps": 3, "sums": {"fc.0": torch.ones(2)}})
    >>> read_tree(file)
    {'steps': 3, 'sums': {'fc.0': tensor([1., 1.])}}
    """
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    plain = _extract_tensors(state, tensors)
    write_whole(path, save(tensors, metadata={_PLAIN: json.dumps(plain)}))


def read_tree(path: Path) -> dict[str, Any]:
    """Read a tree that `write_tree` wrote."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            plain = json.loads((file.metadata() or {})[_PLAIN])
    except (OSError, SafetensorError, KeyError, ValueError, RecursionError) as error:
        raise NclabError(
            f"Expected the saved state of a measurement in {path}, got a damaged file. Delete the "
            "file to start again."
        ) from error
    if not isinstance(plain, dict):
        raise NclabError(f"Expected a tree of tensors in {path}, got another file.")
    tree: dict[str, Any] = _insert_tensors(plain, tensors)
    return tree


def _extract_tensors(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Return the value with placeholders for its tensors; collect these in `tensors`."""
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().cpu().contiguous()
        return {_TENSOR: name}
    if isinstance(value, Mapping):
        return {key: _extract_tensors(item, tensors) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_extract_tensors(item, tensors) for item in value]
    return value


def _insert_tensors(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Return the value with tensors in place of their placeholders."""
    if isinstance(value, dict):
        if set(value) == {_TENSOR} and isinstance(value[_TENSOR], str):
            return tensors[value[_TENSOR]]
        return {key: _insert_tensors(item, tensors) for key, item in value.items()}
    if isinstance(value, list):
        return [_insert_tensors(item, tensors) for item in value]
    return value
