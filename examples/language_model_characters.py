"""Measure and monitor a small recurrent model that predicts next characters, with (x, y) batches.

The text consists of the licences on this machine, or of the pages of this repository. The loop
itself shifts the labels, as many loops do, so that nclab needs no option for it. Sequences of
different length are padded. The number of epochs is an optional argument.
"""

import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

import nclab
from nclab.monitor import RecordSink
from nclab.report.site import write_report

PAD = -1
"""Label of padding."""


def text() -> str:
    """Return the licences of the system, otherwise the pages of this repository."""
    here = Path(__file__).resolve().parent.parent
    files = sorted(Path("/usr/share/common-licenses").glob("*[0-9]"))
    files = files or [here / "LICENSE", *sorted((here / "docs").glob("*.md"))]
    return "\n".join(file.read_text(errors="replace") for file in files if file.is_file())


class CharacterModel(nn.Module):
    """Embedding, recurrent layer and classifier."""

    def __init__(self, characters: int, width: int = 96) -> None:
        super().__init__()
        self.embed = nn.Embedding(characters, width)
        self.memory = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, characters)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.memory(self.embed(x))[0])


def batches(string: str, known: str, size: int = 32) -> list[tuple[Tensor, Tensor]]:
    """Yield lines of a text: all characters but the last, and all but the first."""
    number = {character: place for place, character in enumerate(known)}
    lines = [torch.tensor([number[one] for one in line]) for line in string.split("\n")]
    lines = [line for line in lines if len(line) > 2]
    found = []
    for start in range(0, len(lines), size):
        part = lines[start : start + size]
        x = pad_sequence([line[:-1] for line in part], batch_first=True)
        y = pad_sequence([line[1:] for line in part], batch_first=True, padding_value=PAD)
        found.append((x, y))
    return found


def main(epochs: int) -> None:
    """Train the model with a monitor, then measure it."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    string = text()[:50_000]
    known = "".join(sorted(set(string)))
    loader = batches(string, known)
    model = CharacterModel(len(known))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)

    folder = Path(tempfile.mkdtemp())
    names = [repr(one) for one in known]
    monitor = nclab.Monitor(
        model, ignore_index=PAD, min_count=5, class_names=names, sinks=RecordSink(folder / "run")
    )
    with monitor:
        for _epoch in range(epochs):
            for x, y in monitor.watch(loader):  # was: for x, y in loader
                logits = model(x)
                loss = functional.cross_entropy(logits.transpose(1, 2), y, ignore_index=PAD)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
        report = monitor.measure(loader)
    for row in monitor.history.rows:
        print(f"epoch {row['epoch']:.0f}   loss {row['loss']:.3f}   cdnv {row['cdnv']:.3f}")

    print(report.last.strata(groups=4))
    print(*report.last.summary(), sep="\n")
    report.to_html(folder / "measured.html")
    print("pages:", folder / "measured.html", write_report(folder).page)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
