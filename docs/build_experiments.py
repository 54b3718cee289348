"""Write the recorded evidence of the experiments into their pages, tables and pictures.

python docs/build_experiments.py [RUNS [NAME …]] first records the numbers of RUNS as evidence, and
its networks at a paper's size, so that another machine can add seeds:
nclab reproduce NAME --preset paper --seeds 5 --recorded.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from nclab.claims import evidence
from nclab.claims.evidence import RecordedNetworks, best_evidence
from nclab.claims.ledger import judge_experiment
from nclab.claims.pictures import forest
from nclab.claims.registry import contents, experiments, paper_of
from nclab.claims.tables import Table
from nclab.errors import RecordError
from nclab.figures.picture import Picture
from nclab.files import write_whole
from nclab.records import find_runs, read_run
from nclab.records.encoding import to_json
from nclab.records.journal import JOURNAL
from nclab.records.manifest import Manifest
from nclab.records.schema import END, MEASUREMENT

PAGES = Path(__file__).parent / "experiments"
BEGIN_MARK, END_MARK = "<!-- results -->", "<!-- end of results -->"
REDUCED = "quick"
"""Preset whose networks are too small to be evidence."""


def results(name: str, numbers: dict[str, Any]) -> str:
    """Return the generated section of a page: sizes, pictures, tables and verdicts."""
    judged = judge_experiment(name, numbers)
    shown = [
        f"![{picture.title}](images/{picture.name}.png)\n\n{picture.caption}"
        for picture in pictures_of(name, numbers)
    ]
    tables = [table for table in experiments()[name].tables(numbers) if isinstance(table, Table)]
    if judged:
        table = verdict_table(judged)
        title = "What the results support; no verdicts" if numbers.get("published") else table.title
        tables.append(table._replace(title=title))
    return "\n\n".join(
        [BEGIN_MARK, made_by(numbers), sizes(numbers), *shown, *map(as_markdown, tables), END_MARK]
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
    text += " --author-data FOLDER" if numbers.get("author_data") else ""
    return f"for preset in {' '.join(presets)}; do {text}; done" if several else text


def made_by(numbers: dict[str, Any]) -> str:
    """Return the command, the commit and the time of these numbers."""
    manifest = numbers["manifest"]
    made = [f"Commit {manifest['commit'][:12]}"] if manifest.get("commit") else []
    if "hours" in manifest:
        made.append(f"{manifest['hours']:.2g} hours on two cores, whatever else they did")
    return f"From `{manifest['command']}`. {', '.join(made)}{'.' if made else ''}".rstrip()


def sizes(numbers: dict[str, Any]) -> str:
    """Return the sizes of an experiment in one or two sentences."""
    config, seeds = numbers["config"], ", ".join(map(str, numbers["seeds"]))
    if numbers.get("published"):
        return f"{numbers['size'][0].upper()}{numbers['size'][1:]}."
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
    before, begin, section_and_end = page.partition(BEGIN_MARK)
    _, end, after = section_and_end.partition(END_MARK)
    if not (begin and end):
        marks = f"{BEGIN_MARK} and {END_MARK}"
        raise SystemExit(f"Expected the marks {marks} in the page, in this order.")
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


def verdict_table(judged: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table of claims that were judged from the numbers of a page."""
    columns = ("", "claim", "source", "verdict", "answer", "other readings")
    lines = []
    for row in judged:
        paper, _, location = row["source"].partition(", ")
        source = location if row["needs"].startswith(f"{paper}_") else row["source"]
        readings = "; ".join(
            f"if {reading['reading']}: {reading['verdict']}" for reading in row["readings"]
        )
        cells = row["mark"], row["text"], source, row["verdict"], row["answer"]
        lines.append((*cells, readings or "–"))
    return Table("Verdicts, computed from the numbers", columns, lines)


def as_markdown(table: Table) -> str:
    """Return a table in Markdown."""

    def line(cells: Sequence[str]) -> str:
        return "|" + "|".join(f" {cell.replace('|', chr(92) + '|')} " for cell in cells) + "|"

    ruler = "|---" * len(table.columns) + "|"
    lines = [f"**{table.title}**", "", line(table.columns), ruler, *map(line, table.rows)]
    return "\n".join(lines)


def check_evidence(name: str, numbers: Mapping[str, Any]) -> None:
    """Raise if numbers are not of a size that counts as evidence, or of code that was changed."""
    settings = [
        json.loads(json.dumps(asdict(config)))
        for preset, config in experiments()[name].PRESETS.items()
        if preset != REDUCED
    ]
    if numbers.get("settings") not in settings:
        raise RecordError(
            f"Expected {name} at the size of its paper, got preset {numbers.get('preset')!r} with "
            "other settings. Run it again with --preset paper."
        )
    check_commit(name, numbers.get("manifest", {}).get("commit"))


def check_commit(what: str, commit: str | None) -> None:
    """Raise if the code that made something is unknown, or differs from its commit."""
    if not commit or commit.endswith("-dirty"):
        raise RecordError(
            f"Expected {what} from a clean commit, got {commit}. Commit all changes and run it "
            "again."
        )


def write_evidence(name: str, numbers: Mapping[str, Any], **provenance: Any) -> Path:
    """Write the numbers of an experiment as compact evidence; add their provenance."""
    file = evidence.evidence_file(name)
    file.parent.mkdir(exist_ok=True)
    manifest = {**numbers.get("manifest", {}), **provenance}
    content = json.dumps(
        {**numbers, "manifest": manifest},
        allow_nan=False,
        ensure_ascii=False,
        separators=(",", ":"),
    )
    write_whole(file, (content.replace("},{", "},\n{") + "\n").encode())
    evidence.read_evidence.cache_clear()
    return file


def record_networks(paper: str, runs: Path) -> int:
    """Add finished networks at a paper's size to the recorded ones; return how many were new."""
    recorded = evidence.read_networks(paper)
    declared = [value for value in contents(paper) if isinstance(value, RecordedNetworks)]
    new = {
        network["manifest"]["name"]: network
        for declaration in declared
        for network in _finished(declaration, runs)
        if network["manifest"]["name"] not in recorded
    }
    for run, network in new.items():
        check_commit(run, network["manifest"]["commit"])
    if not new:
        return 0
    networks = {**recorded, **new}
    lines = [to_json(networks[name]) for name in sorted(networks)]
    evidence.networks_file(paper).parent.mkdir(exist_ok=True)
    write_whole(evidence.networks_file(paper), "".join(f"{line}\n" for line in lines).encode())
    return len(new)


def _finished(declaration: RecordedNetworks, runs: Path) -> Iterator[dict[str, Any]]:
    """Yield what is recorded of every finished run that counts as evidence."""
    for folder in find_runs(runs / declaration.folder):
        view = read_run(folder, kinds=(MEASUREMENT, END))
        measurements, end = view.of_kind(MEASUREMENT), view.end
        if end is None or not measurements or not _is_evidence(view.manifest):
            continue
        if view.problem:
            raise RecordError(f"Expected an intact journal in {folder}, got: {view.problem}")
        begun = datetime.fromisoformat(view.manifest.created).timestamp()
        names = ("layer", *declaration.numbers)
        yield {
            "folder": declaration.folder,
            "manifest": _without_machine(view.manifest),
            "hours": round(((folder / JOURNAL).stat().st_mtime - begun) / 3600, 4),
            "measurements": [
                {
                    **measurement,
                    "layers": [
                        {name: layer[name] for name in names if name in layer}
                        for layer in measurement["layers"]
                    ],
                }
                for measurement in measurements[0 if declaration.all_measurements else -1 :]
            ],
            "end": end,
        }


def _is_evidence(manifest: Manifest) -> bool:
    """Whether the command of a run names a preset other than the reduced one."""
    _, option, preset = manifest.command.replace("=", " ").partition("--preset ")
    return bool(option) and not preset.startswith(REDUCED)


def _without_machine(manifest: Manifest) -> dict[str, Any]:
    """Return a manifest without the name and the paths of the machine."""
    _, _, words = manifest.command.partition(" ")
    command = re.sub(r" --out[ =]\S+", "", f"nclab {words}")
    command = re.sub(r" --author-data[ =]\S+", " --author-data FOLDER", command)
    return {**manifest.to_dict(), "command": command, "machine": manifest.machine.split("-")[0]}


def training_hours(runs: Path, numbers: dict[str, Any]) -> dict[str, Any]:
    """Return the hours in which at least one network was in training on a machine with two cores.

    Networks are trained in groups that take turns on the cores, so that their hours overlap.
    """
    found = numbers.get("runs") or numbers.get("rows", [])
    names = {one if isinstance(one, str) else f"fleet/{one['run']}" for one in found if _run(one)}
    folders = [runs / name for name in names]
    begun = [datetime.fromisoformat(read_run(one).manifest.created).timestamp() for one in folders]
    ended = [(one / "journal.jsonl").stat().st_mtime for one in folders]
    seconds = last_end = 0.0
    for begin, end in sorted(zip(begun, ended, strict=True)):
        seconds += max(0.0, end - max(begin, last_end))
        last_end = max(last_end, end)
    return {"hours": round(seconds / 3600, 4)} if folders else {}


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
                check_evidence(name, content)
                found = {"command": command(name, content), **training_hours(runs, content)}
                print(f"recorded {write_evidence(name, content, **found)}")
        for paper in sorted({paper_of(name) for name in chosen}):
            if kept := record_networks(paper, runs):
                print(f"kept {kept} networks of {paper}")
    for name in chosen:
        page = PAGES / f"{name}.md"
        if best_evidence(name) is not None and page.exists() and BEGIN_MARK in page.read_text():
            print(f"wrote {build(name)}")
