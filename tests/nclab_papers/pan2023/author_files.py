"""Random data sets in place of those that the thesis's author published."""

from pathlib import Path

import numpy as np
import pytest

from nclab.claims.paper import AUTHOR_DATA
from nclab.training.data.samples import read_samples
from nclab_papers.pan2023 import author_data


def use_author_files(folder: Path, monkeypatch: pytest.MonkeyPatch, *, samples: int = 200) -> Path:
    """Write both data sets into a new folder, and let the experiments take it for the author's."""
    folder.mkdir()
    for seed, (data, names) in enumerate(author_data.FILES.items()):
        X = np.random.default_rng(seed).standard_normal((samples, 16))
        np.savez(folder / names[0], X=X, y=(X[:, :2] > 0) @ [1, 2])
        digest = read_samples(folder / names[0]).digest()
        monkeypatch.setitem(author_data.DIGESTS, data, digest)
    monkeypatch.setenv(AUTHOR_DATA, str(folder))
    return folder
