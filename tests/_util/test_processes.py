"""Many runs: kept when done, never repeated, and nothing lost when one fails."""

import json

import pytest

from vse._util.processes import job_name, run_jobs
from vse.errors import VSEError
from vse.progress import SilentProgress

PLAN = [{"number": number} for number in range(5)]


def square(task, profile):
    return {"value": task["number"] ** 2 + profile["plus"]}


def fail_at_three(task, profile):
    if task["number"] == 3:
        raise VSEError("run 3 failed")
    return square(task, profile)


def never(task, profile):
    raise AssertionError("a finished run was repeated")


def values(outcomes):
    return [outcome["value"] for outcome in outcomes]


@pytest.mark.parametrize("jobs", [1, 2])
def test_outcomes_come_in_the_order_of_the_plan(tmp_path, jobs):
    """Whatever finishes first, the outcomes are those of the plan, in its order."""
    outcomes = run_jobs(square, PLAN, {"plus": 1}, tmp_path, workers=jobs, report=SilentProgress())
    assert values(outcomes) == [1, 2, 5, 10, 17]


def test_finished_runs_survive_a_failure(tmp_path):
    """When one run fails, those that ended before it are kept and are not done again."""
    with pytest.raises(VSEError, match="run 3"):
        run_jobs(fail_at_three, PLAN, {"plus": 0}, tmp_path, workers=1, report=SilentProgress())
    assert len(list(tmp_path.glob("*.json"))) == 3
    run_jobs(never, PLAN[:3], {"plus": 0}, tmp_path, workers=1, report=SilentProgress())


def test_another_profile_is_another_run(tmp_path):
    """A run is reused for the same task and profile only."""
    run_jobs(square, PLAN, {"plus": 0}, tmp_path, workers=1, report=SilentProgress())
    with pytest.raises(AssertionError):
        run_jobs(never, PLAN, {"plus": 1}, tmp_path, workers=1, report=SilentProgress())
    assert job_name(PLAN[0], {"plus": 0}) != job_name(PLAN[0], {"plus": 1})


@pytest.mark.parametrize("content", ["", "{", "[]", json.dumps({"task": {}})])
def test_a_damaged_run_is_named(tmp_path, content):
    """A file that is not a finished run is an error that names it and says what to do."""
    path = tmp_path / f"{job_name(PLAN[0], {'plus': 0})}.json"
    path.write_text(content)
    with pytest.raises(VSEError, match=r"delete it") as caught:
        run_jobs(square, PLAN, {"plus": 0}, tmp_path, workers=1, report=SilentProgress())
    assert str(path) in str(caught.value)
