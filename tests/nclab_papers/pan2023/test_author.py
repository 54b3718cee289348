"""The author's data and results: files, designs, rows, judges; no test needs the author's files."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nclab.claims.claim import Verdict
from nclab.claims.paper import AUTHOR_DATA, find_author_file
from nclab.claims.reproduce import Reproduction
from nclab.claims.tables import Table
from nclab.errors import MissingData
from nclab.theory.certificates.count_aware import count_aware_bounds
from nclab.training.data.samples import read_samples
from nclab.training.sweep import SweepConfig
from nclab_papers.pan2023 import attacks, author_conjectures, author_data, author_results, fig31
from nclab_papers.pan2023 import networks as trained
from tests.nclab_papers.pan2023.author_files import use_author_files
from tests.nclab_papers.pan2023.tiny import panel

DECAYS = (1e-3, 1e-2)
TINY = trained.Networks(samples=160, width=16, epochs=4, batch=40, moments=1, workers=0)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two data sets in place of the author's."""
    return use_author_files(tmp_path / "author", monkeypatch)


def test_without_the_files_the_experiments_are_skipped_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(AUTHOR_DATA, raising=False)
    job = Reproduction("quick", (0,), tmp_path)
    names = [f"pan2023_author_{name}" for name in ("data", "conjectures", "results")]
    job.run(names, lambda *_: None)
    assert list(job.skipped) == names
    for reason in job.skipped.values():
        assert "Pass --author-data FOLDER" in reason
        assert "\n" not in reason


def test_a_file_is_found_by_each_of_its_names(files: Path) -> None:
    (files / "results").mkdir()
    found = find_author_file(("table.csv", "results"), source="somewhere")
    assert found == files / "results"
    with pytest.raises(MissingData, match=r"table\.csv in .*copy of somewhere"):
        find_author_file(("table.csv",), source="somewhere")


def test_other_data_than_the_authors_are_rejected(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = author_data.author_samples("conic", 150)
    assert (source.label, len(source.draw())) == ("author_conic", 150)
    assert source.draw().inputs.equal(read_samples(source.path).inputs[:150])
    monkeypatch.setitem(author_data.DIGESTS, "conic", "0" * 64)
    with pytest.raises(MissingData, match="checksum differs"):
        author_data.author_samples("conic", 150)


def test_designs_differ_as_the_authors_code_does(files: Path) -> None:
    source = author_data.author_samples("mlp3", 160)
    sweeps: dict[str, list[SweepConfig]] = {
        design: author_data.author_sweeps(TINY, source, design, seeds=(0, 3), layers=6)
        for design in author_data.DESIGNS
    }
    for design in sweeps.values():
        assert [sweep.seeds for sweep in design] == [(0,), (3,)]
        assert all(sweep.data == source for sweep in design)
    thesis, later = sweeps["thesis"][0], sweeps["later"][0]
    assert (thesis.shape.bias, thesis.recipe.optimizer, thesis.recipe.rate) == (True, "sgd", 0.0679)
    assert (later.shape.bias, later.recipe.optimizer, later.recipe.rate) == (False, "adam", 1e-3)
    assert later.recipe.milestones == thesis.recipe.milestones


def test_a_seed_draws_weights_and_batches_of_fixed_data(files: Path, tmp_path: Path) -> None:
    config = author_data.Config(TINY, weight_decays=DECAYS)
    numbers = author_data.run(config, seeds=(0, 1), out=tmp_path)
    json.dumps(numbers, allow_nan=False)
    designs = [(row["design"], row["norm"]) for row in numbers["rows"]]
    assert len(designs) == 2 * 2 * 5
    assert ("later", "last") in designs
    assert ("thesis", "last") not in designs
    runs = [row["run"] for row in numbers["rows"]]
    assert len(set(runs)) == len(runs)
    assert all(run.startswith("author_mlp3_L6_w16_") for run in runs)
    digests = {
        json.loads((tmp_path / "fleet" / run / "manifest.json").read_text())["config"]["data"][
            "digest"
        ]
        for run in runs
    }
    assert len(digests) == 1
    again = author_data.run(config, seeds=(0, 1, 2), out=tmp_path)
    kept = [row for row in again["rows"] if row["seed"] < 2]
    assert sorted(kept, key=str) == sorted(numbers["rows"], key=str)
    assert author_data.tables(numbers)[0].rows


def test_the_cosines_of_the_authors_code_leave_out_the_pairs_of_a_sample_with_itself() -> None:
    row = {"centred_min_intra": 0.9, "centred_max_inter": -0.2}
    found = author_data.with_author_cosines(row, 40)
    assert found["author_min_intra"] == pytest.approx((10 * 0.9 - 1) / 9)
    assert found["author_max_inter"] == -0.2
    missing = author_data.with_author_cosines(dict.fromkeys(row), 40)
    assert missing["author_min_intra"] is None
    assert missing["author_max_inter"] is None


def test_claims_on_the_later_design_read_its_networks_alone() -> None:
    numbers = attacks.author_data()
    for row in numbers["rows"]:
        if row["design"] == "thesis":
            row["min_intra"] = row["max_inter"] = row["author_min_intra"] = 0.5
    assert author_data.later_grows.judge(numbers).verdict is Verdict.REPRODUCED
    assert author_data.grows.judge(numbers).verdict is not Verdict.REPRODUCED
    ideal = attacks.author_data()
    assert author_data.grows.judge(ideal) == fig31.grows.judge(attacks.fig31())


def test_both_designs_are_drawn() -> None:
    thesis, later = author_data.pictures(attacks.author_data())
    assert thesis.name == "pan2023_author_fig31"
    assert [each.title for each in later.panels] == ["BN before the classifier", "no BN"]
    assert "no BN at 0.007 (8 seeds)" in later.caption


def test_the_conjectures_are_tested_on_both_data_sets(files: Path, tmp_path: Path) -> None:
    settings = tuple(
        replace(setting, weight_decays=DECAYS, layers=min(setting.layers, 7))
        for setting in author_conjectures.Config(TINY).settings
    )
    config = author_conjectures.Config(replace(TINY, epochs=30), settings)
    numbers = author_conjectures.run(config, seeds=(0, 1), out=tmp_path)
    json.dumps(numbers, allow_nan=False)
    assert len(numbers["runs"]) == 6 * 2 * 2
    assert {row["layer"] for row in numbers["fig33"]["rows"]} == set(range(1, 7))
    assert len(numbers["fig33"]["runs"]) == 4
    later = [row for row in numbers["worst"] if "later" in row["data"]]
    assert {row["conjecture"] for row in later} <= {"3.1.1"}
    assert author_conjectures.tables(numbers)
    assert author_conjectures.pictures(numbers)


def test_the_later_design_is_judged_by_its_last_layer() -> None:
    run = {
        "converged": True,
        "accuracy": 1.0,
        "nc4_ncc_accuracy": 1.0,
        "min_intra": None,
        "max_inter": None,
        "centred_max_inter": -0.3,
    }
    members = [
        {**run, "weight_decay": decay, "centred_min_intra": intra}
        for decay, intra in ((1e-3, 0.9), (1e-2, 0.5), (2e-2, None))
    ]
    setting = author_conjectures.Setting("conic", 6, DECAYS, "later", "last")
    rows, undefined = author_conjectures.smallest(setting, members, 10_000, Path())
    assert undefined == 1
    assert {row["conjecture"] for row in rows} == {"3.1.1"}
    slope = (0.9 - 0.5) * 2500 / 2499 / np.log(10)
    assert [row["smallest_e"] for row in rows] == pytest.approx([slope, slope])


NETWORKS = ("ResNet", "vgg11", "vgg19")
PUBLISHED = {
    "loss": 0.15553027391433716,
    "weight_norm": 17.362903594970703,
    "min_intra": 0.9460776448249817,
    "max_inter": 0.37838488817214966,
    "mean_intra": 0.9697427153587341,
    "mean_inter": -0.000962786260060966,
    "intra_delta05": 0.9613097310066223,
    "inter_delta05": 0.123114213347435,
    "alpha": 16.737951278686523,
}
"""One published network, ResNet at weight decay 0.003, in place of all 21."""
LAYER = """Layer 0: Linear(in_features=512, out_features=1000, bias=True)
Linear Weight Norm: {weight_norm}
Linear Weight Rank: 492
Intra Cos: {min_intra}
Inter Cos: {max_inter}
Intra Avg: {mean_intra}
Inter Avg: {mean_inter}
Intra Delta (delta=0.05): {intra_delta05}
Inter Delta (delta=0.05): {inter_delta05}
Norm Quadratic Average: {alpha}
Nearest Class Center Accuracy: 0.0
"""
OUTPUT = "\nOutput Layer:\nIntra Cos: 0.5\nInter Cos: 0.5\nIntra Avg: 0.5\n"


def write_results(folder: Path, *, networks: tuple[str, ...] = NETWORKS) -> None:
    """Write results as text files, as the author published them."""
    (folder / "results").mkdir()
    for network in networks:
        for decay in trained.DEEP_DECAYS:
            name = f"bn_True_dataset_ImageNet32_epochs_300_model_type_{network}_rand_seed_1_"
            file = folder / "results" / f"{name}weight_decay_{decay}.txt"
            text = f"Loss: {PUBLISHED['loss']}\n{LAYER.format(**PUBLISHED)}{OUTPUT}"
            file.write_text(text)


def test_results_are_read_from_text_files_and_from_a_table(files: Path) -> None:
    write_results(files)
    rows = author_results.read_results()
    assert len(rows) == 21
    assert rows[0] == {"network": "ResNet", "weight_decay": 1e-4, **PUBLISHED}
    names = ["network", "weight_decay", *PUBLISHED]
    lines = [",".join(names), *(",".join(str(row[name]) for name in names) for row in rows)]
    (files / "pan_imagenet32.csv").write_text("\n".join(lines))
    assert author_results.read_results() == rows


def test_incomplete_results_are_rejected(files: Path) -> None:
    write_results(files, networks=("ResNet",))
    with pytest.raises(MissingData, match=r"21 results in .*found 7"):
        author_results.read_results()
    [broken, *_] = (files / "results").iterdir()
    broken.write_text("Loss: 1\n")
    with pytest.raises(MissingData, match=r"weight_norm, .* not found"):
        author_results.read_results()


def test_the_guarantee_of_a_published_network() -> None:
    row = {"network": "ResNet", "weight_decay": 3e-3, **PUBLISHED}
    found = author_results.guaranteed(author_results.Config(), row)
    assert found["beta"] == pytest.approx(17.3629 / 1000**0.5, rel=1e-5)
    assert found["smallest_loss"] < found["loss"]
    # D / (C alpha beta) = 510 / 9190 by `deviation_upper`, which no bias changes.
    assert found["guaranteed_between"] == pytest.approx((1 - 509.986 / 9190.0) ** 2, abs=1e-4)
    assert found["guaranteed_between"] < found["mean_intra"]
    assert found["guaranteed_most"] is None
    assert found["thesis_guaranteed"] is None
    assert found["degree_worst"] == PUBLISHED["min_intra"] - PUBLISHED["max_inter"]


@pytest.mark.slow
def test_the_guarantee_hardly_depends_on_the_sizes_of_the_classes() -> None:
    """Draw 100,000 images from classes of 732 to 1,300 images, the sizes of ImageNet."""
    rng = np.random.default_rng(0)
    available = np.clip(1300 - np.maximum(0, rng.exponential(60, 1000)), 732, 1300)
    counts = rng.multinomial(100_000, available / available.sum())
    assert (counts.min(), counts.max()) == (61, 134)
    beta = PUBLISHED["weight_norm"] / 1000**0.5
    equal, drawn = (
        count_aware_bounds(sizes, PUBLISHED["alpha"] * beta, PUBLISHED["loss"], bias=True)
        for sizes in ([100] * 1000, counts.tolist())
    )
    assert equal.within_upper.value is not None
    assert drawn.within_upper.value is not None
    assert 0 < drawn.within_upper.value - equal.within_upper.value < 0.005


def reversed_networks(count: int) -> dict[str, Any]:
    """Return the ideal results with the weight decays of some networks in the opposite order."""
    numbers = attacks.author_results()
    for row in numbers["rows"]:
        if row["network"] in "ABC"[:count]:
            row["weight_decay"] = 1e-6 / row["weight_decay"]
    return numbers


@pytest.mark.parametrize("count", range(4))
def test_results_support_a_sentence_only_if_all_networks_do(count: int) -> None:
    finding = author_results.grows.judge(reversed_networks(count))
    expected = {0: Verdict.SUPPORTED, 3: Verdict.OPPOSED}.get(count, Verdict.UNDECIDED)
    assert finding.verdict is expected
    assert "one seed, so no interval" in finding.evidence


def test_readings_that_leave_out_a_weight_decay_are_reported() -> None:
    numbers = attacks.author_results()
    for row in numbers["rows"]:
        if row["weight_decay"] == 1e-2:
            row["degree_worst"] = -2.0
    finding = author_results.grows.judge(numbers)
    assert finding.verdict is Verdict.OPPOSED
    assert finding.answer.endswith("; they support it if weight decay 0.01 is left out")
    readings = {row["reading"]: row["verdict"] for row in finding.numbers["readings"]}
    assert readings["weight decay 0.01 is left out"] == "supported"


def test_results_are_drawn_and_listed() -> None:
    numbers = attacks.author_results()
    for row in numbers["rows"]:
        row |= {"loss": 0.1, "smallest_loss": 0.05, "mean_intra": 0.9}
    tables = author_results.tables(numbers)
    assert all(isinstance(table, Table) for table in tables)
    assert tables[1].columns[-3:] == ("A", "B", "C")
    [picture] = author_results.pictures(numbers)
    assert len(picture.panels) == 6
    assert [series.label for series in panel(picture).series] == [*author_results.READINGS.values()]
