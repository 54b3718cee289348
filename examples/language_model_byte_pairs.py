"""Measure and monitor a small byte-pair language model that predicts next tokens.

The text consists of the licences on this machine, or of the pages of this repository. The classes
are the tokens of the vocabulary, most of them rare. The number of training steps is an optional
argument; 600 steps take a minute.
"""

import re
import sys
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

import nclab
from nclab.monitor import Every, RecordSink
from nclab.report.site import write_report

LENGTH = 64
"""Tokens in a sequence."""
Pair = tuple[int, int]


def text() -> str:
    """Return the licences of the system, otherwise the pages of this repository."""
    here = Path(__file__).resolve().parent.parent
    files = sorted(Path("/usr/share/common-licenses").glob("*[0-9]"))
    files = files or [here / "LICENSE", *sorted((here / "docs").glob("*.md"))]
    return "\n".join(file.read_text(errors="replace") for file in files if file.is_file())


def learn_pairs(words: Counter[str], vocabulary: int) -> dict[Pair, int]:
    """Learn a byte-pair encoding: repeatedly make the most frequent pair a token."""
    parts = {word: list(word.encode()) for word in words}
    pairs: dict[Pair, int] = {}
    for token in range(256, vocabulary):
        seen: Counter[Pair] = Counter()
        for word, own in parts.items():
            for pair in pairwise(own):
                seen[pair] += words[word]
        if not seen:
            break
        best = max(seen, key=lambda pair: (seen[pair], pair))
        pairs[best] = token
        for word, own in parts.items():
            if best[0] in own:
                parts[word] = join(own, best, token)
    return pairs


def join(tokens: list[int], pair: Pair, token: int) -> list[int]:
    """Replace every occurrence of a pair by its token."""
    joined: list[int] = []
    for one in tokens:
        if joined and (joined[-1], one) == pair:
            joined[-1] = token
        else:
            joined.append(one)
    return joined


def encode(string: str, pairs: dict[Pair, int]) -> list[int]:
    """Return the tokens of a string, word by word."""
    known: dict[str, list[int]] = {}
    for word in set(split(string)):
        own = list(word.encode())
        for pair, token in pairs.items():
            if pair[0] in own:
                own = join(own, pair, token)
        known[word] = own
    return [token for word in split(string) for token in known[word]]


def split(string: str) -> list[str]:
    """Split a text into words with the preceding blank, and the characters between words."""
    return re.findall(r" ?\w+|[^\w]+?(?= ?\w|$)|\s", string)


class Block(nn.Module):
    """Attention to earlier tokens, then a layer for every token."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, h: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (4, -1)).transpose(1, 2)
            for part in self.qkv(self.before(h)).chunk(3, -1)
        )
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + self.out(seen.transpose(1, 2).flatten(2))
        return h + self.down(functional.gelu(self.up(self.between(h))))


class LanguageModel(nn.Module):
    """Small transformer whose classifier is its embedding matrix."""

    def __init__(self, vocabulary: int, width: int = 128, depth: int = 2) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(LENGTH, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(h)))


def batches(tokens: Tensor, size: int = 16) -> list[Tensor]:
    """Yield token arrays of shape (size, LENGTH) without labels: the labels are the next tokens."""
    rows = tokens[: len(tokens) // LENGTH * LENGTH].view(-1, LENGTH)
    return list(rows[torch.randperm(len(rows))].split(size))


def main(steps: int) -> None:
    """Train the model with a monitor, then measure it."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    string = text()[:60_000]
    pairs = learn_pairs(Counter(split(string)), vocabulary=600)
    tokens = torch.tensor(encode(string, pairs))
    print(f"{len(string)} characters, {len(tokens)} tokens of {256 + len(pairs)}")
    loader = batches(tokens)
    model = LanguageModel(256 + len(pairs))
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)

    folder = Path(tempfile.mkdtemp())
    monitor = nclab.Monitor(
        model,
        Every(20, "steps", window=5),  # the last 5 batches before every 20th step
        preset="economy",
        labels="next",  # the model does not shift: the label of a token is the next one
        min_count=2,  # a token that was seen once has no spread
        rows=256,  # of the 1,008 in a batch
        sinks=RecordSink(folder / "run"),
    )
    with monitor:
        while monitor.steps < steps:
            for x in monitor.watch(loader):  # was: for x in loader
                logits = model(x)
                loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), x[:, 1:].flatten())
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                if monitor.steps + 1 >= steps:
                    monitor.step()  # needed because `break` leaves the loop before the batch ends
                    break
        report = monitor.measure(loader)  # exact, of all tokens
    for row in monitor.history.rows:
        print(f"step {row['step']:3.0f}   loss {row['loss']:.3f}   cdnv {row['cdnv']:.3f}")

    print(report.last.strata())
    print(report.last.verdict)
    report.to_html(folder / "measured.html")
    print("pages:", folder / "measured.html", write_report(folder).page)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
