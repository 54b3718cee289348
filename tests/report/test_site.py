"""The static report is complete and escaped, and never deletes files of the user."""

import json
import re
import shutil
from contextlib import suppress
from itertools import islice
from pathlib import Path

import pytest

from nclab.errors import NclabError
from nclab.figures.picture import Panel, Picture, Series, from_json, to_json
from nclab.records import open_run
from nclab.records.encoding import add_checksum, strip_checksum
from nclab.report.content import DAMAGE, Figure
from nclab.report.pages import Pages
from nclab.report.site import write_report
from tests.cli.runner import call
from tests.figures.pictures import ALL
from tests.report.damage import damaged
from tests.report.folders import CLAIMS, NASTY, PAPERS, PICTURES, reproduced, train
from tests.report.sweeps import sweep

UNEVEN = Picture("a", "", (Panel("loss", "epoch", "nats", (Series("run", [0, 1], [2.0]),)),))
"""It says less of y than of x."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = reproduced(tmp_path_factory.mktemp("site") / "runs", images=False)
    return write_report(root).page.parent


def test_every_part_has_its_page(site: Path) -> None:
    names = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    assert {"index.html", "claims.html", "runs.html", "papers/pan2023.html"} <= names
    assert len([name for name in names if name.startswith("runs/")]) == 2
    page = (site / "claims.html").read_text()
    assert all(claim["id"] in page and claim["text"] in page for claim in CLAIMS)
    overview = (site / "index.html").read_text()
    assert "ji2022_fig3" in overview
    assert "no data set" in overview
    assert "nclab reproduce pan2023_fig31 --preset quick --seeds 2" in overview


def test_links_and_scripts_lead_to_files(site: Path) -> None:
    for page in site.rglob("*.html"):
        for target in re.findall(r'(?:href|src)="([^"#?]+)[^"]*"', page.read_text()):
            if not target.startswith("data:"):
                assert (page.parent / target).is_file(), f"{page.name}: {target}"
                assert "//" not in target


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for file in [*site.rglob("*.html"), *(site / "assets").glob("[!p]*")]:
        assert not re.findall(r"https?://(?!www\.w3\.org)", file.read_text()), file


def test_every_figure_has_its_numbers(site: Path) -> None:
    data = site / "data" / "figures"
    count = sum(len(pictures) for pictures in PICTURES.values())
    assert len(list(data.glob("*.csv"))) == len(list(data.glob("*.js"))) == count
    rows = (data / "pan2023_fig31-bands.csv").read_text().splitlines()
    assert rows[0] == "panel,series,x,y,low,high"
    assert "a band,run,0.0,2.0,1.5,2.5" in rows
    content = json.loads((data / "pan2023_fig31-bands.json").read_text())
    assert content["panels"][0]["series"][0]["y"] == [2.0, 1.0, 0.5]
    assert json.loads((site / "data/numbers/pan2023_fig31.json").read_text())["rows"] == [1, 2]


def test_claims_stand_beside_their_figures(site: Path) -> None:
    page = (site / "papers/pan2023.html").read_text()
    experiment, _, rest = page.partition("Statements without a figure here")
    assert "Statement fig-3.1 of pan2023" in experiment
    assert "Statement thm-2.3.1 of pan2023" in experiment
    assert "Statement lemma-2.4.6 of pan2023" in rest


def test_an_experiment_opens_with_its_story(site: Path) -> None:
    page = (site / "papers/pan2023.html").read_text()
    story = page.partition("<h2>Collapse against weight decay</h2>")[2].partition("<figure")[0]
    assert "(pan2023, Fig. 3.1): collapse grows with weight decay." in story
    assert "2 statements of papers: 1 holds, 1 partly reproduced." in story
    assert "Collapse against weight decay" in (site / "index.html").read_text()
    assert "<h2>ji2022_fig2</h2>" in (site / "papers/ji2022.html").read_text()


def test_a_correction_is_stated_and_leads_to_its_erratum(site: Path) -> None:
    paper, claims = ((site / name).read_text() for name in ("papers/ji2022.html", "claims.html"))
    for page in (paper, claims):
        assert page.count("<b>Correction</b>: for almost every start") == 1
    (anchor,) = set(re.findall(r'href="papers/ji2022.html#([^"]+)">erratum', claims))
    assert f'id="{anchor}"' in paper
    assert "a saddle is never left" in paper.partition(f'id="{anchor}"')[2]
    assert "Errata" not in (site / "papers/pan2023.html").read_text()


def test_a_formula_in_a_claim_is_typeset(tmp_path: Path) -> None:
    root = reproduced(tmp_path / "runs", images=False, runs=0)
    ledger = json.loads((root / "claims.json").read_text())
    ledger["claims"][1]["text"] = r"The gap is $\frac{1}{\sqrt{\epsilon}}$."
    (root / "claims.json").write_text(json.dumps(ledger))
    claims = (write_report(root).page.parent / "claims.html").read_text()
    assert "<mfrac><mrow><mn>1</mn></mrow><mrow><msqrt>" in claims


def test_a_folder_without_papers_has_no_foreign_names(tmp_path: Path) -> None:
    train(tmp_path / "runs" / "mine", epochs=1)
    site = write_report(tmp_path / "runs").page.parent
    pages = [page.read_text() for page in site.rglob("*.html")]
    assert not any(re.search(r"pan2023|ji2022|papyan2020", page) for page in pages)
    assert not any("data-thesis" in page for page in pages)


def test_what_metrics_mean_is_kept_once(site: Path) -> None:
    meaning = "smallest mean cosine within a class"
    assert meaning in (site / "assets/metrics.js").read_text()
    assert not any(meaning in file.read_text() for file in (site / "data/runs").glob("*.js"))


def test_the_overview_leads_to_comparisons_by_setting(tmp_path: Path) -> None:
    page = write_report(sweep(tmp_path / "runs")).page.read_text()
    assert '<a href="runs.html#x=weight_decay">weight_decay</a>' in page
    assert '<a href="runs.html#x=seed">' not in page


def test_names_of_runs_stay_text(site: Path) -> None:
    pages = "".join(page.read_text() for page in site.rglob("*.html"))
    assert NASTY not in pages
    assert "&lt;script&gt;alert(&#34;run&#34;)" in pages
    scripts = [file for file in (site / "data").rglob("*.js") if "alert" in file.read_text()]
    assert len(scripts) == 2  # of the run, and of all runs
    assert not any("<" in file.name for file in site.rglob("*"))


def test_pages_of_runs_hold_their_numbers(site: Path) -> None:
    script = next((site / "data/runs").glob("fleet-seed-0*.js")).read_text()
    data = json.loads(script.removeprefix("nclab.gotRun(").removesuffix(");\n"))
    assert data["state"] == "finished"
    measured = next(table for table in data["tables"] if table["kind"] == "measurement")
    assert measured["epoch"] == [1, 2, 3, 4, 5, 6]
    assert {"layer", "metric", "y"} == set(measured["columns"][0])
    assert data["cosines"]["classes"] == 4
    (geometry,) = data["geometry"]
    assert len(geometry["frames"]) == 6
    assert len(geometry["frames"][0]["means"]) == 12
    assert data["certificate"]["rows"][1]["measured"] is not None
    assert [one["ideal"] for one in data["metrics"] if one["name"] == "max_inter"] == [-1 / 3]


def test_sixty_runs_stay_small(tmp_path: Path) -> None:
    root = reproduced(tmp_path / "runs", images=False, runs=1)
    journal = (root / "fleet/seed-0/journal.jsonl").read_bytes()
    bodies = [strip_checksum(line) for line in journal.splitlines()[1:-1]]
    for number in range(60):
        folder = root / "fleet" / f"copy-{number}"
        with open_run(folder, kind="fleet", config={"n": number}, seed=number) as run:
            own = run.manifest.identity
        with (folder / "journal.jsonl").open("ab") as stream:
            stream.writelines(add_checksum(body, n, own) for n, body in enumerate(bodies, start=2))
    report = write_report(root, tmp_path / "out")
    assert report.runs == 61
    assert report.bytes < 15e6


def test_a_report_is_replaced_and_other_files_are_not(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    for name in ("one", "gone"):
        open_run(root / name, kind="sweep", config={}, seed=0).close()
    out = tmp_path / "out"
    write_report(root, out)
    stale = out / "runs" / "gone.html"
    assert stale.exists()
    (root / "gone").rename(tmp_path / "gone")
    write_report(root, out)
    assert not stale.exists()
    other = tmp_path / "mine"
    other.mkdir()
    (other / "thesis.txt").write_text("mine")
    with pytest.raises(NclabError, match="other files"):
        write_report(root, other)
    assert (other / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize("mark", ['{"accuracy": 0.9}', "[1]", "no JSON", "{}"])
def test_another_programs_report_is_not_touched(tmp_path: Path, mark: str) -> None:
    root, other = tmp_path / "runs", tmp_path / "mine"
    root.mkdir()
    (other / "data").mkdir(parents=True)
    (other / "data" / "samples.csv").write_text("mine")
    (other / "report.json").write_text(mark)
    with pytest.raises(NclabError, match="other files"):
        write_report(root, other)
    assert (other / "data" / "samples.csv").read_text() == "mine"
    assert (other / "report.json").read_text() == mark


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("out/..", "contains the folder of runs"),
        (".", "contains the folder of runs"),
        ("out/../runs", "is or contains the folder of runs"),
        ("linked", "is or contains the folder of runs"),
        ("runs/one/new/..", "lies in a run"),
        ("runs/one/new", "lies in a run"),
    ],
)
def test_no_report_takes_the_place_of_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    open_run(Path("runs/one"), kind="sweep", config={}, seed=0).close()
    Path("linked").symlink_to("runs")
    before = sorted(tmp_path.rglob("*"))
    done = call("report", "runs", "--out", out)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert said in done.err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_report_above_its_runs_is_not_replaced(tmp_path: Path) -> None:
    runs, report = tmp_path / "runs", tmp_path / "report"
    open_run(runs / "one", kind="sweep", config={}, seed=0).close()
    write_report(runs, report)
    inside = report / "runs" / "mine"
    shutil.copytree(runs, inside)
    with pytest.raises(NclabError, match=r"with the run .*runs/mine/one"):
        write_report(runs, report)
    with pytest.raises(NclabError, match="contains the folder of runs"):
        write_report(inside, report)
    assert (inside / "one" / "journal.jsonl").exists()


def test_a_way_back_up_that_leads_to_a_new_folder_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    open_run(Path("runs/one"), kind="sweep", config={}, seed=0).close()
    report = write_report(Path("runs"), Path("new/../pages"))
    assert report.page == tmp_path / "pages" / "index.html"
    assert report.page.exists()
    assert not Path("new").exists()


def test_runs_alone_and_nothing_at_all_make_a_page(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    open_run(root / "one", kind="monitor", config={}, seed=0).close()
    report = write_report(root)
    page = report.page.read_text()
    assert "one" in page
    for foreign in ("claim", "paper", "reproduce", "Skipped", "figures", "by setting"):
        assert foreign not in page.partition("Commands to repeat this")[0]
    assert not (report.page.parent / "assets/plotly.min.js").exists()
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "This folder holds no runs" in write_report(empty).page.read_text()


def test_damaged_files_are_named(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    (root / "pan2023_x").mkdir(parents=True)
    (root / "claims.json").write_text("[{")
    (root / "pan2023_x" / "numbers.json").write_text("{}")
    (root / "pan2023_x" / "a.picture.json").write_text("{}")
    page = write_report(root).page.read_text()
    assert "claims.json cannot be read" in page
    assert "a.picture.json" in page


def test_a_damaged_picture_is_drawn_or_named() -> None:
    content = json.loads(json.dumps(to_json(ALL)))
    drawn = 0
    for spoiled in islice(damaged(content), 0, None, 3):
        with suppress(*DAMAGE):
            drawn += bool(Figure("tour", "all", from_json(spoiled), {}).data)
    assert drawn > 100


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("skipped.json", 5, "skipped.json"),
        ("claims.json", 5, "claims.json"),
        ("claims.json", [{"verdict": "holds"}], "claim 1"),
        ("pan2023_x/numbers.json", [3], "numbers.json"),
        ("pan2023_x/a.picture.json", to_json(UNEVEN), "a.picture.json cannot be drawn"),
        ("bad/manifest.json", {"format": "nclab run"}, "bad/manifest.json"),
    ],
)
def test_an_odd_file_costs_only_itself(
    tmp_path: Path, file: str, content: object, said: str
) -> None:
    root = tmp_path / "runs"
    for name in ("good", "bad"):
        open_run(root / name, kind="fleet", config={}, seed=0, name=f"the {name} one").close()
    (root / "pan2023_x").mkdir()
    (root / "pan2023_x" / "numbers.json").write_text("{}")
    (root / file).write_text(json.dumps(content))
    page = write_report(root).page.read_text()
    assert "the good one" in page
    assert said in page.partition("Could not be read")[2].partition("</ul>")[0]


@pytest.mark.parametrize(
    "record",
    [
        {"kind": "measurement", "step": 2, "layers": 5},
        {"kind": "measurement", "step": 2, "layers": {"a": 1}},
        {"kind": "measurement", "step": 2, "layers": [{"inter_cosine": [1, 2]}]},
        {"kind": "measurement", "step": 2, "epoch": 10**400, "layers": [{"loss": 10**400}]},
        {"kind": "geometry", "step": 2, "points": [[None, 0.0, 1.0]], "means": [None]},
    ],
)
def test_an_odd_record_costs_only_itself(tmp_path: Path, record: dict[str, object]) -> None:
    root = tmp_path / "runs"
    with open_run(root / "one", kind="fleet", config={}, seed=0) as run:
        run.append({"kind": "measurement", "step": 1, "layers": [{"min_intra": 0.5}]})
        run.append(record)
    report = write_report(root)
    assert report.runs == 1
    assert '"min_intra"' in (report.page.parent / "data/runs/one.js").read_text()


def test_an_earlier_report_stays_if_no_new_one_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "runs"
    open_run(root / "one", kind="fleet", config={}, seed=0).close()
    target = write_report(root).page.parent
    before = {file: file.read_bytes() for file in target.rglob("*") if file.is_file()}

    def fail(self: Pages, name: str) -> str:
        raise NclabError("no page today")

    monkeypatch.setattr(Pages, "render", fail)
    with pytest.raises(NclabError, match="no page today"):
        write_report(root)
    assert {file: file.read_bytes() for file in target.rglob("*") if file.is_file()} == before


def test_figures_without_numbers_are_shown_and_papers_that_nobody_names_are_not(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "runs" / "pan2023_old"
    folder.mkdir(parents=True)
    (folder / "norms.png").write_bytes(b"png")
    (folder / "numbers.json").write_text("{}")
    report = write_report(tmp_path / "runs")
    page = (report.page.parent / "papers/other.html").read_text()
    assert 'src="../data/figures/pan2023_old-norms.png"' in page
    assert "data-figure" not in page
    assert [file.name for file in (report.page.parent / "papers").iterdir()] == ["other.html"]


def test_wide_figures_have_the_whole_page(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    panel = Panel("loss", "epoch", "nats", (Series("run", [0, 1], [2.0, 1.0]),))
    claims = []
    for name, count in (("pan2023_narrow", 2), ("pan2023_wide", 3)):
        claims.append({"id": f"pan2023/{name}", "needs": name})
        (root / name).mkdir(parents=True)
        picture = to_json(Picture("a", "", (panel,) * count, columns=4))
        (root / name / "a.picture.json").write_text(json.dumps(picture))
        (root / name / "numbers.json").write_text("{}")
    (root / "claims.json").write_text(json.dumps({"papers": PAPERS, "claims": claims}))
    page = (write_report(root).page.parent / "papers/pan2023.html").read_text()
    narrow, wide = page.split('id="pan2023_wide"')
    assert 'class="beside"' in narrow
    assert 'class="below"' in wide


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    root, outside = tmp_path / "runs", tmp_path / "outside"
    root.mkdir()
    open_run(outside / "secret", kind="fleet", config={}, seed=0).close()
    (outside / "numbers.json").write_text('{"secret": 1}')
    (root / "pan2023_linked").symlink_to(outside)
    (root / "runs_linked").symlink_to(outside / "secret")
    report = write_report(root, tmp_path / "out")
    assert report.runs == 0
    assert not list((tmp_path / "out/data/numbers").iterdir())


def test_the_command_says_where_it_is(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    open_run(root / "one", kind="fleet", config={}, seed=0).close()
    done = call("report", root, "-o", tmp_path / "out")
    assert done.code == 0
    assert f"wrote {tmp_path / 'out' / 'index.html'}" in done.out
    answer = json.loads(call("report", root, "--json").out)
    assert answer["runs"] == 1
    missing = call("report", tmp_path / "nowhere")
    assert missing.code == 2
    assert missing.err.count("\n") == 1
