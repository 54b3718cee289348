"""Small folders of runs like those of reproductions, sweeps and monitors."""

import json
from pathlib import Path
from typing import Any

import torch

from nclab.figures.picture import Picture, to_json
from nclab.measurement import measure
from nclab.measurement.geometry import geometry
from nclab.records import open_run
from tests.figures.pictures import BAND, COSINES, POINTS, TIME

NASTY = '<script>alert("run")</script>'
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20"><circle r="9"/></svg>'
PAPERS = {
    key: {"title": f"The paper {key}", "authors": "A. Author", "year": int(key[-4:])}
    for key in ("pan2023", "ji2022", "papyan2020")
}
TONES = {"refuted": "bad", "holds": "good", "reproduced": "good", "open": "open"}
CLAIMS: list[dict[str, Any]] = [
    {
        "id": f"{paper}/{name}",
        "kind": "lemma",
        "text": f"Statement {name} of {paper}.",
        "source": f"{paper}, Lemma {place}",
        "verdict": verdict,
        "tone": TONES.get(verdict, "fair"),
        "evidence": f"largest gap {place}e-9 in 30 draws",
        "numbers": {"gap": place * 1e-9},
        "needs": needs,
        "links": {
            "code": "nclab.theory.layer_peeled",
            "figure": figure,
            "erratum": "docs/errata.md#ji2022-thm-31" if name == "thm-3.1" else "",
        },
    }
    for place, (paper, name, verdict, needs, figure) in enumerate(
        (
            ("pan2023", "lemma-2.4.6", "refuted", "", ""),
            ("pan2023", "thm-2.3.1", "holds", "", "bands"),
            ("pan2023", "fig-3.1", "partly reproduced", "pan2023_fig31", ""),
            ("ji2022", "thm-3.1", "holds with a correction", "", ""),
            ("ji2022", "fig-2", "reproduced", "ji2022_fig2", ""),
            ("ji2022", "sec-5", "open", "", ""),
        )
    )
]
STORIES = {
    "pan2023_fig31": {
        "title": "Collapse against weight decay",
        "says": "collapse grows with weight decay.",
        "source": "pan2023, Fig. 3.1",
    }
}
ERRATA = [
    {
        "where": "ji2022, Thm 3.1",
        "printed": "for every start",
        "correct": "for almost every start",
        "why": "a saddle is never left",
        "confidence": "certain",
        "claims": ["ji2022/thm-3.1"],
    }
]
PICTURES = {
    "pan2023_fig31": [Picture("bands", "Bands of runs", (BAND, POINTS), caption="Over seeds.")],
    "ji2022_fig2": [Picture("flow", "The flow", (TIME,)), Picture("map", "", (COSINES,))],
    "tour": [Picture("flow", "A tour", (TIME,))],
}


def train(folder: Path, *, epochs: int = 6, seed: int = 0, name: str | None = None) -> None:
    """Write a finished run of a small network on four classes, measured every epoch."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(4).repeat(20)
    centres = 2 * torch.randn(4, 6, generator=generator)
    inputs = centres[labels] + 0.6 * torch.randn(80, 6, generator=generator)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        body = torch.nn.Sequential(
            torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8), torch.nn.ReLU()
        )
        model = torch.nn.Sequential(body, torch.nn.Linear(8, 4))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.3, weight_decay=5e-3)
    config = {"weight_decay": 5e-3, "note": NASTY}
    with open_run(folder, kind="fleet", config=config, seed=seed, name=name) as run:
        for epoch in range(1, epochs + 1):
            for _ in range(12):
                loss = torch.nn.functional.cross_entropy(model(inputs), labels)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
            train_ = {"loss": float(loss.detach()), "accuracy": 1.0, "rate": 0.3}
            at = {"step": 12 * epoch, "epoch": epoch}
            run.append({"kind": "epoch", **at, **train_})
            measured = measure(model, [(inputs, labels)], layers="all").layers
            run.append(
                {
                    "kind": "measurement",
                    **at,
                    "layers": [one.to_dict() for one in measured],
                    "train": train_,
                }
            )
            with torch.no_grad():
                seen = geometry(body(inputs), labels, model[1].weight)
            run.append({"kind": "geometry", **at, "layer": measured[-1].layer, **seen})
            run.beat(step=epoch, total=epochs)
        run.finish(accuracy=1.0)


def reproduced(root: Path, *, images: bool = True, runs: int = 2) -> Path:
    """Write a folder like that of a reproduction, with experiments, claims and runs."""
    root.mkdir(parents=True, exist_ok=True)
    for experiment, pictures in PICTURES.items():
        folder = root / experiment
        folder.mkdir()
        for picture in pictures:
            (folder / f"{picture.name}.picture.json").write_text(json.dumps(to_json(picture)))
            if images:
                (folder / f"{picture.name}.svg").write_text(SVG)
        heading = {"experiment": experiment, "preset": "quick", "seeds": [0, 1], "rows": [1, 2]}
        (folder / "numbers.json").write_text(json.dumps(heading))
    told = {"stories": STORIES, "errata": ERRATA}
    (root / "claims.json").write_text(json.dumps({"papers": PAPERS, "claims": CLAIMS, **told}))
    (root / "skipped.json").write_text(json.dumps([{"what": "ji2022_fig3", "why": "no data set"}]))
    for seed in range(runs):
        train(root / "fleet" / f"seed-{seed}", seed=seed, name=NASTY if seed == 1 else None)
    return root
