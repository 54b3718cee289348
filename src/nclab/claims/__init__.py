"""Claims of papers: statements, their checks and verdicts, and the experiments behind them."""

from nclab.claims.claim import Claim, Finding, Kind, Verdict
from nclab.claims.effects import Part, Share
from nclab.claims.judging import judge_effects, judge_settings, with_readings
from nclab.claims.ledger import find, judge_all
from nclab.claims.paper import Erratum, Paper
from nclab.claims.pictures import Line, Points, line_panel, point_panel
from nclab.claims.registry import claims, errata, experiments, papers
from nclab.claims.tables import Column, Table, list_rows, summarise

__all__ = [
    "Claim",
    "Column",
    "Erratum",
    "Finding",
    "Kind",
    "Line",
    "Paper",
    "Part",
    "Points",
    "Share",
    "Table",
    "Verdict",
    "claims",
    "errata",
    "experiments",
    "find",
    "judge_all",
    "judge_effects",
    "judge_settings",
    "line_panel",
    "list_rows",
    "papers",
    "point_panel",
    "summarise",
    "with_readings",
]
