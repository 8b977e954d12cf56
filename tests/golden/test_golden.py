import importlib.util
import json
from pathlib import Path

import pytest

from support.playing import ALL

spec = importlib.util.spec_from_file_location("record", Path(__file__).with_name("record.py"))
record = importlib.util.module_from_spec(spec)
spec.loader.exec_module(record)


@pytest.mark.parametrize("name", ALL)
def test_a_recorded_contest_replays_unchanged(name):
    recorded = json.loads((record.FOLDER / f"{name}.json").read_text())
    assert json.loads(record.dump(record.contests(name))) == recorded


def test_every_recording_belongs_to_a_strategy():
    assert {path.stem for path in record.FOLDER.iterdir()} == set(ALL)
