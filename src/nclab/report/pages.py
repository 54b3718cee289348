"""The pages of a report: templates that are filled with the content of a folder."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import nclab
from nclab.figures.palette import DARK, LIGHT
from nclab.records.manifest import versions
from nclab.records.schema import last_layer
from nclab.report.columns import AXES
from nclab.report.compare import table
from nclab.report.content import Content, ExperimentFolder, Figure, safe_name
from nclab.report.environment import command_line, environment, formulas, pretty
from nclab.report.run_data import MAX_ALARMS, summary
from nclab.report.run_follower import RunFollower
from nclab.text import counted

ASSETS = Path(__file__).with_name("assets")
LAST = ("accuracy", "loss", "min_intra", "max_inter", "nc1_trace_pinv")
MAX_OVERVIEW_RUNS = 12
"""Number of runs on the overview; the page of runs lists all."""
TONES = ("good", "fair", "bad", "open")
"""Colours of verdicts, in the order in which verdicts are counted."""
MAX_QUOTED = 3
"""Statements of each verdict that the summary of an experiment quotes."""
MAX_SPATIAL_CLASSES = 4
"""Largest number of classes whose centred means fit into three dimensions."""


@dataclass(frozen=True)
class Pages:
    """Renders the pages of one folder."""

    content: Content
    runs: Mapping[str, RunFollower]
    """Runs by slug."""
    plotly: bool
    live: bool = False

    @cached_property
    def table(self) -> dict[str, Any]:
        """Table by which runs are compared."""
        return table(self.runs)

    def names(self) -> list[str]:
        """Return the paths of all pages."""
        return list(self._makers())

    def render(self, name: str) -> str | None:
        """Return a page, or None if there is no such page."""
        make = self._makers().get(name)
        return None if make is None else make()

    def _makers(self) -> dict[str, Callable[[], str]]:
        keys = [*self.content.papers, *(["other"] if self.content.of_paper("") else [])]
        papers = {f"papers/{key}.html": partial(self._paper, key) for key in keys}
        runs = {f"runs/{slug}.html": partial(self._run, slug) for slug in self.runs}
        fixed = {"claims.html": self._claims, "runs.html": self._runs, "index.html": self._index}
        cited = {"formulas.html": self._formulas} if self._cited() else {}
        return {**papers, **runs, **cited, **fixed}

    def _index(self) -> str:
        content = self.content
        papers = [
            {
                **paper,
                "key": key,
                "experiments": content.of_paper(key),
                "judging": self._judging(key),
                "counts": _counts(content.claims_of(key)),
            }
            for key, paper in content.papers.items()
        ]
        reproduced = bool(papers)
        return self._fill(
            "index.html",
            "index.html",
            title="Overview",
            heading="Papers on neural collapse, reproduced" if reproduced else "Runs",
            lead="All figures with their numbers, all statements with their verdicts, all runs."
            if reproduced
            else "All runs with their curves and their geometry.",
            papers=papers,
            gallery=self._gallery(),
            **self._hero(),
            others=content.of_paper(""),
            titles={one.name: content.title_of(one.name) for one in content.experiments},
            figures=content.figures,
            figure_count=len(content.figures) + len(self._figures()),
            ill=sum(bool(row["health"]) for row in self.table["runs"]),
            claims=content.claims,
            theirs=len(_whose(content.claims)[0]),
            ours=len(_whose(content.claims)[1]),
            tallies=self._tallies(),
            relations=_relations(content.claims),
            ledger_problem=content.ledger_problem,
            skipped=content.skipped,
            problems=content.problems,
            runs=self._rows(),
            axes=self.table["axes"],
            shown=MAX_OVERVIEW_RUNS,
            commands=self._commands(),
            versions=self._versions(),
        )

    def _paper(self, key: str) -> str:
        experiments = self.content.of_paper("" if key == "other" else key)
        beside = {one.name: self._beside(one) for one in experiments}
        shown = {claim["id"] for claims in beside.values() for claim in claims}
        paper = self.content.papers.get(key)
        return self._fill(
            "paper.html",
            f"papers/{key}.html",
            title=key if paper else "Other experiments",
            heading=paper["title"] if paper else "Other experiments",
            lead=f"{paper['authors']}, {paper['year']}" if paper else "",
            experiments=experiments,
            descriptions={one.name: self._describe(one, beside[one.name]) for one in experiments},
            corrections=self._corrections(),
            errata=[one for one in self.content.errata if one["where"].startswith(f"{key},")],
            claims_beside=beside,
            judging=self._judging(key),
            rest=[claim for claim in self.content.claims_of(key) if claim["id"] not in shown],
        )

    def _claims(self) -> str:
        by_paper: dict[str, list[Mapping[str, Any]]] = {}
        for one in self.content.claims:
            by_paper.setdefault(str(one["id"]).split("/")[0], []).append(one)
        known = list(self.content.papers)
        papers = sorted(by_paper, key=lambda key: known.index(key) if key in known else len(known))
        return self._fill(
            "claims.html",
            "claims.html",
            title="Claims",
            claims=[{**one, "where": self._links(one)} for key in papers for one in by_paper[key]],
            corrections=self._corrections(),
            tally=_tally(self.content.claims),
            papers=papers,
            ledger_problem=self.content.ledger_problem,
        )

    def _formulas(self) -> str:
        cited = self._cited()
        return self._fill(
            "formulas.html",
            "formulas.html",
            title="Formulas",
            formulas=[one for one in formulas() if one["anchor"] in cited],
        )

    def _cited(self) -> set[str]:
        """Return the anchors of the formulas to which claims of this folder link."""
        known = {one["anchor"] for one in formulas()}
        links = (str(claim["links"].get("formula") or "") for claim in self.content.claims)
        return known & {link.rpartition("#")[2] for link in links}

    def _runs(self) -> str:
        return self._fill("runs.html", "runs.html", title="Runs", runs=len(self.runs), wide=True)

    def _run(self, slug: str) -> str:
        run = self.runs[slug]
        manifest = run.manifest
        facts = {
            "command": command_line(manifest.command),
            "seed": manifest.seed,
            "outcome": (run.end or {}).get("outcome"),
            "created": manifest.created,
            "device": manifest.device,
            "machine": manifest.machine,
            "commit": manifest.commit,
            **manifest.versions,
        }
        return self._fill(
            "run.html",
            f"runs/{slug}.html",
            title=run.name,
            run={"slug": slug, **summary(run)},
            facts=[(name, value) for name, value in facts.items() if value is not None],
            config=pretty(manifest.config),
            alarms=run.alarms[-MAX_ALARMS:],
            thesis="pan2023" in self.content.papers,
            places=[AXES[name] for name in run.axes()],
        )

    def live_page(self) -> str:
        """Return the page on which runs are compared while they grow."""
        return self._fill("runs.html", "live.html", title="Live", runs=len(self.runs), wide=True)

    def _fill(self, template: str, here: str, **values: Any) -> str:
        root = "../" * here.count("/")
        nav = [("index.html", "Overview")]
        nav += [("live.html", "Live")] if self.live else []
        nav += [(f"papers/{key}.html", key) for key in self.content.papers]
        nav += [("papers/other.html", "Other")] if self.content.of_paper("") else []
        nav += [("claims.html", "Claims")] if self.content.claims else []
        nav += [("formulas.html", "Formulas")] if self._cited() else []
        nav += [] if self.live else [("runs.html", "Runs")]
        page = environment().get_template(template)
        return page.render(
            **{"wide": False, **values},
            root=root,
            here=here,
            nav=nav,
            live=self.live,
            plotly=self.plotly,
            folder=self.content.root.name,
            version=nclab.__version__,
            made="live" if self.live else f"made {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        )

    def _beside(self, experiment: ExperimentFolder) -> list[Mapping[str, Any]]:
        """Return the claims that are judged from an experiment or refer to its figures."""
        figures = {figure.name for figure in experiment.figures}
        return [
            claim
            for claim in self.content.claims
            if claim["needs"] == experiment.name or claim["links"].get("figure") in figures
        ]

    def _describe(
        self, experiment: ExperimentFolder, claims: list[Mapping[str, Any]]
    ) -> dict[str, str]:
        """Return title and statement of an experiment, and a summary of the verdicts on it."""
        description = {"title": experiment.name, "says": "", "source": "", "about": ""}
        description |= self.content.descriptions.get(experiment.name, {})
        theirs, ours = _whose(claims)
        saw = []
        if theirs:
            keys = {str(claim["id"]).split("/")[0] for claim in theirs}
            paper = "papers" if len(keys) > 1 else "paper"
            said = f"{counted(len(theirs), 'statement')} of the {paper}: {_seen(theirs)}."
            saw += [said, *_not_confirmed(theirs)]
        if ours:
            said = f"{counted(len(ours), 'finding')} of our own: {_seen(ours)}."
            saw += [
                said,
                *(f"Of our own, {one[0].lower()}{one[1:]}" for one in _not_confirmed(ours)),
            ]
        recorded = "yes" if any(claim["size"] for claim in claims) else ""
        return {
            **description,
            "saw": " ".join(saw),
            "recorded": recorded,
            "here": _relations(claims),
        }

    def _corrections(self) -> dict[str, Mapping[str, Any]]:
        """Return the erratum that a claim shows, by the id of the claim."""
        return {id_: one for one in self.content.errata for id_ in one["claims"]}

    def _links(self, claim: Mapping[str, Any]) -> list[dict[str, str]]:
        """Return the links of a claim to its figure, its formula, its erratum and its code."""
        found = []
        for name, text in claim["links"].items():
            figure = next((one for one in self._figures() if one.name == text), None)
            href = ""
            if name == "figure" and figure is not None:
                href = f"{self._page_of(figure)}#{figure.id}"
            anchor = str(text or "").rpartition("#")[2]
            if name == "formula" and anchor in self._cited():
                href = f"formulas.html#{anchor}"
            if name == "erratum" and (erratum := self._corrections().get(claim["id"])):
                key = erratum["where"].split(",")[0]
                if key in self.content.papers:
                    href = f"papers/{key}.html#{safe_name(erratum['where'])}"
            if text:
                found.append({"name": str(name), "text": str(text), "href": href})
        return found

    def _hero(self) -> dict[str, Any]:
        """Return the run whose 3-D picture opens the report: exact, long, and most collapsed."""

        def rank(slug: str) -> tuple[bool, int, float]:
            run = self.runs[slug]
            last = last_layer(run.last_measurement())
            intra, inter, classes = (
                last.get(name) for name in ("min_intra", "max_inter", "num_classes")
            )
            exact = isinstance(classes, int) and classes <= MAX_SPATIAL_CLASSES
            # A network that gives every sample the same features has intra and inter 1.
            if not (isinstance(intra, float) and isinstance(inter, float)):
                return exact, run.geometry.count, -2.0
            return exact, run.geometry.count, intra - inter

        able = [slug for slug, run in self.runs.items() if run.geometry.count > 1]
        slug = max(able, key=rank, default=None)
        return {"hero": slug, "hero_name": self.runs[slug].name if slug else ""}

    def _gallery(self) -> list[dict[str, str]]:
        return [
            {
                "id": one.id,
                "title": one.picture.title or one.name,
                "experiment": self.content.title_of(one.experiment),
                "page": self._page_of(one),
                "suffix": ".svg" if ".svg" in one.images else ".png",
                "size": experiment.size,
            }
            for experiment in self.content.experiments
            for one in experiment.figures
            if ".svg" in one.images or ".png" in one.images
        ]

    def _figures(self) -> list[Figure]:
        return [figure for one in self.content.experiments for figure in one.figures]

    def _page_of(self, figure: Figure) -> str:
        return f"papers/{self.content.paper_of(figure.experiment) or 'other'}.html"

    def _judging(self, key: str) -> list[dict[str, str]]:
        """Return experiments of other papers from which claims of this paper are judged."""
        return [
            {
                "title": self.content.title_of(one.name),
                "paper": self.content.paper_of(one.name) or "other",
                "name": one.name,
            }
            for one in self.content.judging(key)
        ]

    def _tallies(self) -> list[dict[str, Any]]:
        """Return the claims by verdict, separately for statements of papers and our findings."""
        theirs, ours = _whose(self.content.claims)
        groups = (
            ("Statements of papers", "papers", theirs),
            ("Our findings", "ours", ours),
        )
        return [
            {"title": title, "whose": whose, "tally": _tally(some)}
            for title, whose, some in groups
            if some
        ]

    def _rows(self) -> list[dict[str, Any]]:
        return [
            {**row, "last": [row["epoch"], *(row["values"].get(name) for name in LAST)]}
            for row in self.table["runs"]
        ]

    def _commands(self) -> list[str]:
        """Return the commands that repeat everything, each once."""
        lines = [one.command for one in self.content.experiments]
        lines += [command_line(run.manifest.command) for run in self.runs.values()]
        kept = list(dict.fromkeys(line for line in lines if line))
        more = [f"… and {len(kept) - 30} more on the pages of the runs"] if len(kept) > 30 else []
        return [*kept[:30], *more, f"nclab report {self.content.root.name}"]

    def _versions(self) -> dict[str, str]:
        found: dict[str, dict[str, None]] = {}
        for run in self.runs.values():
            commit = {"commit": run.manifest.commit} if run.manifest.commit else {}
            for name, value in {**run.manifest.versions, **commit}.items():
                found.setdefault(name, {})[str(value)] = None
        return {name: ", ".join(values) for name, values in found.items()} or versions()


def _whose(
    claims: Sequence[Mapping[str, Any]],
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Return the statements of papers, and our own findings."""
    return [one for one in claims if not one["ours"]], [one for one in claims if one["ours"]]


def _counts(claims: Sequence[Mapping[str, Any]]) -> str:
    """Return the numbers of statements and of our findings as text."""
    theirs, ours = _whose(claims)
    words = [counted(len(theirs), "statement")] if theirs or not ours else []
    return " · ".join([*words, *([f"{counted(len(ours), 'finding')} of our own"] if ours else [])])


def _relations(claims: Sequence[Mapping[str, Any]]) -> str:
    """Return how often the runs of this folder agree with the recorded verdicts."""
    said = Counter(str(claim["here"]["relation"]) for claim in claims if claim["here"])
    words = (("agrees", "agree"), ("differs", "differ"), ("undecided", "undecided"))
    return ", ".join(f"{said[name]} {word}" for name, word in words) if said else ""


def _tally(claims: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, int]]:
    """Return verdict, tone and count, the good verdicts first."""
    counts = Counter((claim["verdict"], claim["tone"]) for claim in claims)
    known = [*TONES, *sorted({tone for _, tone in counts} - set(TONES))]
    ordered = sorted(counts, key=lambda found: (known.index(found[1]), found[0]))
    return [(verdict, tone, counts[verdict, tone]) for verdict, tone in ordered]


def _seen(claims: Sequence[Mapping[str, Any]]) -> str:
    counts = Counter(str(claim["verdict"]) for claim in claims)
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())


def _not_confirmed(claims: list[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a sentence for each verdict that does not confirm the paper."""
    for verdict in dict.fromkeys(str(one["verdict"]) for one in claims if one["tone"] != "good"):
        own = [str(one["text"]).rstrip(".") for one in claims if one["verdict"] == verdict]
        more = f" and {len(own) - MAX_QUOTED} more" if len(own) > MAX_QUOTED else ""
        said = "; ".join(f"“{text}”" for text in own[:MAX_QUOTED] if text)
        if said:
            yield f"{verdict.capitalize()}: {said}{more}."


def palette_script() -> str:
    """Return the colours of the figures as a script, for figures that pages draw themselves."""
    papers = {"light": LIGHT._asdict(), "dark": DARK._asdict()}
    return f"window.nclab = window.nclab || {{}};\nnclab.palette = {json.dumps(papers)};\n"
