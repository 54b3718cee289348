"""Writes the results of finished experiments into their pages, tables and pictures.

python docs/build_experiments.py RUNS [NAME …]
"""

import json
import sys
from pathlib import Path
from typing import Any

from nclab.papers.experiment import Experiment
from nclab.papers.ledger import judge_experiment
from nclab.papers.registry import experiments
from nclab.papers.tables import Table, as_markdown, verdicts

PAGES = Path(__file__).parent / "experiments"
BEGIN, END = "<!-- results -->", "<!-- end of results -->"


def results(name: str, experiment: Experiment, numbers: dict[str, Any]) -> str:
    """The section of a page: sizes, pictures, tables and verdicts."""
    shown = [
        f"![{picture.title}](images/{picture.name}.png)\n\n{picture.caption}"
        for picture in experiment.pictures(numbers)
    ]
    judged = verdicts(judge_experiment(name, numbers))
    found = [one for one in experiment.tables(numbers) if isinstance(one, Table)]
    tables = [as_markdown(table) for table in (*found, judged)]
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

    experiment = experiments()[name]
    numbers = json.loads((runs / name / "numbers.json").read_text())
    for picture in experiment.pictures(numbers):
        target = PAGES / "images" / f"{picture.name}.png"
        draw(picture).savefig(target, dpi=200, metadata={"Software": None})
    page = PAGES / f"{name}.md"
    seeds = numbers["seeds"]
    options = f"--preset {numbers['preset']} --seeds {len(seeds)}"
    if seeds[0]:
        options += f" --seed {seeds[0]}"
    command = f"From `nclab reproduce {name} {options}`."
    section = results(name, experiment, numbers).replace(BEGIN, f"{BEGIN}\n\n{command}")
    page.write_text(inserted(page.read_text(), section))
    return page


def has_page(runs: Path, name: str) -> bool:
    """Whether an experiment has run, and has a page with room for its results."""
    page = PAGES / f"{name}.md"
    return (runs / name / "numbers.json").exists() and page.exists() and BEGIN in page.read_text()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    chosen = sys.argv[2:] or [name for name in experiments() if has_page(folder, name)]
    for name in chosen:
        print(f"wrote {build(folder, name)}")
