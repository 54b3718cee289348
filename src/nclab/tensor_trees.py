"""Trees of tensors and plain values as one safetensors file: states, and sums half done."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from nclab.errors import NclabError
from nclab.files import write_whole

PLAIN = "nclab"
"""The entry of the file's metadata with the plain values."""
TENSOR = "tensor"


def write_tree(path: Path, state: Mapping[str, Any]) -> None:
    """Write a tree of dicts, lists, plain values and tensors, whole or not at all.

    >>> import tempfile, torch
    >>> file = Path(tempfile.mkdtemp()) / "state"
    >>> write_tree(file, {"steps": 3, "sums": {"fc.0": torch.ones(2)}})
    >>> read_tree(file)
    {'steps': 3, 'sums': {'fc.0': tensor([1., 1.])}}
    """
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    plain = _taken_out(state, tensors)
    write_whole(path, save(tensors, metadata={PLAIN: json.dumps(plain)}))


def read_tree(path: Path) -> dict[str, Any]:
    """What `write_tree` wrote."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            plain = json.loads((file.metadata() or {})[PLAIN])
    except (OSError, SafetensorError, KeyError, ValueError, RecursionError) as error:
        raise NclabError(
            f"Expected the state of a measurement in {path}, got a damaged file. Remove it to "
            "begin anew."
        ) from error
    if not isinstance(plain, dict):
        raise NclabError(f"Expected a tree of tensors in {path}, got another file.")
    tree: dict[str, Any] = _put_back(plain, tensors)
    return tree


def _taken_out(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().cpu().contiguous()
        return {TENSOR: name}
    if isinstance(value, Mapping):
        return {key: _taken_out(item, tensors) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_taken_out(item, tensors) for item in value]
    return value


def _put_back(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, dict):
        if set(value) == {TENSOR} and isinstance(value[TENSOR], str):
            return tensors[value[TENSOR]]
        return {key: _put_back(item, tensors) for key, item in value.items()}
    if isinstance(value, list):
        return [_put_back(item, tensors) for item in value]
    return value
