"""`nclab measure` as a table and as JSON, with one file and with shards."""

import itertools
import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nclab
from nclab.metrics.catalogue import METRICS
from tests.cli.runner import call
from tests.clouds import cloud

DATA = cloud()
NCLAB = Path(sys.executable).with_name("nclab")


def save(path: Path, **arrays: object) -> Path:
    """Write an .npz of the arrays that are not None."""
    kept = {name: np.asarray(value) for name, value in arrays.items() if value is not None}
    np.savez(path, **kept)  # type: ignore[arg-type]
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return save(tmp_path / "cloud.npz", features=DATA.features, labels=DATA.labels)


def test_json_is_one_object_with_every_metric(file: Path, tmp_path: Path) -> None:
    head = save(tmp_path / "head.npz", weight=DATA.weight, bias=DATA.bias)
    done = call("measure", file, "--head", head, "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    expected = nclab.measure_features(*DATA).to_dict()
    for metric in METRICS:
        assert result[metric.name] == pytest.approx(expected[metric.name], rel=1e-12), metric.name
    assert done.err == ""


def test_the_table_is_readable(file: Path) -> None:
    done = call("measure", file)
    assert done.code == 0
    assert "45 samples, 5 classes, dimension 7" in done.out
    assert "nc1_trace_pinv" in done.out
    assert "no classifier weights were given: nc2_norm_variation_weights" in done.out


def test_intervals_shuffled_labels_and_expensive_metrics(file: Path) -> None:
    done = call(
        "measure",
        file,
        "--intervals",
        "--shuffled-labels",
        "--metrics",
        "rankme,nc2_gram_weights",
        "--json",
    )
    result = json.loads(done.out)
    expected = nclab.measure_features(
        DATA.features,
        DATA.labels,
        metrics=["rankme", "nc2_gram_weights"],
        intervals=True,
        shuffled_labels=True,
    )
    assert result["rankme"] == pytest.approx(expected.rankme, rel=1e-12)
    assert set(result["intervals"]) == set(expected.intervals or {})
    assert set(result["shuffled_labels"]) == set(expected.shuffled_labels or {})
    table = call("measure", file, "--intervals", "--shuffled-labels").out
    assert "±" in table
    assert "labels shuffled" in table
    wrong = call("measure", file, "--metrics", "rankm")
    assert wrong.code == 2
    assert "got 'rankm'" in wrong.err


def test_a_name_with_brackets_is_printed_unchanged(tmp_path: Path) -> None:
    name = "a[red]b :fire:.npz"
    done = call("measure", save(tmp_path / name, features=DATA.features, labels=DATA.labels))
    assert done.out.startswith(f"{name}: 45 samples")


def test_other_names_and_a_head_in_the_same_file(tmp_path: Path) -> None:
    file = save(tmp_path / "f.npz", X=DATA.features, y=DATA.labels, weight=DATA.weight)
    result = json.loads(call("measure", file, "--json", "--one-pass").out)
    assert result["loss"] is not None
    assert result["nc4_ncc_accuracy"] is None
    assert "second_pass" in result["notes"]["nc4_ncc_accuracy"]


def bad_calls(folder: Path) -> dict[str, tuple[list[object], str]]:
    """Return arguments that must end in exit code 2, with patterns of their message."""
    good = {"features": DATA.features.numpy(), "labels": DATA.labels.numpy()}

    def changed(name: str, **arrays: object) -> Path:
        return save(folder / f"{name}.npz", **{**good, **arrays})

    spoiled = good["features"].copy()
    spoiled[4, 1] = np.nan
    (folder / "text.npz").write_text("not an archive")
    objects = np.array([{"a": 1}], dtype=object)
    return {
        "missing file": ([folder / "none.npz"], "does not exist"),
        "not an archive": ([folder / "text.npz"], "is not one"),
        "pickled": ([changed("pickled", features=objects)], "holds Python objects"),
        "no labels": ([changed("unlabelled", labels=None)], "Expected labels or y"),
        "NaN": ([changed("nan", features=spoiled)], "got nan in row 4, column 1"),
        "float labels": ([changed("float", labels=good["labels"] / 2)], "integer labels"),
        "missing class": ([changed("holes", labels=good["labels"] * 2)], "got none of 1, 3"),
        "empty": (
            [changed("empty", features=np.zeros((0, 3)), labels=[])],
            "at least one sample, got none",
        ),
        "weight": ([changed("weight", weight=np.ones((7, 5)))], r"weight of shape"),
        "head without weight": (
            [changed("good"), "--head", save(folder / "h.npz", bias=DATA.bias)],
            "Expected weight or W",
        ),
        "too many labels": ([changed("good"), "--num-classes", 3], r"labels in \[0, 3\)"),
    }


def test_bad_input_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    for name, (arguments, pattern) in bad_calls(tmp_path).items():
        done = call("measure", *arguments, "--json")
        assert done.code == 2, name
        assert done.out == "", name
        assert done.err.startswith("nclab: "), name
        assert done.err.count("\n") == 1, name
        assert re.search(pattern, done.err), (name, done.err)


def test_bad_usage_is_one_line(file: Path) -> None:
    for arguments in (
        ["measure"],
        ["measure", file, "--bogus"],
        ["measure", file, "--ignore-index", "x"],
        ["measure", file, "--ignore-index", 10**20],
        ["reproduce", "tour", "--preset", "nope"],
        ["reproduce", "tour", "--seed", 10**20],
        ["reproduce", "tour", "--out", file / "inside"],
        ["nothing"],
    ):
        done = call(*arguments)
        assert done.code == 2, arguments
        assert done.out == "", arguments
        assert done.err.startswith("nclab: "), arguments
        assert done.err.count("\n") == 1, (arguments, done.err)


def test_missing_classes_can_be_allowed(tmp_path: Path) -> None:
    file = save(tmp_path / "h.npz", features=DATA.features, labels=DATA.labels * 2)
    done = call("measure", file, "--min-count", 1, "--json")
    assert json.loads(done.out)["classes"] == [0, 2, 4, 6, 8]


def test_tables_and_single_arrays(tmp_path: Path) -> None:
    complete = save(tmp_path / "whole.npz", features=DATA.features, labels=DATA.labels)
    expected = json.loads(call("measure", complete, "--json").out)
    labels = np.asarray(DATA.labels)
    np.save(tmp_path / "rows.npy", DATA.features)
    np.save(tmp_path / "classes.npy", labels)
    (tmp_path / "classes.csv").write_text("label\n" + "\n".join(map(str, labels)) + "\n")
    lines = [
        ",".join([f"class{label}", *map(repr, map(float, row))])
        for row, label in zip(np.asarray(DATA.features), labels, strict=True)
    ]
    width = len(lines[0].split(",")) - 1
    head = ",".join(["label", *(f"x{target}" for target in range(width))])
    (tmp_path / "rows.csv").write_text("\n".join([head, *lines]) + "\n")
    for labels_as_names in (
        (tmp_path / "rows.npy", "--labels", tmp_path / "classes.npy"),
        (tmp_path / "rows.npy", "--labels", tmp_path / "classes.csv"),
        (tmp_path / "rows.csv",),
    ):
        done = call("measure", *labels_as_names, "--json")
        assert done.code == 0, done.err
        result = json.loads(done.out)
        assert result["min_intra"] == pytest.approx(expected["min_intra"], rel=1e-6)
        assert result["class_counts"] == expected["class_counts"]
    assert result["class_names"][:2] == ["class0", "class1"]
    twice = (tmp_path / "rows.npy", complete, "--labels", complete)
    for wrong, why in (
        ((tmp_path / "rows.npy",), "--labels FILE"),
        (twice, "one FILE with --labels"),
    ):
        done = call("measure", *wrong)
        assert (done.code, done.out) == (2, "")
        assert why in done.err


def test_every_command_has_help_with_an_example() -> None:
    from nclab.cli.main import app

    names = [command.name for command in app.registered_commands]
    assert names
    for name in names:
        done = call(name, "--help")
        assert done.code == 0
        assert f"Example: nclab {name}" in " ".join(done.out.split())
        assert "--json" in done.out


def test_the_installed_command_is_light() -> None:
    """The help needs less than half a second of CPU time."""
    used = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        printed = subprocess.run([NCLAB, "--help"], capture_output=True, text=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert "measure" in printed.stdout
    assert min(used) < 0.5


def test_the_installed_command_fails_cleanly(tmp_path: Path) -> None:
    failed = subprocess.run(
        [NCLAB, "measure", str(tmp_path / "none.npz")], capture_output=True, text=True, check=False
    )
    assert failed.returncode == 2
    assert failed.stdout == ""
    assert failed.stderr.count("\n") == 1
    assert failed.stderr.startswith("nclab: Expected a .npz, .safetensors, .npy or .csv file")


def test_help_imports_nothing_heavy() -> None:
    code = "import sys, nclab.cli.main; print({'torch', 'numpy', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_version_and_no_arguments() -> None:
    assert call("--version").out.strip() == f"nclab {nclab.__version__}"
    bare = call()
    assert "Usage" in bare.out + bare.err


def test_a_test_file_is_compared_with_the_training_data(file: Path, tmp_path: Path) -> None:
    other = save(tmp_path / "test.npz", X=DATA.features[:30] + 0.1, y=DATA.labels[:30])
    head = save(tmp_path / "head.npz", weight=DATA.weight)
    done = call("measure", file, "--head", head, "--test", other, "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    train = nclab.measure_features(DATA.features, DATA.labels, DATA.weight)
    expected = nclab.measure_features(
        DATA.features[:30] + 0.1, DATA.labels[:30], DATA.weight, reference=train
    )
    for name, value in expected.scalars().items():
        assert result["test"][name] == pytest.approx(value, rel=1e-12), name
    assert result["cdnv"] == pytest.approx(train.cdnv)
    done = call("measure", file, "--test", other, "--class-names", "a,b,c,d,e")
    assert done.code == 0, done.err
    assert "strong_test_collapse" in done.out
    assert "45 samples, 5 classes, dimension 7; test.npz: 30 samples" in done.out


@pytest.mark.parametrize("values", [True, False])
def test_test_labels_may_have_a_class_that_training_lacks(tmp_path: Path, *, values: bool) -> None:
    """A class that training skips may still be among the test labels."""
    few = (DATA.labels != 4) | ((DATA.labels == 4).cumsum(0) <= 1)
    head = {"weight": DATA.weight, "bias": DATA.bias} if values else {}
    train = save(tmp_path / "train.npz", X=DATA.features[few], y=DATA.labels[few], **head)
    test = save(tmp_path / "test.npz", X=DATA.features + 0.1, y=DATA.labels)
    done = call("measure", train, "--test", test, "--min-count", 2, "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    weights = (DATA.weight, DATA.bias) if values else ()
    layer = nclab.measure_features(DATA.features[few], DATA.labels[few], *weights, min_count=2)
    assert layer.left_out == (4,)
    expected = nclab.measure_features(
        DATA.features + 0.1, DATA.labels, *weights, reference=layer, min_count=2, num_classes=5
    )
    for name, value in expected.scalars().items():
        ours = result["test"][name]
        assert ours is value is None or ours == pytest.approx(value, rel=1e-12), name


def test_a_test_file_of_another_dimension_is_one_line(file: Path, tmp_path: Path) -> None:
    other = save(tmp_path / "test.npz", X=DATA.features[:, :3], y=DATA.labels)
    done = call("measure", file, "--test", other)
    assert done.code == 2
    assert "dimension 7, as the reference has, got 3" in done.err


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """Data in three files of a folder, and the classifier in a separate file."""
    folder = tmp_path / "parts"
    folder.mkdir()
    save(tmp_path / "head.npz", weight=DATA.weight, bias=DATA.bias)
    ends = (0, 10, 31, 45)
    return [
        save(folder / f"part-{target}.npz", X=DATA.features[start:stop], y=DATA.labels[start:stop])
        for target, (start, stop) in enumerate(itertools.pairwise(ends))
    ]


@pytest.mark.usefixtures("forked_workers")
def test_several_files_a_folder_and_a_pattern_equal_one(parts: list[Path]) -> None:
    folder = parts[0].parent
    head = folder.with_name("head.npz")
    expected = nclab.measure_features(*DATA).scalars()
    for values in (parts, [folder], [folder / "part-*.npz"]):
        done = call("measure", *values, "--head", head, "--workers", 0, "--json")
        assert done.code == 0, done.err
        result = json.loads(done.out)
        assert result["samples"] == 45
        for name, value in expected.items():
            assert result[name] == pytest.approx(value, rel=1e-10, abs=1e-12), name
    printed = call("measure", *parts, "--workers", 2, "--class-names", "a,b,c,d,e")
    assert printed.code == 0, printed.err
    assert "3 files: 45 samples, 5 classes, dimension 7" in printed.out
    assert "vary most; the most similar classes are" in printed.out


def test_a_truncated_file_is_named_and_can_be_skipped(parts: list[Path]) -> None:
    parts[1].write_bytes(parts[1].read_bytes()[:-200])
    done = call("measure", *parts, "--workers", 0)
    assert done.code == 2
    assert done.out == ""
    assert done.err.count("\n") == 1
    assert "part-1.npz" in done.err
    done = call("measure", *parts, "--workers", 0, "--skip-bad", "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert result["samples"] == 45 - 21
    assert "part-1.npz" in result["warnings"][0]


def test_options_of_shards_or_single_files_only(parts: list[Path], file: Path) -> None:
    for flags in (("--intervals",), ("--shuffled-labels",)):
        done = call("measure", *parts, *flags)
        assert done.code == 2, flags
        assert done.err.startswith(f"nclab: Expected {flags[0]} only with a single .npz"), done.err
        assert done.err.count("\n") == 1, flags
    address = ("--address", "here:1")
    for alone in (("--workers", 2), ("--skip-bad",), ("--engine", "ray"), address):
        done = call("measure", file, *alone)
        assert done.code == 2, alone
        assert done.err.startswith(f"nclab: Expected {alone[0]} only with several files"), done.err
    done = call("measure", *parts, *address)
    assert done.code == 2
    assert "--address only with --engine ray" in done.err


def test_shards_have_expensive_metrics_and_test_data(parts: list[Path], file: Path) -> None:
    head = parts[0].parent.with_name("head.npz")
    flags = ("--metrics", "rankme,nc2_gram_weights", "--workers", 0, "--json")
    expected = nclab.measure_features(*DATA, metrics=["rankme", "nc2_gram_weights"])
    for test in (file, parts[0].parent):
        done = call("measure", *parts, "--head", head, "--test", test, *flags)
        assert done.code == 0, done.err
        result = json.loads(done.out)
        assert result["rankme"] == pytest.approx(expected.rankme, rel=1e-10)
        other = nclab.measure_features(*DATA, reference=expected)
        strong = result["test"]["strong_test_collapse"]
        assert strong == pytest.approx(other.strong_test_collapse, rel=1e-10)
    done = call("measure", file, "--test", parts[0].parent, "--workers", 0)
    assert done.code == 0, done.err
    assert "parts: 45 samples" in done.out


def test_the_weight_in_the_first_shard_is_used(tmp_path: Path) -> None:
    def written(number: int, weight: object) -> Path:
        rows = slice(20 * number, 20 * number + 25)
        arrays = {"X": DATA.features[rows], "y": DATA.labels[rows]}
        return save(tmp_path / f"{number}.npz", **arrays, weight=weight, bias=DATA.bias)

    files = [written(number, DATA.weight) for number in range(2)]
    done = call("measure", *files, "--workers", 0, "--json")
    assert done.code == 0, done.err
    order = np.r_[0:25, 20:45]
    expected = nclab.measure_features(
        DATA.features[order], DATA.labels[order], DATA.weight, DATA.bias
    )
    assert json.loads(done.out)["loss"] == pytest.approx(expected.loss, rel=1e-10)


def test_messages_say_what_to_do_and_name_the_file(file: Path, tmp_path: Path) -> None:
    def error(*arguments: object) -> str:
        done = call("measure", *arguments)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        return done.err

    assert "Pass num_classes=5." in error(file, "--num-classes", 3)
    gap = save(tmp_path / "gap.npz", X=DATA.features, y=np.where(DATA.labels == 1, 2, DATA.labels))
    assert "Pass min_count=1" in error(gap)
    low = save(tmp_path / "low.npz", X=DATA.features, y=np.asarray(DATA.labels) - 1)
    assert "Pass ignore_index=-1 if" in error(low)
    hot = save(tmp_path / "hot.npz", X=DATA.features, y=np.eye(5)[DATA.labels])
    assert "argmax(1)" in error(hot)
    labels_as_names = np.array(["a", "b", "c", "d", "e"])[DATA.labels]
    text = save(tmp_path / "text.npz", X=DATA.features, y=labels_as_names, weight=DATA.weight)
    assert "Pass class_names= all names" in error(text)
    few = error(file, "--class-names", "a,b")
    assert "got 2 class_names and the label 4" in few
    head = save(tmp_path / "head.npz", weight=DATA.weight)
    assert "each of the 5 rows of weight, got 2" in error(
        file, "--class-names", "a,b", "--head", head
    )
    assert f"{low}: Expected labels from 0" in error(file, "--test", low)


def test_test_labels_that_are_names_may_lack_some(tmp_path: Path) -> None:
    labels_as_names = np.array(["a", "b", "c", "d", "e"])[DATA.labels]
    kept = labels_as_names != "b"
    train = save(tmp_path / "train.npz", X=DATA.features, y=labels_as_names)
    test = save(tmp_path / "test.npz", X=np.asarray(DATA.features)[kept], y=labels_as_names[kept])
    done = call("measure", train, "--test", test, "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)["test"]
    reference = nclab.measure_features(DATA.features, DATA.labels)
    labels = np.asarray(DATA.labels)[kept]
    expected = nclab.measure_features(
        np.asarray(DATA.features)[kept], labels, num_classes=5, reference=reference
    )
    assert result["reference_ncc_accuracy"] == expected.reference_ncc_accuracy
    assert result["class_names"] == ["a", "c", "d", "e"]


def test_rare_tokens_of_saved_hidden_states(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    tokens = np.minimum(generator.geometric(0.2, (12, 9)) - 1, 30)
    hidden = generator.normal(size=(12, 9, 4)) + tokens[..., None]
    path = save(tmp_path / "hidden.npz", features=hidden, labels=tokens)
    done = call("measure", path, "--min-count", 4, "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    rows, labels = hidden.reshape(-1, 4), tokens.flatten()
    often = np.bincount(labels)[labels] >= 4
    expected = nclab.measure_features(rows[often], labels[often], min_count=1)
    assert result["samples"] == expected.samples < 12 * 9
    assert result["cdnv"] == pytest.approx(expected.cdnv, rel=1e-10)
    assert result["nc1_trace_pinv"] == pytest.approx(expected.nc1_trace_pinv, rel=1e-10)
    assert any("with fewer than 4 samples" in line for line in result["warnings"])
    done = call("measure", path, "--min-count", 1000)
    assert (done.code, done.out) == (2, "")
    assert "2 classes with min_count=1000 samples, the largest class has" in done.err
