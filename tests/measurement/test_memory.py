"""Budget: memory is planned before it is used, and a plan that does not fit raises."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from torch import nn

import nclab
from nclab.errors import DataError
from nclab.measurement.memory import Budget, Sizes, as_bytes, worker_bytes
from tests.cli.runner import call
from tests.clouds import cloud

DATA = cloud()
PEAK = """
import json, sys, torch, nclab
from pathlib import Path

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

classes, dim, second_pass = 16_500, 256, sys.argv[1] == "two"
torch.set_num_threads(1)
labels = torch.arange(classes)
features = torch.randn(classes, dim, generator=torch.Generator().manual_seed(0))
nclab.measure_features(features[:600], labels[:600] % 3)
before = peak()
nclab.measure_features(features, labels, second_pass=second_pass, memory=int(sys.argv[2]))
print(json.dumps(peak() - before))
"""


@pytest.mark.parametrize("memory", ["lots", "-1GB", "0", 0, -5, True, "8 GBB"])
def test_wrong_amounts_of_memory_raise(memory: object) -> None:
    with pytest.raises(DataError, match="Expected memory such as '8GB'"):
        as_bytes(memory)  # type: ignore[arg-type]


def test_amounts() -> None:
    assert as_bytes("2kb") == 2000
    assert as_bytes("2 KiB") == 2048
    assert as_bytes("0.5T") == 5 * 10**11
    assert as_bytes("77") == as_bytes(77) == 77


def test_the_error_of_a_plan_that_does_not_fit_says_what_would_fit() -> None:
    sizes = Sizes(100_000, 768)
    one_pass = sum(sizes._replace(second_pass=False).parts().values())
    with pytest.raises(DataError, match=r"memory 6 GB, got .*--one-pass\) takes 5\.28 GB"):
        Budget(as_bytes("6GB")).plan("layer", sizes)
    assert 5.275e9 < one_pass < 5.285e9
    with pytest.raises(DataError, match=r"Pass memory='\d+\.\dGB'"):
        Budget(as_bytes("1GB")).plan("layer", sizes)
    with pytest.raises(DataError, match=r"without intervals, shuffled_labels and reference takes"):
        Budget(as_bytes("9GB")).plan("layer", sizes._replace(observers=10**10))
    with pytest.raises(DataError, match=r"workers=0 takes"):
        Budget(as_bytes("9GB")).plan("layer", sizes, elsewhere=worker_bytes(sizes, 2))


def test_a_large_plan_is_announced() -> None:
    with pytest.warns(nclab.NclabWarning, match=r"Plans .* GB of memory for 50000 classes in dim"):
        needed = Budget(None).plan("layer", Sizes(50_000, 768))
    assert 3e9 < needed < 5e9


def test_layers_share_the_budget() -> None:
    budget, sizes = Budget(as_bytes("900MB")), Sizes(1000, 1000)
    first = budget.plan("one", sizes)
    assert budget.plan("two", sizes) < 2 * first  # they work one after the other
    left = budget.left()
    assert left is not None
    assert left < 900e6
    with pytest.raises(DataError, match="and 2 more layers"):
        Budget(budget.limit, planned={**budget.planned}).plan("three", Sizes(9000, 1000))


def test_every_function_raises_in_one_line(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(7, 6), nn.ReLU(), nn.Linear(6, 5))
    loader = [(DATA.features.float(), DATA.labels)]
    file = tmp_path / "part.safetensors"
    from safetensors.torch import save_file

    save_file({"features": DATA.features, "labels": DATA.labels}, file)
    for refused in (
        lambda: nclab.measure_features(DATA.features, DATA.labels, memory="1MB"),
        lambda: nclab.measure_features(iter(loader), memory="1MB"),
        lambda: nclab.measure(model, loader, memory="1MB"),
        lambda: nclab.measure_shards(file, memory="1MB"),
    ):
        with pytest.raises(DataError, match=r"Expected a plan within memory 0\.001 GB"):
            refused()
    other = tmp_path / "other.safetensors"
    save_file({"features": DATA.features, "labels": DATA.labels}, other)
    done = call("measure", file, other, "--memory", "1MB")
    assert done.code == 2
    assert "Expected a plan within memory" in " ".join(done.err.split())


def test_the_plan_includes_intervals_of_shards(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    rows, labels = cloud(400, 300, 3)[:2]
    save_file({"features": rows, "labels": labels}, tmp_path / "part.safetensors")
    for measure_it in (
        lambda **options: nclab.measure_features(rows, labels, **options),
        lambda **options: nclab.measure_shards(tmp_path, workers=0, **options),
    ):
        assert measure_it(memory="290MB", second_pass=False).samples == 1200
        with pytest.raises(DataError, match=r"intervals and shuffled labels 0\.1"):
            measure_it(memory="290MB", intervals=True)
    sizes = Sizes(400, 300, observers=10**8)
    assert worker_bytes(sizes, 3) == worker_bytes(sizes._replace(observers=0), 3) + 6 * 10**8


def test_a_plan_that_fits_changes_no_number(tmp_path: Path) -> None:
    expected = nclab.measure_features(DATA.features, DATA.labels)
    measured = nclab.measure_features(DATA.features, DATA.labels, memory="2GB")
    assert measured.scalars() == expected.scalars()
    batches = [(DATA.features[:20], DATA.labels[:20]), (DATA.features[20:], DATA.labels[20:])]
    again = nclab.measure_features(batches, memory=Sizes(5, 7).parts()["work"] + 10**5)
    assert again.nc4_ncc_accuracy == expected.nc4_ncc_accuracy  # without a cache


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no peak is reported")
@pytest.mark.parametrize("passes", ["one", "two"])
def test_no_more_is_used_than_planned(passes: str) -> None:
    """Measured in a new process, at the smallest size that is processed in parts."""
    sizes = Sizes(16_500, 256, second_pass=passes == "two")
    planned = sum(sizes.parts().values())
    command = [sys.executable, "-c", PEAK, passes, str(planned)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    used = json.loads(done.stdout)
    assert used <= planned
    assert used > 0.4 * planned, "a plan says something"


def test_closest_pairs_are_named() -> None:
    data = cloud(num_classes=120, dim=6, per_class=2)
    names = [f"class {number}" for number in range(120)]
    measured = nclab.measure_features(data.features, data.labels, class_names=names)
    cosines = measured.inter_cosine.clone().fill_diagonal_(-2).triu(1)
    expected = cosines.flatten().topk(10).values
    assert [pair.cosine for pair in measured.closest_pairs] == pytest.approx(expected.tolist())
    first = measured.to_dict()["closest_pairs"][0]
    assert first["classes"] == list(measured.max_inter_pair)
    assert first["names"] == [names[number] for number in measured.max_inter_pair]
    line = next(line for line in measured.summary() if line.startswith("closest classes: "))
    assert line.count(" – ") == 5
    assert " – ".join(first["names"]) in line
