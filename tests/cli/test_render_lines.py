"""Results that are printed as plain lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.index.examples import picture

from vse.cli.render import lines_of
from vse.cli.search import Page
from vse.index.calibration import CalibrationReport
from vse.index.caption_search import CaptionResult, CaptionResults
from vse.index.duplicates import Duplicates
from vse.index.explanation import Explained, Explanation
from vse.index.pipeline import IndexReport
from vse.index.results import Result, SearchResults
from vse.index.types import Item
from vse.models.coefficients import Coefficients
from vse.models.extract import FeaturesReport

MOMENT = Result(Item(7, picture("[x]\n.mp4", kind="video", taken=86400.0), 61.0, 62.5), 0.5, 0.25)
IMAGE = Result(Item(8, picture("a.jpg")), 0.4, 0.125, (3, 4, 5, 6), ("/p/1\n.jpg", "/p/2.jpg", "/q/2.jpg"))


def test_search_lines_show_rank_scores_date_path_and_time():
    """A line for each result; names with control characters are escaped; unknown and truncated words come first."""
    found = SearchResults("zebra", True, (MOMENT,), offset=4, unknown=("zebra",), cut=("long " * 100,))
    unknown, cut, line = lines_of(found)
    assert unknown == "words the model does not know: zebra"
    assert cut == f"truncated by the model: {'long ' * 12} …"
    assert line == "   5.   25%  0.500        7  1970-01-02  /photos/[x]\\n.mp4  1:01.0–1:02.5  (the file is missing)"


def test_search_lines_name_some_duplicates():
    """Each name once, with an ellipsis for the others."""
    (line,) = lines_of(SearchResults("x", True, (IMAGE,)))
    assert line.endswith("  /photos/a.jpg  and 4 alike: 1\\n.jpg, 2.jpg …  (the file is missing)")


def test_search_lines_without_results_and_of_an_approximate_search():
    """An empty first page, an empty later page, and a note on the index."""
    assert lines_of(SearchResults("x", True, ())) == ["nothing found"]
    assert lines_of(SearchResults("x", True, (), offset=5)) == ["no more results"]
    assert lines_of(SearchResults("x", False, (MOMENT,)))[-1] == "searched with an approximate index"


def test_page_lines_name_the_next_page():
    """Only if there is one."""
    found = SearchResults("x", True, (IMAGE,))
    assert lines_of(Page(found, 2, more=True)) == [*lines_of(found), "more with --page 3"]
    assert lines_of(Page(found, 2, more=False)) == lines_of(found)


def test_explained_lines_list_evidence_files():
    """Below the results, under their numbers, with a note for replaced files and missing evidence."""
    results = SearchResults("x", True, (MOMENT, IMAGE), offset=2)
    files = (Explanation(file="maps/03-x.png", replaced=True), Explanation(note="the file has changed"))
    assert lines_of(Explained(results, files)) == [
        *lines_of(results),
        "   3.  evidence: maps/03-x.png (replaced)",
        "   4.  evidence: the file has changed",
    ]


def test_caption_lines_show_score_and_file():
    """A line for each caption with its rank and its file; unknown words come first."""
    found = CaptionResults("zebra", (CaptionResult("a dog", 5, "/p/a.jpg", 0.5),), offset=3, unknown=("zebra",))
    assert lines_of(found) == [
        "words the model does not know: zebra",
        "   4.  0.500        5  a dog  (/p/a.jpg)",
    ]
    assert lines_of(CaptionResults("x", (), offset=3)) == ["no more captions"]


def test_duplicates_lines_escape_names():
    """A paragraph for each group; brackets are kept, control characters and invalid bytes escaped."""
    group = (Item(1, picture("a[b].jpg")), Item(2, picture("new\nline\udcff.jpg")))
    assert lines_of(Duplicates(0.9, 5, (group,))) == [
        "1 groups with 2 files, cosine at least 0.9, of 5 items",
        "group 1",
        "  1  /photos/a[b].jpg  30 × 40, 10 bytes",
        "  2  /photos/new\\nline\\udcff.jpg  30 × 40, 10 bytes",
    ]


@pytest.mark.parametrize(
    "name", ["Bildschirmfoto 2024-05-01 um 9.41.00\u202fAM.png", "a\u00a0b.jpg", "👩\u200d🚀.jpg", "日本\u3000語.jpg"]
)
def test_index_lines_name_folders_that_can_be_copied(name):
    """Spaces of any kind and joined emoji are kept, and a line end is escaped."""
    (line,) = lines_of(IndexReport(f"/photos/{name}", new=1))
    assert line == f"/photos/{name}: 1 new"
    (line,) = lines_of(IndexReport(f"/photos/{name}\n", new=1))
    assert line == f"/photos/{name}\\n: 1 new"


def test_calibration_lines_show_sizes_and_errors():
    """Counts, what was found for each size, both errors, and the file."""
    fitted = Coefficients(0.0, 1.0, 1.0, 1.0, "photos dev")
    report = CalibrationReport(
        coefficients=fitted,
        pictures=1000,
        captions=5000,
        results=6000,
        found={30: 0.5, 100: 0.25},
        error=0.015,
        shipped_error=0.125,
        area=0.75,
        written=Path("m/confidence.json"),
    )
    assert lines_of(report) == [
        "1,000 images, 5,000 captions, 6,000 results",
        "  found first among    30:  50%",
        "  found first among   100:  25%",
        "mean calibration error 1.5%, 12.5% with the default coefficients; "
        "a correct result has more confidence than a wrong one in 75.0% of pairs",
        "written: m/confidence.json",
    ]


def test_video_features_lines():
    """Each line has its place: counts, what was clipped, used in part, or left without features, and where they are."""
    counts = {
        "kind": "video",
        "frames_each": 20,
        "channels": 128,
        "count": 3,
        "frames": 25,
        "computed": 2,
        "kept": 0,
        "clipped": 7,
    }
    reported = {"problems": {"a\nb": "empty"}, "notes": {"[c]": "the second half is missing"}}
    report = FeaturesReport(folder=Path("out"), backbone="tiny", seconds=1.0, **counts, **reported)
    assert lines_of(report) == [
        "tiny: 3 videos, up to 20 frames of 128 channels",
        "2 videos with 25 frames computed now (2.0 videos/s), 0 already existed",
        "7 values beyond ±65504, the range of float16, were clipped",
        "[c] is partly used: the second half is missing",
        r"'no features for a\nb: empty'",
        "The features are in out",
    ]
