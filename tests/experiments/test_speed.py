"""The speed experiment: who is asked and how, what is measured and what is only continued, and its table."""

import json
import platform
from dataclasses import replace

import faiss
import numpy as np
import pytest
import torch

from vse._version import __version__
from vse.errors import InputError
from vse.experiments.speed import describe_machine, plan_of, processor_name, run
from vse.experiments.speed_contestants import (
    CrossEncoder,
    Gallery,
    VSEContestant,
    bert_tokenizer,
    build_cross,
    build_vse_bert,
    build_vse_bigru,
)
from vse.experiments.speed_profile import (
    CONTESTANTS,
    QUICK,
    SENTENCES,
    Outcome,
    Profile,
    largest_deviation,
    query_times,
    rounded,
    seconds_per_candidate,
)
from vse.experiments.speed_report import QUICK_WARNING, SpeedResult, duration
from vse.progress import SilentProgress

TINY = replace(
    QUICK, sizes=(4, 12, 40), repetitions=2, cross_repetitions=((4, 2), (12, 1)), batches=(2, 5), layers=1, width=8
)


def outcomes_of(profile, seconds):
    """Made-up measurements: ``seconds(contestant, size)`` is the median, between a smaller and a much larger time."""
    return {
        (name, size): [Outcome([time, 0.5 * time, 90 * time])]
        for name, size in plan_of(profile)
        for time in [seconds(name, size)]
    }


def result_of(tmp_path, seconds, profile=None, quick=False):
    profile = profile or Profile()
    machine = {**describe_machine(), "cores": 2, "threads": 2}
    return SpeedResult(profile, quick, (0,), machine, outcomes_of(profile, seconds), tmp_path)


def linear(name, size):
    return {"vse-bert": 0.04, "vse-bigru": 0.002, "cross-encoder": 0.1 * size}[name]


@pytest.fixture
def gallery():
    made = Gallery(QUICK.dimensions, seed=0)
    yield made
    made.close()


def test_the_defaults_are_those_of_the_paper():
    """BERT-base in either place, 1024 dimensions, 36 regions of 2048, 100 to 100,000 candidates."""
    profile = Profile()
    with torch.device("meta"):
        encoder = CrossEncoder(profile)
    transformer = sum(weight.numel() for weight in encoder.transformer.parameters())
    embeddings = (30522 + 512 + 2 + 2) * 768
    layer = 4 * (768 * 768 + 768) + 2 * 768 * 3072 + 3072 + 768 + 4 * 768
    assert transformer == embeddings + 12 * layer
    assert encoder.project.weight.shape == (768, 2048)
    assert (profile.dimensions, profile.regions, profile.results) == (1024, 36, 10)
    assert profile.sizes == (100, 300, 1000, 3000, 10_000, 30_000, 100_000)
    assert profile.cross_sizes == (100, 300, 1000)


def test_every_query_has_as_many_tokens():
    """Fifteen for either text encoder, none of them unknown: a query takes as long as any other."""
    for tokenizer in (bert_tokenizer(SENTENCES), build_vse_bigru(QUICK, 0).tokenizer):
        batch = tokenizer.encode(SENTENCES)
        assert batch.lengths.tolist() == [15] * len(SENTENCES)
        assert not (batch.tokens == tokenizer.unk_id).any()


@pytest.mark.parametrize("build", [build_vse_bert, build_vse_bigru])
def test_vse_compares_the_sentence_with_every_vector(gallery, build):
    """Its answer is that of a plain product over all candidates, however the collection grew."""
    contestant = VSEContestant(build(QUICK, 3), gallery, 10)
    known = []
    for size in (5, 40, 300):
        contestant.prepare(size)
        blocks = list(contestant.collection.all_vectors())
        ids, vectors = (np.concatenate(part) for part in zip(*blocks, strict=True))
        assert len(ids) == size
        assert ids[: len(known)].tolist() == known  # those that were there stay
        known = ids.tolist()
        scores = vectors @ contestant.model.encode_texts([SENTENCES[1]])[0]
        assert contestant.answer(SENTENCES[1]) == ids[np.argsort(-scores)][:10].tolist()


def test_the_cross_encoder_reads_every_pair():
    """Its answer is that of one pass for each candidate, whatever the batch; sentence and regions both count."""
    contestant = build_cross(TINY, 1)
    assert contestant.batch_size in TINY.batches
    contestant.prepare(23)
    contestant.features *= 30  # scores far enough apart that rounding makes no ties
    answers = []
    for sentence in SENTENCES[:2]:
        tokens = torch.from_numpy(bert_tokenizer(SENTENCES).encode([sentence]).tokens[0])
        with torch.inference_mode():
            alone = torch.cat([contestant.encoder(tokens, each[None]) for each in contestant.features])
        assert len(alone.unique()) == 23
        answers.append(alone)
        for contestant.batch_size in (1, 4, 23):
            assert contestant.answer(sentence) == alone.argsort(descending=True)[:10].tolist()
    assert not torch.allclose(*answers)


def test_the_cross_encoder_attends_across():
    """A change of one region changes what the first token becomes: sentence and image go through one transformer."""
    torch.manual_seed(0)
    encoder = CrossEncoder(TINY).eval()
    features = torch.randn(1, TINY.regions, TINY.feature_size)
    changed = features.clone()
    changed[0, -1] += 1
    tokens = torch.arange(5, 20)
    assert encoder(tokens, features).item() != encoder(tokens, changed).item()
    assert encoder(tokens, features).item() != encoder(tokens + 1, features).item()


def test_the_line_is_that_of_least_squares():
    """The continuation is the least-squares line through the origin, and says how far the measurements are from it."""
    medians = {100: 11.0, 300: 29.0, 1000: 105.0}
    sizes, seconds = np.array(list(medians)), np.array(list(medians.values()))
    (slope,) = np.linalg.lstsq(sizes[:, None], seconds, rcond=None)[0]
    assert seconds_per_candidate(medians) == pytest.approx(slope)
    assert largest_deviation(medians) == pytest.approx(np.abs(seconds / (slope * sizes) - 1).max())


def test_times_are_medians_over_all_seeds():
    """A measured time is the median of the repetitions of every seed together."""
    outcomes = outcomes_of(TINY, linear)
    outcomes["vse-bert", 12] = [Outcome([1.0, 2.0, 9.0]), Outcome([3.0, 4.0])]
    (time,) = (t for t in query_times(outcomes, TINY) if (t.contestant, t.candidates) == ("vse-bert", 12))
    assert (time.seconds, time.measured, time.repetitions) == (3.0, True, 5)


def test_only_the_cross_encoder_is_continued_and_is_marked(tmp_path):
    """Beyond 1,000 candidates its times lie on the line and are not called measured, in the JSON and in the table."""
    result = result_of(tmp_path, linear)
    values = json.loads(json.dumps(result.to_json(), allow_nan=False))
    continued = {(e["contestant"], e["candidates"]) for e in values["table"] if not e["measured"]}
    assert continued == {("cross-encoder", size) for size in (3000, 10_000, 30_000, 100_000)}
    for entry in values["table"]:
        if entry["contestant"] == "cross-encoder":
            assert entry["seconds"] == pytest.approx(0.1 * entry["candidates"])
            assert (entry["repetitions"] > 0) == entry["measured"]
    assert len(values["table"]) == len(CONTESTANTS) * 7
    ratios = {(e["contestant"], e["candidates"]): e for e in values["cross_encoder_over_vse"]}
    assert all(ratios[name, size]["measured"] == (size <= 1000) for name, size in ratios)
    assert ratios["vse-bigru", 100]["times"] == pytest.approx(5000)
    assert values["line"]["fitted_to"] == [100, 300, 1000]
    assert values["machine"]["threads"] == 2
    rows = result.markdown().splitlines()[2:9]
    assert [row.count("(extrapolated)") for row in rows] == [0, 0, 0, 2, 2, 2, 2]


def test_the_table_and_the_ratios_in_words(tmp_path):
    """A row holds the three times and the ratio; the sentence below says which ratio was measured."""
    result = result_of(tmp_path, linear)
    text = result.markdown()
    assert "| 1,000 | 40.0 ms | 2.00 ms | 100 s | 2,500 |" in text
    assert "| 100,000 | 40.0 ms | 2.00 ms | 2.78 h (extrapolated) | 250,000 (extrapolated) |" in text
    assert "2,500 times faster than V+L BERT at 1,000 candidates (measured)" in text
    assert "250,000 times at 100,000 (extrapolated, not measured)" in text
    assert "2 threads" in text


def test_the_plot_draws_what_was_continued_apart(tmp_path):
    """Both axes are logarithmic; continued times are dashed, labelled, and begin at the last measured one."""
    result = result_of(tmp_path, linear)
    (axis,) = result.plot().axes
    assert (axis.get_xscale(), axis.get_yscale()) == ("log", "log")
    lines = {line.get_label(): line for line in axis.get_lines()}
    assert len(lines) == 4
    dashed = lines.pop("V+L BERT, extrapolated, not measured")
    assert dashed.get_linestyle() == "--"
    assert list(dashed.get_xdata()) == [1000, 3000, 10_000, 30_000, 100_000]
    assert all(line.get_linestyle() == "-" for line in lines.values())
    assert list(lines["V+L BERT"].get_xdata()) == [100, 300, 1000]
    assert any("extrapolated" in text.get_text() for text in axis.texts)


@pytest.mark.parametrize("quick", [True, False])
def test_quick_figures_are_marked_everywhere(tmp_path, quick):
    """In the JSON, above the table and in the plot; other figures are not."""
    result = result_of(tmp_path, linear, QUICK if quick else Profile(), quick)
    assert result.to_json()["warning"] == (QUICK_WARNING if quick else None)
    assert result.markdown().startswith(f"**{QUICK_WARNING}.**" if quick else "| candidates")
    assert result.plot().get_suptitle() == (QUICK_WARNING if quick else "")


def test_only_bert_base_is_called_so(tmp_path):
    """Names in table, sentences and plot follow the sizes of the profile."""
    assert result_of(tmp_path, linear).markdown().count("BERT-base") == 3
    small = result_of(tmp_path, linear, QUICK, quick=True)
    shown = small.markdown() + str([line.get_label() for line in small.plot().axes[0].get_lines()])
    assert "BERT-base" not in shown
    assert shown.count("BERT 2×64") == 4
    assert replace(Profile(), layers=11).bert_name == "BERT 11×768"


def test_a_line_that_does_not_fit_is_called_rough(tmp_path):
    """Measured times within a tenth of the line are praised, others are not."""

    def slow_start(name, size):
        return linear(name, size) * (1.5 if (name, size) == ("cross-encoder", 100) else 1.0)

    assert "no measured time is further than 0%" in result_of(tmp_path, linear).markdown()
    text = result_of(tmp_path, slow_start).markdown()
    assert "The extrapolated times are rough: the measured ones are up to 49% away" in text
    assert "no measured time" not in text


def test_the_machine_is_told_apart(tmp_path, monkeypatch):
    """By the model of its processor where the system tells it, and by the libraries; another is measured again."""
    facts = tmp_path / "cpuinfo"
    facts.write_text("processor\t: 0\nmodel\t: 7\nmodel name\t: Some CPU @ 2 GHz\n\nmodel name\t: Another\n")
    assert processor_name(facts) == "Some CPU @ 2 GHz"
    facts.write_text("processor\t: 0\nBogoMIPS\t: 50\n")
    assert processor_name(facts) == processor_name(tmp_path / "none") == platform.machine()
    machine = describe_machine()
    assert machine["processor"] == processor_name()
    assert (machine["faiss"], machine["vse"]) == (faiss.__version__, __version__)
    profile = replace(TINY, sizes=(4, 12), cross_repetitions=((4, 1),), repetitions=1)
    monkeypatch.setattr("vse.experiments.speed.QUICK", profile)
    counts = []
    for name in (machine["processor"], "another"):
        monkeypatch.setattr("vse.experiments.speed.processor_name", lambda name=name: name)
        run(quick=True, out=tmp_path / "out", seeds=None, jobs=None, report=SilentProgress())
        counts.append(len(list((tmp_path / "out" / "runs").iterdir())))
    assert counts == [5, 10]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.00123, "1.23 ms"), (0.0456, "45.6 ms"), (0.9, "900 ms"), (1.5, "1.50 s"), (119, "119 s"), (600, "10.0 min")],
)
def test_durations_are_printed_for_people(seconds, text):
    """Three digits and the unit a person would choose."""
    assert duration(seconds) == text


@pytest.mark.parametrize(("ratio", "text"), [(6.24, "6.2"), (96.4, "96"), (962, "960"), (57_568, "58,000")])
def test_ratios_have_two_digits(ratio, text):
    """More digits than two would claim what no repetition gives again."""
    assert rounded(ratio) == text


def test_measurements_are_kept_and_the_gallery_is_not(tmp_path, monkeypatch):
    """Each measurement is kept and made once; of the collection nothing remains; another seed is measured again."""
    monkeypatch.setattr("vse.experiments.speed.QUICK", TINY)
    temporary, out = tmp_path / "temporary", tmp_path / "out"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    first = run(quick=True, out=out, seeds=None, jobs=None, report=SilentProgress())
    assert not list(temporary.iterdir())
    assert sorted(path.name for path in out.iterdir()) == ["result.json", "runs", "speed.png", "table.md"]
    kept = {path: path.stat().st_mtime_ns for path in (out / "runs").iterdir()}
    assert len(kept) == 3 + 3 + 2
    again = run(quick=True, out=out, seeds=(0, 1), jobs=1, report=SilentProgress())
    assert len(list((out / "runs").iterdir())) == 2 * len(kept)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert all(again.outcomes[step][0] == outcome for step, (outcome,) in first.outcomes.items())
    repetitions = {(time.contestant, time.candidates): time.repetitions for time in again.times.values()}
    assert repetitions["vse-bigru", 40] == 4
    assert repetitions["cross-encoder", 12] == 2
    assert repetitions["cross-encoder", 40] == 0


@pytest.mark.parametrize(("options", "named"), [({"jobs": 2}, "--jobs"), ({"seeds": ()}, "seeds is empty")])
def test_speed_refuses_parallel_jobs_and_no_seed(tmp_path, options, named):
    """Measurements side by side would slow each other, and without a seed there is none."""
    values = {"seeds": None, "jobs": None, **options}
    with pytest.raises(InputError, match=named):
        run(quick=True, out=tmp_path, report=SilentProgress(), **values)
    assert not list(tmp_path.iterdir())
