"""The runner: campaigns in processes of their own, their figures, and how failures are told."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from torture import report
from torture.__main__ import finish, main, torture
from torture.share import Failure
from torture.workers import CAMPAIGNS, Campaign, Tally, Workers

ROOT = Path(__file__).parents[2]

_MODULES = {
    "counting": """
def run(share):
    share.count("parts", 1)
    while not share.finished():
        share.count("steps", 1)
""",
    "failing": """
from torture.share import Failure
def run(share):
    share.count("steps", 1)
    if share.index == 1:
        share.fail(Failure("promise [broken]", "again --seed 3"))
""",
    "raising": """
def run(share):
    share.count("steps", 1)
    raise KeyError("nobody caught this")
""",
    "dying": """
import os, signal
from torture.progress import at
def run(share):
    at("script/simulate --seed 17")
    os.kill(os.getpid(), signal.SIGSEGV)
""",
    "finite": """
def run(share):
    for _ in range(3):
        while not share.finished():
            share.count("cases", 1)
            if share.index == 0:
                break
        share.count("turns", 1)
""",
}


@pytest.fixture
def campaigns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Campaign]:
    for name, text in _MODULES.items():
        (tmp_path / f"tortured_{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    return {name: Campaign(name, f"tortured_{name}", 1.0) for name in _MODULES}


def console() -> Console:
    return Console(file=io.StringIO(), width=160)


def printed(to: Console) -> str:
    assert isinstance(to.file, io.StringIO)
    return to.file.getvalue()


def test_counts_of_all_workers_are_added(campaigns: dict[str, Campaign]) -> None:
    to = console()
    tallies, whole = torture([campaigns["counting"]], 0.1, 2, 7, to)
    assert whole
    (tally,) = tallies
    assert tally.counts["parts"] == 2
    assert tally.counts["steps"] > 10
    assert tally.failures == []
    assert "steps" in printed(to)


def test_a_failing_campaign_is_told_and_exits_1(
    campaigns: dict[str, Campaign], tmp_path: Path
) -> None:
    to = console()
    tallies, whole = torture([campaigns["failing"], campaigns["raising"]], 0.1, 2, 7, to)
    file = tmp_path / "figures.json"
    with pytest.raises(SystemExit) as ended:
        finish(tallies, whole, 2, 7, to, json_file=file)
    assert ended.value.code == 1
    text = printed(to)
    assert "promise [broken]" in text
    assert "again --seed 3" in text
    assert "nobody caught this" in text
    assert "script/torture --only raising --jobs 2 --seed 7" in text
    found = json.loads(file.read_text())["campaigns"]
    assert found["failing"]["failures"] == [
        {"what": "promise [broken]", "repeat": "again --seed 3"}
    ]
    assert found["failing"]["counts"] == {"steps": 2}
    assert len(found["raising"]["failures"]) == 2


def test_a_worker_that_dies_is_told_with_what_it_was_at(campaigns: dict[str, Campaign]) -> None:
    tallies, _ = torture([campaigns["dying"]], 0.1, 1, 0, console())
    (failure,) = tallies[0].failures
    assert "SIGSEGV" in failure.what
    assert failure.repeat == "script/simulate --seed 17"


def test_a_finite_campaign_is_gone_through_once(campaigns: dict[str, Campaign]) -> None:
    finite = Campaign("finite", campaigns["finite"].module, 1.0, once="turns")
    workers = Workers(finite, 1, 0, 0.0)
    for _ in workers.work():
        pass
    assert workers.tally.counts["turns"] == 3
    assert workers.tally.failures == []


def test_what_takes_longer_is_taken_from_those_behind(campaigns: dict[str, Campaign]) -> None:
    tallies, _ = torture([campaigns["counting"]] * 2, 0.0, 1, 0, console())
    assert [tally.counts["parts"] for tally in tallies] == [1, 1]


def test_an_interrupt_ends_with_the_summary_so_far(campaigns: dict[str, Campaign]) -> None:
    program = """
import sys
from rich.console import Console
from torture.workers import Campaign
from torture import __main__ as command
from torture.__main__ import finish, torture
if __name__ == "__main__":
    to = Console(width=160)
    command.LINE_EVERY = 0.5
    some = [Campaign(name, "tortured_counting", 1.0) for name in ("early", "late")]
    print("ready", flush=True)
    tallies, whole = torture(some, 600.0, 1, 0, to)
    finish(tallies, whole, 1, 0, to)
"""
    folder = Path(sys.path[0])
    script = folder / "interrupted.py"
    script.write_text(program)
    path = [str(folder), str(ROOT), str(ROOT / "src")]
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": ":".join(path)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    while "steps" not in (line := process.stdout.readline()):
        assert "early" in line
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=100)
    assert process.returncode == 130
    assert "steps" in text
    assert "(interrupted)" in text
    assert "late" not in text


def test_figures_are_written_between_the_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    tally = Tally(CAMPAIGNS[0], 10.0, Counter({"cases": 1000, "s3: acknowledged writes lost": 0}))
    report.write_markdown(page, [tally], 2, 7)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| damage | cases | 1,000 | 100 |" in text
    assert "acknowledged writes lost: 0" in text
    tally.counts["s3: acknowledged writes lost"] = 2
    assert report.lost([tally]) == 2
    page.write_text("no marks")
    with pytest.raises(SystemExit):
        report.write_markdown(page, [tally], 2, 7)


def test_failures_show_in_the_table() -> None:
    tally = Tally(CAMPAIGNS[0], 1.0, Counter(), [Failure("what", "again")])
    assert ("damage", "failures", "1", "") in report.rows([tally])
    assert "1 FAILED" in report.line(tally)


def test_unknown_campaigns_are_refused() -> None:
    result = CliRunner().invoke(main, ["--only", "fuzz,nothing"])
    assert result.exit_code == 2
    assert "nothing" in result.output


@pytest.mark.parametrize("campaign", CAMPAIGNS, ids=lambda campaign: campaign.name)
def test_every_campaign_can_be_run(campaign: Campaign) -> None:
    import importlib

    assert callable(importlib.import_module(campaign.module).run)


def test_seeds_of_the_simulator_are_a_campaign(caplog: pytest.LogCaptureFixture) -> None:
    # The simulator silences the log; this puts it back when the test is over.
    caplog.set_level("CRITICAL", logger="reef")
    from torture.share import Share
    from torture.simulation import run

    counts: Counter[str] = Counter()
    failures: list[Failure] = []
    share = Share(
        1,
        2,
        0,
        lambda: counts["seeds"] >= 2,
        lambda name, many: counts.update({name: many}),
        failures.append,
    )
    run(share)
    assert failures == []
    assert counts["seeds"] == 2
    assert counts["requests"] > 20
