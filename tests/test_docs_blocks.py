"""Every code block in README and docs runs, except those whose title gives a reason.

The Python blocks of a page run in order, in one namespace and one folder. `names` and `world`
define the variables and files that the pages assume. Commands in `sh` blocks run in the same way; a
command that appears on several pages runs once. A block with `title="Not run by the tests: …"` is
compiled, and the options of its commands are checked. Extras of `pip` and targets of `make` are
checked and never run. Notebooks have a test of their own, and docstrings are doctests.
"""

import ast
import contextlib
import functools
import importlib.util
import io
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import typer
from safetensors.torch import save_file
from torch import Tensor, nn
from typer.testing import CliRunner

import nclab
from nclab.cli.main import app
from nclab.engine import local
from nclab.figures import matplotlib_renderer
from nclab.records import open_run

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "CONTRIBUTING.md"]
FENCE = re.compile(r"^( *)```(\w*)([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r'title="Not run by the tests: [^"]{8,}"')
DATA = {"text", "toml", "json", "csv", "diff"}
"""Languages of blocks that are not run here; `test_recipes.py` applies the diffs."""


class Block(NamedTuple):
    """Code block of a page."""

    page: Path
    language: str
    runs: bool
    code: str


def blocks(page: Path) -> list[Block]:
    """Return all blocks of a page in order."""
    return [
        Block(page, language, NOT_RUN.search(about) is None, code)
        for _, language, about, code in FENCE.findall(page.read_text())
        if language not in DATA
    ]


WITH_CODE = [page for page in PAGES if blocks(page)]


class Network(nn.Module):
    """Classifier of ten classes whose last features have 512 dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 512), nn.ReLU())
        self.fc = nn.Linear(512, 10)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.body(inputs))
        return logits


class LanguageModel(nn.Module):
    """Model that predicts the next of nine tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.body = nn.Embedding(9, 8), nn.GRU(8, 8, batch_first=True)
        self.head = nn.Linear(8, 9)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(self.embedding(tokens))[0])
        return logits


def job(report: Any, config: Any) -> int:
    """Stand for `train` in the pages."""
    return len(config)


def names() -> dict[str, Any]:
    """Return the variables that the pages assume."""
    draws = torch.Generator().manual_seed(0)
    labels = torch.arange(200) % 10
    features = torch.randn(10, 512, generator=draws)[labels]
    features = features + 0.1 * torch.randn(200, 512, generator=draws)
    inputs = torch.randn(10, 6, generator=draws)[labels]
    inputs = inputs + 0.1 * torch.randn(200, 6, generator=draws)
    parts = torch.arange(200).reshape(4, 50)
    loader = [(inputs[part], labels[part]) for part in parts]
    model = Network()
    return {
        "nclab": nclab,
        "torch": torch,
        "features": features,
        "labels": labels,
        "W": model.fc.weight.detach(),
        "b": model.fc.bias.detach(),
        "model": model,
        "loader": loader,
        "train_loader": loader,
        "test_loader": [(inputs, labels)],
        "language_model": LanguageModel(),
        "texts": [torch.randint(9, (4, 12), generator=draws) for _ in range(3)],
        "epochs": 2,
        "criterion": nn.CrossEntropyLoss(),
        "optimiser": torch.optim.SGD(model.parameters(), lr=0.1),
        "weight": torch.zeros(3),
        "train": job,
        "config": {"rate": 0.1},
    }


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files that the pages name."""
    folder = tmp_path_factory.mktemp("world")
    own = names()
    features, labels, head = own["features"], own["labels"], {"weight": own["W"], "bias": own["b"]}
    rows = {"features": features, "labels": labels}
    np.savez(folder / "features.npz", **{k: v.numpy() for k, v in (rows | head).items()})
    np.savez(folder / "head.npz", **{k: v.numpy() for k, v in head.items()})
    save_file(rows, folder / "features.safetensors")
    save_file(head, folder / "head.safetensors")
    (folder / "features").mkdir()
    for part in range(2):
        halves = {k: v[part::2].contiguous() for k, v in rows.items()}
        save_file(halves, folder / "features" / f"part-{part:05d}.safetensors")
    np.savez(folder / "mine.npz", X=own["test_loader"][0][0].numpy(), y=labels.numpy())
    with open_run(folder / "runs" / "before", kind="monitor", config={}) as run:
        layer = nclab.measure_features(features, labels).to_dict()
        run.append({"kind": "measurement", "step": 1, "epoch": 1, "layers": [layer], "train": {}})
        run.finish()
    return folder


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_blocks_run(
    page: Path, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(world, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    # Starting processes for every page would take minutes; they have their own tests.
    monkeypatch.setattr(local.Local, "run_all", lambda engine, work: local._run_inline(work))
    monkeypatch.setattr(
        matplotlib_renderer, "FORMATS", matplotlib_renderer.FORMATS[-1:]
    )  # tested elsewhere
    own = names()
    torch.manual_seed(0)
    for block in blocks(page):
        assert block.language in ("python", "sh"), f"name the language of:\n{block.code}"
        if block.language == "sh":
            for line in commands(block.code):
                check_options(line, block)
                if block.runs and line.startswith("nclab "):
                    run_command(line)
        elif block.runs:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(block.code, f"{page.name}", "exec"), own)
        else:
            check_imports(block.code)


def commands(code: str) -> Iterator[str]:
    """Return the commands of a shell block: comments removed, continued lines joined."""
    for line in code.replace("\\\n", " ").splitlines():
        words = " ".join(shlex.split(line, comments=True))
        if words:
            yield words


def check_options(line: str, block: Block) -> None:
    """Parse a command of nclab without running it; ignore other commands."""
    program, *words = line.split()
    if program == "make":
        assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), line
        return
    if program == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        asked = re.findall(r"\w+", "".join(re.findall(r"\[(.*?)\]", line)))
        assert set(asked) <= set(extras["optional-dependencies"]), line
        return
    if program != "nclab":
        assert not block.runs, (
            f"{block.page.name}: {line} needs a title that says why it is not run"
        )
        return
    group: Any = typer.main.get_command(app)
    _, command, _ = group.resolve_command(typer.Context(group), words)
    known = {name for option in command.params for name in option.opts} | {"--help"}
    known |= {name for option in command.params for name in option.secondary_opts}
    unknown = [word for word in words if word.startswith("--") and word not in known]
    assert not unknown, f"{block.page.name}: {line}"


@functools.cache
def run_command(line: str) -> None:
    """Run a command of nclab in this process, unless it has run before."""
    words = [
        found
        for word in line.split()[1:]
        for found in (sorted(map(str, Path().glob(word))) if "*" in word else [word])
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, f"{line}\n{done.output}\n{done.exception!r}"
    assert done.output.strip()


def check_imports(code: str) -> None:
    """Check that a block that is not run imports existing names from nclab."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nclab"):
            home = importlib.util.find_spec(str(node.module))  # extras are not imported
            assert home is not None
            assert home.origin, f"there is no {node.module}"
            text = Path(home.origin).read_text()
            for alias in node.names:
                assert re.search(rf"\b{alias.name}\b", text), f"{node.module} has no {alias.name}"


def test_few_blocks_are_not_run() -> None:
    """Only blocks that install something, start a cluster, call make or take long are not run."""
    known = [block for page in WITH_CODE for block in blocks(page)]
    everything = [one for one in known if one.language != "sh" or "nclab " in one.code]
    idle = [block for block in everything if not block.runs]
    assert len(everything) > 40
    assert len(idle) < len(everything) / 3
    pythons = [block for block in idle if block.language == "python"]
    assert len(pythons) < sum(block.language == "python" for block in everything) / 4
