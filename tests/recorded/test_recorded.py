import importlib.util
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location("record_outputs", Path(__file__).with_name("record.py"))
record = importlib.util.module_from_spec(spec)
spec.loader.exec_module(record)


@pytest.mark.slow
def test_every_command_prints_what_it_printed_when_it_was_recorded(tmp_path):
    printed = record.record(tmp_path)
    recorded = {path.stem: path.read_text() for path in record.FOLDER.iterdir()}
    assert printed.keys() == recorded.keys()
    for name, text in printed.items():
        assert text == recorded[name], name
