"""The pages of a report: templates that are filled with the content of a folder.

Formulas are written in TeX between dollars, such as $w_k$. latex2mathml turns them into MathML,
so that pages need neither TeX nor the internet.
"""

import functools
import html
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nclab import __version__
from nclab.errors import NclabError
from nclab.records.manifest import versions
from nclab.report.content import Content, ExperimentFolder, Figure, safe_name
from nclab.report.run_data import MAX_ALARMS, SEED, summary
from nclab.report.run_follower import AXES, RunFollower
from nclab.text import counted, is_number, number, plain_math

if TYPE_CHECKING:
    from jinja2 import Environment

ASSETS = Path(__file__).with_name("assets")
TEMPLATES = Path(__file__).with_name("templates")
LAST = ("accuracy", "loss", "min_intra", "max_inter", "nc1_trace_pinv")
MAX_OVERVIEW_RUNS = 12
"""Largest number of runs on the overview; the page of runs lists all runs."""
TONES = ("good", "fair", "bad", "open")
"""Names of the colours of verdicts, in the order in which pages list the verdicts."""


@dataclass(frozen=True)
class Pages:
    """Renders the pages of one folder."""

    content: Content
    runs: Mapping[str, RunFollower]
    """Runs by slug, the name of their page."""
    table: Mapping[str, Any]
    """Table of all runs with the settings in which they differ and their last values."""
    plotly: bool
    """Whether plotly draws the figures; otherwise pages show their images."""
    live: bool = False

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
        return {**papers, **runs, **fixed}

    def _index(self) -> str:
        content = self.content
        statements, findings = _by_author(content.claims)
        papers = [
            {
                **paper,
                "key": key,
                "experiments": content.of_paper(key),
                "counts": _counts(content.claims_of(key)),
            }
            for key, paper in content.papers.items()
        ]
        heading = "Papers on neural collapse, reproduced" if papers else "Runs"
        lead = "All runs with their curves and their geometry."
        if papers:
            lead = "All figures with their numbers, all statements with their verdicts, all runs."
        return self._fill(
            "index.html",
            "index.html",
            title="Overview",
            heading=heading,
            lead=lead,
            papers=papers,
            gallery=self._gallery(),
            **self._hero(),
            others=content.of_paper(""),
            titles={entry.name: content.title_of(entry.name) for entry in content.experiments},
            figure_count=len(self._figures()),
            ill=sum(bool(row["health"]) for row in self.table["runs"]),
            claims=content.claims,
            theirs=len(statements),
            ours=len(findings),
            tallies=[
                {"title": title, "whose": whose, "tally": _tally(claims)}
                for title, whose, claims in (
                    ("Statements of papers", "papers", statements),
                    ("Our findings", "ours", findings),
                )
                if claims
            ],
            relations=_relations(content.claims),
            ledger_problem=content.ledger_problem,
            skipped=content.skipped,
            settings=[name for name in self.table["axes"] if name != SEED],
            problems=content.problems,
            runs=[
                {**row, "last": [row["epoch"], *(row["values"].get(name) for name in LAST)]}
                for row in self.table["runs"]
            ],
            axes=self.table["axes"],
            shown=MAX_OVERVIEW_RUNS,
            commands=self._commands(),
            versions=self._versions(),
        )

    def _paper(self, key: str) -> str:
        experiments = self.content.of_paper("" if key == "other" else key)
        claims = {experiment.name: self._claims_about(experiment) for experiment in experiments}
        shown = {claim["id"] for group in claims.values() for claim in group}
        paper = self.content.papers.get(key)
        return self._fill(
            "paper.html",
            f"papers/{key}.html",
            title=key if paper else "Other experiments",
            heading=paper["title"] if paper else "Other experiments",
            lead=f"{paper['authors']}, {paper['year']}" if paper else "",
            experiments=experiments,
            descriptions={name: self._describe(name, group) for name, group in claims.items()},
            corrections=self._corrections(),
            errata=[row for row in self.content.errata if row["where"].startswith(f"{key},")],
            claims_by_experiment=claims,
            rest=[claim for claim in self.content.claims_of(key) if claim["id"] not in shown],
        )

    def _claims(self) -> str:
        order = {key: index for index, key in enumerate(self.content.papers)}
        keys = {claim["id"]: claim["id"].split("/")[0] for claim in self.content.claims}
        papers = sorted(dict.fromkeys(keys.values()), key=lambda key: order.get(key, len(order)))
        claims = sorted(self.content.claims, key=lambda claim: papers.index(keys[claim["id"]]))
        return self._fill(
            "claims.html",
            "claims.html",
            title="Claims",
            claims=[{**claim, "where": self._links(claim)} for claim in claims],
            corrections=self._corrections(),
            tally=_tally(self.content.claims),
            papers=papers,
            ledger_problem=self.content.ledger_problem,
        )

    def _runs(self) -> str:
        """Return the page that compares runs; on the live server it updates itself."""
        title = "Live" if self.live else "Runs"
        return self._fill("runs.html", "runs.html", title=title, runs=len(self.runs), wide=True)

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
            axes=[AXES[name] for name in run.axes()],
        )

    def _fill(self, template: str, here: str, **values: Any) -> str:
        root = "../" * here.count("/")
        nav = [("index.html", "Overview")]
        nav += [("runs.html", "Live")] if self.live else []
        nav += [(f"papers/{key}.html", key) for key in self.content.papers]
        nav += [("papers/other.html", "Other")] if self.content.of_paper("") else []
        nav += [("claims.html", "Claims")] if self.content.claims else []
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
            version=__version__,
            made="live" if self.live else f"made {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        )

    def _claims_about(self, experiment: ExperimentFolder) -> list[Mapping[str, Any]]:
        """Return the claims that are judged from an experiment or refer to its figures."""
        figures = {figure.name for figure in experiment.figures}
        return [
            claim
            for claim in self.content.claims
            if claim["needs"] == experiment.name or claim["links"].get("figure") in figures
        ]

    def _describe(self, experiment: str, claims: list[Mapping[str, Any]]) -> dict[str, str]:
        """Return title and statement of an experiment, and counts of the verdicts on its claims."""
        description = {"title": experiment, "says": "", "source": "", "about": ""}
        description |= self.content.descriptions.get(experiment, {})
        verdicts = []
        nouns = ("statement", "of papers"), ("finding", "of our own")
        for (noun, owner), group in zip(nouns, _by_author(claims), strict=True):
            counts = Counter(claim["verdict"] for claim in group).most_common()
            listed = ", ".join(f"{count} {verdict}" for verdict, count in counts)
            verdicts += [f"{counted(len(group), noun)} {owner}: {listed}."] if group else []
        return {
            **description,
            "verdicts": " ".join(verdicts),
            "recorded": "yes" if any(claim["size"] for claim in claims) else "",
            "here": _relations(claims),
        }

    def _corrections(self) -> dict[str, Mapping[str, Any]]:
        """Return the erratum of every claim that has one, by the id of the claim."""
        return {id_: erratum for erratum in self.content.errata for id_ in erratum["claims"]}

    def _links(self, claim: Mapping[str, Any]) -> list[dict[str, str]]:
        """Return the links of a claim to its figure, its erratum and its code."""
        addresses = {}
        for figure in self._figures():
            if figure.name == claim["links"].get("figure"):
                addresses["figure"] = f"{self._page_of(figure)}#{figure.id}"
        if erratum := self._corrections().get(claim["id"]):
            key = erratum["where"].split(",")[0]
            if key in self.content.papers:
                addresses["erratum"] = f"papers/{key}.html#{safe_name(erratum['where'])}"
        return [
            {"name": name, "text": text, "href": addresses.get(name, "")}
            for name, text in claim["links"].items()
            if text
        ]

    def _hero(self) -> dict[str, Any]:
        """Return slug and name of the run whose 3-D picture opens the report.

        It is the run with the longest animation.
        """
        animated = [slug for slug, run in self.runs.items() if run.geometry.count > 1]
        slug = max(animated, key=lambda slug: self.runs[slug].geometry.count, default=None)
        return {"hero": slug, "hero_name": self.runs[slug].name if slug else ""}

    def _gallery(self) -> list[dict[str, str]]:
        return [
            {
                "id": figure.id,
                "title": figure.picture.title or figure.name,
                "experiment": self.content.title_of(figure.experiment),
                "page": self._page_of(figure),
                "suffix": ".svg" if ".svg" in figure.images else ".png",
                "size": experiment.size,
            }
            for experiment in self.content.experiments
            for figure in experiment.figures
            if ".svg" in figure.images or ".png" in figure.images
        ]

    def _figures(self) -> list[Figure]:
        return [figure for entry in self.content.experiments for figure in entry.figures]

    def _page_of(self, figure: Figure) -> str:
        return f"papers/{self.content.paper_of(figure.experiment) or 'other'}.html"

    def _commands(self) -> list[str]:
        """Return the command lines that repeat all experiments and runs, without duplicates."""
        lines = [experiment.command for experiment in self.content.experiments]
        lines += [command_line(run.manifest.command) for run in self.runs.values()]
        commands = list(dict.fromkeys(line for line in lines if line))
        rest = len(commands) - 30
        more = [f"… and {rest} more on the pages of the runs"] if rest > 0 else []
        return [*commands[:30], *more, f"nclab report {self.content.root.name}"]

    def _versions(self) -> dict[str, str]:
        used: dict[str, dict[str, None]] = {}
        for run in self.runs.values():
            commit = {"commit": run.manifest.commit} if run.manifest.commit else {}
            for name, value in {**run.manifest.versions, **commit}.items():
                used.setdefault(name, {})[str(value)] = None
        return {name: ", ".join(values) for name, values in used.items()} or versions()


def _by_author(
    claims: Sequence[Mapping[str, Any]],
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Split claims into statements of papers and our own findings."""
    statements = [claim for claim in claims if not claim["ours"]]
    return statements, [claim for claim in claims if claim["ours"]]


def _counts(claims: Sequence[Mapping[str, Any]]) -> str:
    """Return the number of statements of papers and of our own findings as text."""
    statements, findings = _by_author(claims)
    counts = [counted(len(statements), "statement")] if statements or not findings else []
    counts += [f"{counted(len(findings), 'finding')} of our own"] if findings else []
    return " · ".join(counts)


def _relations(claims: Sequence[Mapping[str, Any]]) -> str:
    """Return in words how many verdicts on these runs agree with the recorded verdicts."""
    counts = Counter(str(claim["here"]["relation"]) for claim in claims if claim["here"])
    verbs = {"agrees": "agree", "differs": "differ", "undecided": "undecided"}
    return ", ".join(f"{counts[name]} {verb}" for name, verb in verbs.items()) if counts else ""


def _tally(claims: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, int]]:
    """Return verdict, colour and number of claims for each verdict, good verdicts first."""
    counts = Counter((claim["verdict"], claim["tone"]) for claim in claims)
    rank = {tone: index for index, tone in enumerate(TONES)}
    ordered = sorted(counts, key=lambda pair: (rank.get(pair[1], len(rank)), pair))
    return [(verdict, tone, counts[verdict, tone]) for verdict, tone in ordered]


@functools.cache
def environment() -> "Environment":
    """Return the template engine; it escapes all values and rejects unknown variables."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    mark_safe = environment.filters["safe"]
    environment.filters |= {
        "number": lambda value: number(value) if is_number(value) else "–",
        "setting": _setting,
        "listed": lambda values: ", ".join(map(str, values)) if isinstance(values, list) else "",
        "pretty": pretty,
        "safe_name": safe_name,
        "math": lambda text: mark_safe(typeset(str(text))),
        "plain_math": lambda text: plain_math(str(text)),
    }
    return environment


def _setting(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "–" if value is None else str(value)


def command_line(text: str) -> str:
    """Return a command as a user would type it, without the folder of the program.

    >>> command_line("/home/me/.venv/bin/nclab sweep --out runs"), command_line("train.py 3")
    ('nclab sweep --out runs', 'python train.py 3')
    """
    program, space, arguments = text.partition(" ")
    if program.endswith(".py"):
        return f"python {text}"
    if program.startswith("'"):
        return text
    return f"{program.rpartition('/')[2]}{space}{arguments}"


def pretty(value: Any) -> str:
    """Return indented JSON."""
    return json.dumps(value, indent=1, ensure_ascii=False)


def typeset(text: str) -> str:
    r"""Return a text as HTML, with the formulas between dollars as MathML.

    A formula that latex2mathml does not understand stays as it is.

    >>> print(typeset(r"within $\epsilon$ of <b>"))  # doctest: +ELLIPSIS
    within <math ...><mrow><mi>&#x003F5;</mi></mrow></math> of &lt;b&gt;
    >>> typeset("it costs 5$")
    'it costs 5$'
    """
    parts = re.split(r"\$([^$\n]+)\$", text)
    pieces = []
    for index, part in enumerate(parts):
        if index % 2 == 0:
            pieces.append(html.escape(part))
            continue
        try:
            pieces.append(as_mathml(part, block=False))
        except NclabError:
            pieces.append(html.escape(f"${part}$"))
    return "".join(pieces)


def as_mathml(formula: str, *, block: bool) -> str:
    r"""Return a TeX formula as MathML; raise if a part of it cannot be typeset.

    >>> as_mathml(r"\arg x", block=False).partition("<mrow>")[2]
    '<mo>arg</mo><mi>x</mi></mrow></math>'
    """
    from latex2mathml.converter import convert

    known = re.sub(r"(\\[Bb]igg?[lr])\\\|", r"\1‖", formula)
    known = known.replace(r"\arg", r"\operatorname{arg}")
    try:
        mathml = str(convert(known.strip(), display="block" if block else "inline"))
    except Exception as error:
        raise NclabError(f"Expected TeX that can be typeset, got {formula!r}.") from error
    if "\\" in mathml:
        unknown = ", ".join(re.findall(r"\\\w*", mathml))
        raise NclabError(f"Expected TeX that can be typeset, got {unknown} in {formula!r}.")
    return mathml


@functools.cache
def formulas_of_metrics() -> dict[str, str]:
    """Return the typeset formula of every metric whose docstring has one, by the metric's name.

    >>> formulas_of_metrics()["cdnv"].startswith("<math")
    True
    """
    from nclab.metrics.catalogue import BY_NAME

    formulas = {}
    for name, metric in BY_NAME.items():
        formula = re.search(r"\$\$(.+?)\$\$", metric.function.__doc__ or "", re.DOTALL)
        if formula:
            formulas[name] = as_mathml(" ".join(formula[1].split()), block=True)
    return formulas
