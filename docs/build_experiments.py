"""Writes the results of finished experiments into their pages, tables and pictures.

python docs/build_experiments.py RUNS [NAME …]
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

from nclab.papers.tables import as_markdown

PAGES = Path(__file__).parent / "experiments"
BEGIN, END = "<!-- results -->", "<!-- end of results -->"
NAMES = (
    "pan2023_fig31",
    "pan2023_fig33",
    "pan2023_complexity",
    "pan2023_norms",
    "pan2023_conjectures",
    "ji2022_saddle",
)


def results(module: Any, numbers: dict[str, Any]) -> str:
    """The section of a page: sizes, pictures, tables and verdicts."""
    shown = [
        f"![{picture.title}](images/{picture.name}.png)\n\n{picture.caption}"
        for picture in module.pictures(numbers)
    ]
    tables = [as_markdown(table) for table in module.tables(numbers)]
    return "\n\n".join([BEGIN, sizes(numbers["config"]), *shown, *tables, END])


def sizes(config: dict[str, Any]) -> str:
    """What was run, in a sentence or two."""
    seeds = ", ".join(map(str, config["seeds"]))
    if "width" not in config:
        return f"Seeds {seeds}. Tables give mean ± standard deviation over them."
    return (
        f"Width {config['width']}, {config['samples']:,} samples of dimension {config['inputs']}, "
        f"{config['classes']} classes, {config['epochs']} epochs, batches of {config['batch']}; "
        f"seeds {seeds}. Tables give mean ± standard deviation over the seeds that converged."
    )


def inserted(page: str, section: str) -> str:
    """A page with the text between its two marks replaced."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"Expected the marks {BEGIN} and {END} in the page, in this order.")
    return before + section + after


def build(runs: Path, name: str) -> Path:
    """Rewrite one page and its pictures from `runs/<name>/numbers.json`."""
    from nclab.figures.draw import draw

    module = importlib.import_module(f"nclab.experiments.{name}")
    numbers = json.loads((runs / name / "numbers.json").read_text())
    for picture in module.pictures(numbers):
        target = PAGES / "images" / f"{picture.name}.png"
        draw(picture).savefig(target, dpi=200, metadata={"Software": None})
    page = PAGES / f"{name}.md"
    seeds = numbers["seeds"]
    options = f"--preset {numbers['preset']} --seeds {len(seeds)}"
    if seeds[0]:
        options += f" --seed {seeds[0]}"
    command = f"From `nclab reproduce {name} {options}`."
    section = results(module, numbers).replace(BEGIN, f"{BEGIN}\n\n{command}")
    page.write_text(inserted(page.read_text(), section))
    return page


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    chosen = sys.argv[2:] or [name for name in NAMES if (folder / name / "numbers.json").exists()]
    for name in chosen:
        print(f"wrote {build(folder, name)}")
