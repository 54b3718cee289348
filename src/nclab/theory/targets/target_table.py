"""A target as a table and sentences for the terminal."""

from typing import TYPE_CHECKING

from rich.console import Group as Lines
from rich.table import Table
from rich.text import Text

from nclab.text import number

if TYPE_CHECKING:
    from nclab.theory.targets.target import CountGroup, Target

SHOWN = 12
"""Groups in the table; of more the first and last."""


def target_table(target: "Target") -> Lines:
    """The groups of classes, then loss, proof and what became of whom."""
    table = Table(header_style="bold")
    table.add_column("samples", justify="right")
    table.add_column("classes", justify="right")
    for name in ("logit gap", "‖w‖", "‖mean‖", "cos w", "cos means"):
        table.add_column(name, justify="right")
    groups = target.groups
    said = any(group.state for group in groups)
    if said:
        table.add_column("")
    half = SHOWN // 2
    shown = groups if len(groups) <= SHOWN else [*groups[:half], None, *groups[-half:]]
    for group in shown:
        cells = _cells(group) if group is not None else ("…",) * 8
        table.add_row(*(cells if said else cells[:-1]))
    return Lines(table, *(Text(line) for line in lines(target)))


def lines(target: "Target") -> list[str]:
    """What is said below the table."""
    value = f"loss {target.loss:.10g}"
    if target.objective is not None:
        value += f", with penalties {target.objective:.10g}"
    said = [f"{target.geometry}: {value}"]
    gap = target.relative_gap
    proof = f"proof: {target.proof}"
    if gap is not None and target.proof == "duality gap":
        proof += f" {gap:.1e} of the value"
    elif gap is not None and "no proof" in target.proof:
        proof += f"; a bound leaves {gap:.1e} of the value open"
    said.append(f"{proof} ({target.source})")
    if target.is_zero:
        why = "The penalty is too strong" if target.setting.norms is None else "Nothing is gained"
        said.append(f"{why}: at the optimum everything but a bias is zero.")
    elif target.lost:
        said.append(f"Lost, with a mean of zero: {_some(target.lost)}.")
    if target.merged:
        said += [f"Merged into one mean: {_some(classes)}." for classes in target.merged[:5]]
    return [*said, *target.notes]


def _some(classes: tuple[int, ...]) -> str:
    words = ", ".join(str(c) for c in classes[:10])
    return f"classes {words}" + (f" and {len(classes) - 10} more" if len(classes) > 10 else "")


def _cells(group: "CountGroup") -> tuple[str, ...]:
    values = (group.logit_gap, group.classifier_norm, group.mean_norm)
    cosines = (group.classifier_cosine, group.mean_cosine)
    texts = (number(value) for value in (*values, *cosines))
    return f"{group.samples:g}", str(len(group.classes)), *texts, group.state
