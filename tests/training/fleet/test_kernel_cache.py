"""The process that compiles the kernel computes the bits of processes that load it."""

from pathlib import Path

import pytest

from tests.forked import Program

SCRIPT = """
import hashlib, torch
from nclab.training.models.mlp import Shape
from nclab.training.fleet import Fleet, Member, Recipe

torch.set_num_threads(1)
inputs = torch.randn(130, 8, generator=torch.Generator().manual_seed(0))
members = [Member(norm, 1e-3) for norm in ("affine", "plain", "none", "last")]
shape, recipe = Shape(inputs=8, layers=4, width=24), Recipe(epochs=5, batch=32)
fleet = Fleet(shape, members, recipe, inputs, torch.arange(130) % 4)
digest = hashlib.sha256()
for _ in range(recipe.epochs):
    digest.update(repr(fleet.train_epoch()).encode())
for index in range(len(members)):
    for name, tensor in sorted(fleet.tensors(index).items()):
        digest.update(name.encode() + tensor.numpy().tobytes())
print(digest.hexdigest())
"""


def test_compiled_and_cached_code_give_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    compiled = Program(script, folder=tmp_path / "compiled").wait()
    assert compiled.returncode == 0, compiled.stderr
    assert list((tmp_path / "cache").rglob("*.nbc")), "the first process has filled the cache"
    assert Program(script, folder=tmp_path / "loaded").wait() == compiled
