"""The experiments of chapter 3 at a tiny size: real training, shared runs, plain numbers."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from tests.claims import thesis_rows

from nclab.errors import NclabError
from nclab.figures.picture import Panel
from nclab.papers.pan2023 import complexity as pan2023_complexity
from nclab.papers.pan2023 import conjectures as pan2023_conjectures
from nclab.papers.pan2023 import fig31 as pan2023_fig31
from nclab.papers.pan2023 import fig33 as pan2023_fig33
from nclab.papers.pan2023 import norms as pan2023_norms
from nclab.papers.pan2023.conjectures import Place
from nclab.papers.pan2023.networks import Networks, last_layers
from nclab.records import find_runs
from nclab.text import as_text
from nclab.theory.certificate import certify

TINY = Networks(
    samples=160, width=24, epochs=20, batch=40, moments=1, inputs=6, classes=3, workers=0
)
DECAYS = (1e-3, 1e-2)
ROOT = Path(__file__).parents[2]
MODULES = {
    "pan2023_fig31": pan2023_fig31,
    "pan2023_fig33": pan2023_fig33,
    "pan2023_complexity": pan2023_complexity,
    "pan2023_norms": pan2023_norms,
    "pan2023_conjectures": pan2023_conjectures,
}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def numbers(out: Path) -> dict[str, dict[str, Any]]:
    """All five, one after the other in one folder."""
    both = {"seeds": (0, 1), "out": out}
    small = {"networks": TINY, "layers": 4, "weight_decays": DECAYS}
    places = (Place(TINY, "teacher", 4, DECAYS), Place(TINY, "conic", 4, DECAYS))
    found = {
        "pan2023_fig31": pan2023_fig31.figure(pan2023_fig31.Config(**small), **both),  # type: ignore[arg-type]
        "pan2023_fig33": pan2023_fig33.figure(
            pan2023_fig33.Config(**{**small, "layers": 6}),  # type: ignore[arg-type]
            **both,  # type: ignore[arg-type]
        ),
        "pan2023_norms": pan2023_norms.compare(pan2023_norms.Config(**small), **both),  # type: ignore[arg-type]
        "pan2023_complexity": pan2023_complexity.compare(
            pan2023_complexity.Config(**small, teacher_depths=(1, 3)),  # type: ignore[arg-type]
            **both,  # type: ignore[arg-type]
        ),
        "pan2023_conjectures": pan2023_conjectures.conjectures(
            pan2023_conjectures.Config(places),
            **both,  # type: ignore[arg-type]
        ),
    }
    return {name: json.loads(json.dumps(value, allow_nan=False)) for name, value in found.items()}


def test_runs_are_shared(out: Path, numbers: dict[str, dict[str, Any]]) -> None:
    norms, affine, seeds = 3, 1, 2
    fig31 = norms * len(DECAYS) * seeds
    fig33 = linear_teacher = conic = affine * len(DECAYS) * seeds
    assert len(find_runs(out)) == fig31 + fig33 + linear_teacher + conic
    names = {row["run"] for row in numbers["pan2023_fig31"]["rows"]}
    assert {row["run"] for row in numbers["pan2023_norms"]["rows"]} <= names


def test_every_seed_has_its_own_data(numbers: dict[str, dict[str, Any]]) -> None:
    rows = [row for row in numbers["pan2023_fig31"]["rows"] if row["norm"] == "affine"]
    assert len(rows) == 4
    assert len({row["loss"] for row in rows}) == 4
    assert {(row["seed"], row["weight_decay"]) for row in rows} == {
        (seed, decay) for seed in (0, 1) for decay in DECAYS
    }


def test_layers_end_with_what_the_classifier_reads(numbers: dict[str, dict[str, Any]]) -> None:
    found = numbers["pan2023_fig33"]
    for run in found["runs"]:
        own = [
            row
            for row in found["rows"]
            if (row["weight_decay"], row["seed"]) == (run["weight_decay"], run["seed"])
        ]
        assert [row["layer"] for row in own] == [1, 2, 3, 4, 5]
        assert own[-1]["min_intra"] == run["min_intra"]
        assert own[-1]["max_inter"] == run["max_inter"]
    assert {row["epsilon"] for row in found["depths"]} == set(pan2023_fig33.EPSILONS)
    assert all(1 <= row["depth"] <= 5 for row in found["depths"])


def test_guarantees_are_kept(numbers: dict[str, dict[str, Any]]) -> None:
    for row in numbers["pan2023_norms"]["rows"]:
        assert row["guarantee_slack"] >= 0
        assert row["guaranteed_min_intra"] <= row["guaranteed_mean_intra"] <= row["mean_intra"]
    assert numbers["pan2023_norms"]["findings"]["3.1-guarantee-kept"]["verdict"] == "reproduced"


def test_conjectures_have_an_e_for_every_seed(numbers: dict[str, dict[str, Any]]) -> None:
    found = numbers["pan2023_conjectures"]
    converged = [row for row in numbers["pan2023_fig31"]["rows"] if row["converged"]]
    expected = {row["seed"] for row in converged if row["norm"] == "affine"}
    seeds = {
        row["seed"]
        for row in found["worst"]
        if row["conjecture"] == "3.2.1" and row["data"] == "teacher"
    }
    assert seeds == expected
    for row in found["intervals"]:
        assert (row["low"] is None) == (row["seeds"] < 2)
        if row["low"] is not None:
            assert 0 <= row["low"] <= row["median"] <= row["high"]


def test_one_seed_has_no_interval_in_table_and_picture() -> None:
    worst = [row for row in thesis_rows.conjectures()["worst"] if row["seed"] == 1]
    found = pan2023_conjectures.intervals(worst)
    numbers = {"worst": worst, "intervals": found, "small": 0.05, "findings": {}}
    assert pan2023_conjectures.tables(numbers)[0].rows[0][3:] == ("0.0100", "–", "0.0100")
    first = pan2023_conjectures.pictures(numbers)[0].panels[0]
    assert isinstance(first, Panel)
    assert first.series[0].low is None


def test_a_network_without_cosines_in_some_layer_is_not_defined() -> None:
    layer = {"min_intra": 0.5, "max_inter": 0.1, "nc4_ncc_accuracy": 1.0}
    network = {**layer, "measured": [layer, layer]}
    assert pan2023_conjectures.defined(network)
    for name in layer:
        spoiled = {**network, "measured": [layer | {name: None}, layer]}
        assert not pan2023_conjectures.defined(spoiled)


@pytest.mark.parametrize("name", list(MODULES))
def test_everything_is_rebuilt_from_the_numbers(
    name: str, numbers: dict[str, dict[str, Any]]
) -> None:
    module, found = MODULES[name], numbers[name]
    shown = "\n".join(as_text(part, width=200) for part in module.show(found))
    assert "Verdicts" in shown
    pictures = module.pictures(found)
    assert pictures
    assert all(picture.caption and picture.panels for picture in pictures)
    assert set(module.PRESETS) == {"quick", "paper"}


def test_a_second_call_trains_nothing(out: Path, numbers: dict[str, dict[str, Any]]) -> None:
    before = {path: path.stat().st_mtime_ns for path in out.rglob("journal.jsonl")}
    config = pan2023_norms.Config(networks=TINY, layers=4, weight_decays=DECAYS)
    again = pan2023_norms.compare(config, seeds=(0, 1), out=out)
    assert json.loads(json.dumps(again)) == numbers["pan2023_norms"]
    assert {path: path.stat().st_mtime_ns for path in out.rglob("journal.jsonl")} == before


def test_presets_share_their_runs() -> None:
    for preset in ("quick", "paper"):
        fig31 = pan2023_fig31.PRESETS[preset]
        fig33 = pan2023_fig33.PRESETS[preset]
        norms = pan2023_norms.PRESETS[preset]
        complexity = pan2023_complexity.PRESETS[preset]
        assert norms.networks == fig31.networks == complexity.networks
        assert norms.weight_decays == fig31.weight_decays
        assert set(complexity.weight_decays) <= set(fig31.weight_decays)
        assert 3 in complexity.teacher_depths
        places = pan2023_conjectures.PRESETS[preset].places
        assert Place(fig31.networks, "teacher", fig31.layers, fig31.weight_decays) in places
        assert Place(fig33.networks, "teacher", fig33.layers, fig33.weight_decays) in places


def test_the_paper_preset_is_the_thesis() -> None:
    config = pan2023_fig31.PRESETS["paper"]
    assert (config.layers, config.networks.width, config.networks.samples) == (6, 300, 10_000)
    assert (config.networks.epochs, config.networks.batch) == (300, 128)
    assert config.weight_decays == (1e-4, 3e-4, 5e-4, 1e-3, 3e-3, 7e-3, 1e-2)
    assert pan2023_fig33.PRESETS["paper"].layers == 15


def test_an_unknown_preset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NclabError, match="one of quick, paper; got 'huge'"):
        pan2023_fig31.run(preset="huge", out=tmp_path)


def test_the_guarantee_is_that_of_the_certificate(
    out: Path, numbers: dict[str, dict[str, Any]]
) -> None:
    row = numbers["pan2023_norms"]["rows"][0]
    layer = last_layers(out, row)[-1]
    certificate = certify(
        layer["num_classes"],
        layer["alpha"],
        layer["beta"],
        layer["balanced_loss"],
        class_losses=layer["class_loss"],
        class_alphas=layer["class_alpha"],
        class_betas=layer["class_beta"],
        bias_norm=layer["bias_norm"],
    )
    assert certificate.class_intra_lower is not None
    assert certificate.class_intra_lower.min() == row["guaranteed_min_intra"]
    assert certificate.class_intra_lower.mean() == row["guaranteed_mean_intra"]


def test_a_network_without_loss_guarantees_nothing() -> None:
    assert set(pan2023_norms.guarantee({}).values()) == {None}


def test_the_table_of_figure_33_leaves_out_the_seeds_that_failed() -> None:
    numbers = thesis_rows.fig33() | {"findings": {}}
    for run in numbers["runs"]:
        run.update(min_intra=0.9, max_inter=-0.28)
        if run["seed"] == 1 and run["weight_decay"] == 1e-4:
            run["converged"] = False
    for row in numbers["depths"]:
        if row["seed"] == 1:
            row["depth"] = 14
    for row in numbers["rows"]:
        if row["seed"] == 1:
            row["max_inter"] = 0.9
    shown = pan2023_fig33.tables(numbers)[0].rows
    assert shown[0][2:4] == ("7.0 ± 0.0", "7.0 ± 0.0")
    assert shown[0][-2:] == ("-0.040 ± 0.000", "0.00 ± 0.00")
    assert shown[-1][2:] == ("–", "–", "not converged", "not converged", "–", "–")


@pytest.mark.parametrize("name", list(MODULES))
def test_a_page_is_filled_from_the_numbers(name: str, numbers: dict[str, dict[str, Any]]) -> None:
    builder = runpy.run_path(str(ROOT / "docs" / "build_experiments.py"))
    section = builder["results"](MODULES[name], numbers[name])
    assert section.startswith(builder["BEGIN"])
    assert section.endswith(builder["END"])
    assert f"](images/{MODULES[name].pictures(numbers[name])[0].name}.png)" in section
    for found in numbers[name]["findings"].values():
        assert f"| {found['claim']} | {found['source']} | {found['verdict']} |" in section
