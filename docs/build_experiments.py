"""Write the recorded evidence of the experiments into their pages, tables and pictures.

python docs/build_experiments.py [RUNS [NAME …]] first records the numbers of RUNS as evidence, and
its networks at a paper's size, so that another machine can add seeds:
nclab reproduce NAME --preset paper --seeds 5 --recorded.
"""

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from nclab.claims.evidence import best_evidence, record_networks, write_evidence
from nclab.claims.ledger import judge_experiment
from nclab.claims.pictures import forest
from nclab.claims.registry import experiments, paper_of
from nclab.claims.tables import Table, as_markdown, verdict_table
from nclab.figures.picture import Picture
from nclab.records import read_run

PAGES = Path(__file__).parent / "experiments"
BEGIN, END = "<!-- results -->", "<!-- end of results -->"


def results(name: str, numbers: dict[str, Any]) -> str:
    """Return the generated section of a page: sizes, pictures, tables and verdicts."""
    judged = judge_experiment(name, numbers)
    shown = [
        f"![{picture.title}](images/{picture.name}.png)\n\n{picture.caption}"
        for picture in pictures_of(name, numbers)
    ]
    tables = [table for table in experiments()[name].tables(numbers) if isinstance(table, Table)]
    if judged:
        tables.append(verdict_table(judged))
    return "\n\n".join(
        [BEGIN, made_by(numbers), sizes(numbers), *shown, *map(as_markdown, tables), END]
    )


def pictures_of(name: str, numbers: dict[str, Any]) -> list[Picture]:
    """Return the pictures of an experiment and its forest plot."""
    judged = judge_experiment(name, numbers)
    return [*experiments()[name].pictures(numbers), *forest(name, judged)]


def command(name: str, numbers: dict[str, Any]) -> str:
    """Return the command that reproduces these numbers on any machine."""
    seeds, presets = numbers["seeds"], numbers.get("presets") or [numbers["preset"]]
    several = len(presets) > 1
    text = f"nclab reproduce {name} --preset {'$preset' if several else presets[0]}"
    text += f" --seeds {len(seeds)}" + (f" --seed {seeds[0]}" if seeds[0] else "")
    return f"for preset in {' '.join(presets)}; do {text}; done" if several else text


def made_by(numbers: dict[str, Any]) -> str:
    """Return the command, the commit and the time of these numbers."""
    manifest = numbers["manifest"]
    made = [f"Commit {manifest['commit'][:12]}"] if manifest.get("commit") else []
    if "network_hours" in manifest:
        made.append(
            f"{manifest['network_hours']:.1f} hours for all networks one after the other, "
            "whatever else their cores did included"
        )
    elif "hours" in manifest:
        made.append(f"{manifest['hours']:.2g} hours on two cores")
    return f"From `{manifest['command']}`. {', '.join(made)}{'.' if made else ''}".rstrip()


def sizes(numbers: dict[str, Any]) -> str:
    """Return the sizes of an experiment in one or two sentences."""
    config, seeds = numbers["config"], ", ".join(map(str, numbers["seeds"]))
    if not {"samples", "inputs", "epochs", "batch"} <= config.keys():
        size = f"{numbers['size']}. " if "size" in numbers else ""
        return f"{size}Seeds {seeds}. Tables give mean ± standard deviation over them."
    return (
        f"Width {config['width']}, {config['samples']:,} samples of dimension {config['inputs']}, "
        f"{config['classes']} classes, {config['epochs']} epochs, batches of {config['batch']}; "
        f"seeds {seeds}. Tables give mean ± standard deviation over the seeds that converged."
    )


def inserted(page: str, section: str) -> str:
    """Replace the text between the two marks of a page."""
    before, begin, section_and_end = page.partition(BEGIN)
    _, end, after = section_and_end.partition(END)
    if not (begin and end):
        raise SystemExit(f"Expected the marks {BEGIN} and {END} in the page, in this order.")
    return before + section + after


def build(name: str) -> Path:
    """Rewrite one page and its pictures from the recorded evidence."""
    from nclab.figures.matplotlib_renderer import draw

    numbers = best_evidence(name)
    assert numbers is not None
    for picture in pictures_of(name, numbers):
        target = PAGES / "images" / f"{picture.name}.png"
        draw(picture).savefig(target, dpi=200, metadata={"Software": None})
    page = PAGES / f"{name}.md"
    page.write_text(inserted(page.read_text(), results(name, numbers)))
    return page


def network_hours(runs: Path, numbers: dict[str, Any]) -> dict[str, Any]:
    """Return the total training time of the networks on one core each, including pauses."""
    found = numbers.get("runs") or numbers.get("rows", [])
    names = {one if isinstance(one, str) else f"fleet/{one['run']}" for one in found if _run(one)}
    folders = [runs / name for name in names]
    if not folders:
        return {}
    begun = [datetime.fromisoformat(read_run(one).manifest.created).timestamp() for one in folders]
    ended = [(one / "journal.jsonl").stat().st_mtime for one in folders]
    return {"network_hours": sum(b - a for a, b in zip(begun, ended, strict=True)) / 3600}


def _run(one: Any) -> bool:
    """Whether a value names a run, as a folder or as a row of a sweep."""
    return isinstance(one, str) or bool(one.get("run"))


if __name__ == "__main__":
    chosen = sys.argv[2:] or list(experiments())
    if len(sys.argv) > 1:  # record what is there before the pages are written
        runs = Path(sys.argv[1])
        for name in chosen:
            if (runs / name / "numbers.json").exists():
                content = json.loads((runs / name / "numbers.json").read_text())
                found = {"command": command(name, content), **network_hours(runs, content)}
                print(f"recorded {write_evidence(name, content, **found)}")
        for paper in sorted({paper_of(name) for name in chosen}):
            if kept := record_networks(paper, runs):
                print(f"kept {kept} networks of {paper}")
    for name in chosen:
        page = PAGES / f"{name}.md"
        if best_evidence(name) is not None and page.exists() and BEGIN in page.read_text():
            print(f"wrote {build(name)}")
