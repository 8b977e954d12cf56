"""Input files as others wrote them: odd kinds of files, byte order marks, bombs, depths and numbers without end."""

import codecs
import gzip
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import zipfile
from contextlib import suppress
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from caps.core.errors import CapsError, InputError
from caps.core.types import Case
from caps.datasets.case_files import parse_case, read_cases
from caps.datasets.imports import count_cases, open_cases
from caps.datasets.inspect_logs import read_eval
from caps.datasets.reading import Limits, check_value_count, decode, parquet_rows
from caps.files import open_input, read_text, read_toml
from caps.judging.profiles import read_profile
from caps.session.parts import load_templates
from caps.studies.study import load_study
from caps.testing import case_line, spread, write_cases
from support.logs import lm_eval, reply, request, result, sample
from support.shell import CAPS, caps, clean, one_sentence, start
from support.waiting import PATIENCE, wait_until

if sys.version_info >= (3, 14):
    zstd_zips = zipfile
else:
    from backports.zstd import zipfile as zstd_zips

BOM = codecs.BOM_UTF8
CASE = case_line("a", spread(2), answer="0")


def names(path, **more):
    return [one.id if isinstance(one, Case) else str(one) for one in open_cases(str(path), **more)]


# Byte order marks


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzipped"])
def test_cases_behind_a_byte_order_mark_are_read(tmp_path, packed):
    path = tmp_path / ("cases.jsonl.gz" if packed else "cases.jsonl")
    data = BOM + f"{CASE}\n{case_line('b', spread(2))}\n".encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    assert names(path) == ["a", "b"]
    assert [case.id for case in read_cases(str(path))] == ["a", "b"]
    assert count_cases(str(path)) == 2


def test_cases_behind_a_byte_order_mark_are_graded_from_file_and_standard_input(tmp_path):
    path = tmp_path / "cases.jsonl"
    path.write_bytes(BOM + CASE.encode())
    for done in (
        caps("grade", path, "--no-journal", "--quiet"),
        caps("grade", "-", "--no-journal", "--quiet", stdin="\ufeff" + CASE),
    ):
        assert done.returncode == 0, done.stderr
        assert [one["correct"] for one in json.loads(done.stdout)["candidates"]] == [True, False]


def test_logs_of_other_tools_behind_a_byte_order_mark_are_told_apart(tmp_path):
    inspect_log = {"version": 2, "eval": {}, "samples": [sample("s", 1, "4"), sample("s", 2, "5")]}
    for text in (
        json.dumps(lm_eval(1, "4", "5")),
        json.dumps([result("q")]),
        json.dumps(request("x")) + "\n" + json.dumps(reply("x", "4")),
        json.dumps(inspect_log, indent=2),
    ):
        (tmp_path / "plain").write_text(text)
        (tmp_path / "marked").write_bytes(BOM + text.encode())
        plain, marked = (list(open_cases(str(tmp_path / kind))) for kind in ("plain", "marked"))
        assert plain == marked, text
        assert all(isinstance(case, Case) for case in plain), text


def test_other_files_behind_a_byte_order_mark_are_read(tmp_path):
    (tmp_path / "caps.toml").write_bytes(BOM + b"limit = 1\r\nno-journal = true\r\n")
    assert read_toml(tmp_path / "caps.toml") == {"limit": 1, "no-journal": True}
    study = 'title = "A"\nseeds = [1]\nreference = "V1"\nsuites = [{ name = "s", n = 4, simulated = { problems = 3 } }]\nstrategies = [{ name = "V1", use = "v1-infer" }]\n[[tables]]\nname = "t"\ntitle = "T"\nmetrics = ["pass_at_1"]\n'
    (tmp_path / "study.toml").write_bytes(BOM + study.encode())
    assert load_study(tmp_path / "study.toml").title == "A"
    (tmp_path / "judge.json").write_bytes(BOM + b'{"e2_high": 0.9}')
    assert read_profile(tmp_path / "judge.json").e2_high == 0.9
    (tmp_path / "question.txt").write_bytes(BOM + "Wie viel?\r\nÄh".encode())
    assert read_text(tmp_path / "question.txt") == "Wie viel?\nÄh"
    name, words = next(iter(load_templates().items()))
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / name).write_bytes(BOM + words.encode())
    assert load_templates(tmp_path / "prompts")[name] == words


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "latin-1"])
def test_another_encoding_is_named_and_no_traceback(tmp_path, encoding):
    path = tmp_path / "text"
    path.write_bytes("größer".encode(encoding))
    with pytest.raises(InputError, match="not UTF-8"):
        read_text(path)
    path.write_bytes(CASE.replace("What", "Größe").encode(encoding))
    (only, *_) = names(path)
    assert f"{path}:1: not JSON" in only


# Kinds of files


def test_a_pipe_is_read_once_and_whole(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    text = f"{CASE}\n{case_line('b', spread(2), answer='0')}\n"
    threading.Thread(target=fifo.write_text, args=(text,), daemon=True).start()
    done = caps("grade", fifo, "--no-journal", "--quiet")
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["a", "b"]


@pytest.mark.parametrize("side", ["input", "output"])
def test_the_first_interrupt_ends_the_wait_for_the_other_end_of_a_pipe(tmp_path, side):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "cases.jsonl").write_text(CASE)
    words = (tmp_path / "fifo",) if side == "input" else (tmp_path / "cases.jsonl", "-o", tmp_path / "fifo")
    process = start("grade", *words, "--no-journal", "--quiet")
    wait_until(lambda: process.poll() is not None or is_opening(process.pid))
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130


def is_opening(pid):
    """Whether a process waits in a call that opens a file; where nobody may know, that it has begun is enough."""
    try:
        return Path(f"/proc/{pid}/syscall").read_text().split()[0] in ("2", "56", "257")  # open, openat
    except OSError:
        return True


def test_a_gzipped_pipe_and_a_process_substitution_are_read(tmp_path):
    (tmp_path / "cases.jsonl.gz").write_bytes(gzip.compress(CASE.encode()))
    line = '"$CAPS" grade <(cat cases.jsonl.gz) --no-journal --quiet && "$CAPS" import <(zcat cases.jsonl.gz)'
    done = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, env=clean({"CAPS": str(CAPS)}), capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [json.loads(one)["id"] for one in done.stdout.splitlines()] == ["a", "a"]


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom", "/dev/full"])
@pytest.mark.parametrize("command", ["grade", "import", "sample", "plan", "solve"])
def test_a_device_without_end_is_refused_by_every_command_that_reads(command, device):
    words = {
        "sample": (device, "--model", "m", "--base-url", "http://127.0.0.1:9"),
        "solve": ("--file", device, "--model", "m", "--base-url", "http://127.0.0.1:9"),
    }.get(command, (device,))
    done = caps(command, *words)
    one_sentence(done, device, "is a device")


def test_settings_from_a_device_without_end_are_refused(tmp_path):
    cases = write_cases(tmp_path / "cases.jsonl", 1, n=2)
    for option in ("--config", "--judge-profile"):
        one_sentence(caps("select", cases, "--dry-run", option, "/dev/zero"), "/dev/zero", "is a device")
    (tmp_path / "long.toml").write_bytes(b"#" * (64 << 20) + b"\n")
    with pytest.raises(InputError, match="holds more than"):
        read_toml(tmp_path / "long.toml")


def test_a_block_device_is_refused(tmp_path):
    try:
        os.mknod(tmp_path / "disk", 0o060600, os.makedev(1, 0))
        Path(tmp_path / "disk").open("rb").close()
    except OSError as error:
        pytest.skip(f"no device can be made or opened here: {error}")
    with pytest.raises(InputError, match="is a device"):
        open_input(tmp_path / "disk")


def test_nothing_in_it_and_a_folder_and_no_file_are_sentences(tmp_path):
    one_sentence(caps("grade", "/dev/null", "--no-journal"), "no cases")
    one_sentence(caps("grade", tmp_path, "--no-journal"), "holds no file that ends in")
    one_sentence(caps("grade", tmp_path / "none", "--no-journal"), "No such file")
    for broken in (b"\x1f\x8b", b"\x1f\x8bnot gzip at all", gzip.compress(CASE.encode())[:-9]):
        (tmp_path / "x.gz").write_bytes(broken)
        done = caps("grade", tmp_path / "x.gz", "--no-journal")
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


# Bombs, depths and numbers


@pytest.mark.parametrize("flood", [b"[[],", b"[{},", b"[0,", b'{"a":[1,'], ids=lambda flood: flood.decode())
def test_json_of_too_many_values_is_refused_before_it_is_built(flood):
    limits = Limits(values=100_000)
    with pytest.raises(InputError, match="holds more than 100,000 values"):
        check_value_count(flood[:1] + flood[1:] * 120_000, limits)
    check_value_count(json.dumps(["a, text, with, commas" * 10_000] * 2), limits)


def nested(depth, kind):
    return {"list": "[" * depth + "]" * depth, "object": '{"a":' * depth + "1" + "}" * depth}[kind]


@pytest.mark.parametrize("kind", ["list", "object"])
@pytest.mark.parametrize("depth", [200, 900, 1_500, 100_000])
def test_json_nested_without_end_is_a_bad_line_and_the_others_are_graded(tmp_path, depth, kind):
    path = tmp_path / "cases.jsonl"
    deep = f'{CASE[:-1]}, "more": {nested(depth, kind)}}}'.replace('"id": "a"', '"id": "deep"')
    path.write_text(f"{deep}\n{CASE}\n")
    done = caps("grade", path, "--no-journal", "--quiet")
    assert "Traceback" not in done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["id"] == "a"
    assert done.returncode == (0 if depth == 200 else done.returncode)
    if depth == 100_000:
        assert done.returncode == 1
        assert f"{path}:1: not JSON" in done.stderr


@pytest.mark.parametrize("depth", [5_000, 100_000])
def test_settings_nested_without_end_are_refused_in_a_sentence(tmp_path, depth):
    cases = write_cases(tmp_path / "cases.jsonl", 1, n=2)
    (tmp_path / "c.toml").write_text("a = " + nested(depth, "list"))
    (tmp_path / "j.json").write_text(nested(depth, "list"))
    one_sentence(caps("select", cases, "--dry-run", "--config", tmp_path / "c.toml"), "c.toml")
    one_sentence(caps("bench", tmp_path / "c.toml", "--simulate"), "c.toml")
    one_sentence(caps("select", cases, "--dry-run", "--judge-profile", tmp_path / "j.json"), "j.json")
    done = caps("sample", cases, "--dry-run", "--extra", f"x={nested(depth, 'list')}", "--json")
    assert "Traceback" not in done.stderr


WRONG = {
    "score": ["NaN", "Infinity", "-Infinity", "1e999", "9" * 400, "9" * 5_000, "9" * 100_000],
    "logprob": ["-" + "9" * 400, "true"],
    "text": ['"\\ud800"', "9" * 30],
    "correct": ["1"],
    "code": ["[]"],
}


def test_wrong_numbers_and_texts_are_bad_lines_and_the_others_are_graded(tmp_path):
    path, lines = tmp_path / "cases.jsonl", []
    for field, values in WRONG.items():
        row = {"problem": "?", "answer": "1", "candidates": [{"text": "\\boxed{1}", field: "HERE"}]}
        lines += [json.dumps(row).replace('"HERE"', value) for value in values]
    for first in range(0, len(lines), 5):  # more would not be printed
        wrong = lines[first : first + 5]
        path.write_text("\n".join([*wrong, CASE]))
        done = caps("grade", path, "--no-journal", "--quiet")
        assert done.returncode == 1, done.stderr
        assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["a"]
        failures = done.stderr.splitlines()
        assert len(failures) == len(wrong)
        for number, failure in enumerate(failures, start=1):
            assert failure.startswith(f"failed: {path}:{number}: ")
            assert len(failure) < 2_000


@pytest.mark.parametrize("value", ["9" * 400, "-" + "9" * 30, "1e-999", "12345678901234567890.5"])
def test_huge_numbers_where_anything_may_stand_go_through_unharmed(tmp_path, value):
    path = tmp_path / "cases.jsonl"
    path.write_text(f'{CASE[:-1]}, "year": {value}, "answer": 0}}\n')
    done = caps("grade", path, "--no-journal", "--quiet")
    assert "Traceback" not in done.stderr
    assert (
        float(json.loads(done.stdout)["year"]) == float(value) if len(value) < 300 else value in done.stdout
    )


def test_of_a_key_that_stands_twice_the_last_counts_everywhere_alike(tmp_path):
    text = '{"id": "x", "id": "y", "problem": "?", "candidates": ["one"], "candidates": ["two", "three"]}'
    case = parse_case(text, default_id="1")
    assert (case.id, [one.text for one in case.candidates]) == ("y", ["two", "three"])
    path = tmp_path / "cases.jsonl"
    path.write_text(text)
    assert [one.text for one in next(open_cases(str(path))).candidates] == ["two", "three"]
    assert decode('{"a": 1, "a": 2}') == {"a": 2}


@pytest.mark.parametrize(
    "id_", ["[[1]]", "{}", "null", "true", "9" * 300, '""', '"\\u0000"', '"../../x"', '"a\\nb"']
)
def test_an_odd_id_is_a_name_like_any_other(tmp_path, id_):
    path = tmp_path / "cases.jsonl"
    path.write_text(CASE.replace('"id": "a"', f'"id": {id_}') + "\n")
    done = caps("grade", path, "--no-journal", "--quiet")
    assert done.returncode == 0, done.stderr
    assert isinstance(json.loads(done.stdout)["id"], str)


# Logs of Inspect


def log(path, members, method=None):
    """An archive as Inspect writes it today: every member packed with Zstandard."""
    with zstd_zips.ZipFile(path, "w", zstd_zips.ZIP_ZSTANDARD if method is None else method) as file:
        file.writestr("header.json", "{}")
        for name, content in members.items():
            file.writestr(name, content if isinstance(content, str | bytes) else json.dumps(content))
    return str(path)


def epochs(count=2):
    return {f"samples/s_epoch_{i}.json": sample("s", i, str(3 + i)) for i in range(1, count + 1)}


def test_a_log_packed_with_zstandard_is_read_like_one_packed_with_deflate(tmp_path):
    new = log(tmp_path / "new.eval", epochs())
    with zipfile.ZipFile(new) as file:
        assert {member.compress_type for member in file.infolist()} == {93}
    old = log(tmp_path / "old.eval", epochs(), zipfile.ZIP_DEFLATED)
    assert list(read_eval(new)) == list(read_eval(old))
    (case,) = read_eval(new)
    assert [(one.text, one.correct) for one in case.candidates] == [("4", True), ("5", False)]


def test_bad_members_are_named_and_the_others_are_read(tmp_path):
    bad = {"samples/bomb.json": b" " * (8 << 20), "samples/deep.json": "[" * 10**5, "samples/bad.json": "{"}
    for method in (None, zipfile.ZIP_DEFLATED):
        path = log(tmp_path / "bomb.eval", {**bad, **epochs()}, method)
        assert Path(path).stat().st_size < 20_000
        bomb, deep, half, case = read_eval(path, Limits(packed=1 << 20))
        assert "samples/bomb.json: unpacks to more than 1,048,576 bytes" in str(bomb)
        assert ("samples/deep.json" in str(deep), "samples/bad.json" in str(half)) == (True, True)
        assert len(case.candidates) == 2
    with pytest.raises(InputError, match="has more than 2 members"):
        list(read_eval(path, Limits(members=2)))
    (odd, _) = read_eval(log(tmp_path / "odd.eval", {"samples/a.json": "{}"}, zipfile.ZIP_BZIP2))
    assert "unsupported compression method" in str(odd)


def test_an_archive_of_many_bombs_ends_at_a_limit_for_all(tmp_path):
    members = {f"samples/{i}.json": b" " * (2 << 20) for i in range(30)}
    path = log(tmp_path / "bombs.eval", members)
    with pytest.raises(InputError, match="unpacks to more than 5,242,880 bytes"):
        list(read_eval(path, Limits(packed=1 << 20, archive=5 << 20)))


def test_a_false_record_at_the_end_of_an_archive_makes_it_unreadable_only(tmp_path):
    whole = Path(log(tmp_path / "ok.eval", epochs())).read_bytes()
    place = whole.rfind(b"PK\x05\x06")
    for offset, value in ((12, 0xFFFFFFFF), (12, 0), (12, 0x7FFFFFFF), (16, 0xFFFFFFFF), (10, 0), (8, 0)):
        broken = bytearray(whole)
        struct.pack_into("<L" if offset >= 12 else "<H", broken, place + offset, value)
        (tmp_path / "broken.eval").write_bytes(broken)
        try:
            found = list(read_eval(str(tmp_path / "broken.eval")))
        except CapsError as error:
            assert str(tmp_path) in str(error)
        else:
            assert found


@pytest.mark.parametrize(
    "name",
    ["/etc/samples/x.json", "../samples/x.json", "samples/../../x.json", "samples/\x1b]0;x.json", "samples/x.json"],
)  # fmt: skip
def test_the_names_of_members_lead_nowhere(tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = log(tmp_path / "log.eval", {name: sample("x", 1, "4")})
    before = sorted(tmp_path.rglob("*"))
    try:
        found = list(read_eval(path))
    except InputError as error:
        found = [error]
    assert found
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("cut", [1, 30, 60, 100])
def test_broken_zstandard_frames_are_bad_members_and_no_traceback(tmp_path, cut):
    whole = bytearray(
        Path(log(tmp_path / "ok.eval", {"samples/x.json": sample("x", 1, "4" * 500)})).read_bytes()
    )
    start = whole.find(b"samples/x.json") + len("samples/x.json")
    whole[start + cut : start + cut + 8] = b"\xff" * 8
    (tmp_path / "broken.eval").write_bytes(whole)
    done = caps("import", tmp_path / "broken.eval")
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert "samples/x.json" in done.stderr


def test_garbage_that_begins_like_an_archive_is_refused_in_a_sentence(tmp_path):
    for number, data in enumerate(
        (b"PK\x03\x04", b"PK\x03\x04" + os.urandom(5_000), b"PK\x03\x04" + b"PK\x05\x06" * 500)
    ):
        path = tmp_path / f"{number}.eval"
        path.write_bytes(data)
        one_sentence(caps("import", path), "the archive cannot be read")


@pytest.mark.linux
@pytest.mark.parametrize("name", ["pipe.jsonl", "pipe.json", "pipe.csv", "pipe.parquet", "pipe.eval"])
@pytest.mark.parametrize("beside", ["a.jsonl", "a.json"])
def test_a_pipe_in_a_folder_of_cases_is_refused_and_not_waited_for(tmp_path, name, beside):
    folder = tmp_path / "cases"
    folder.mkdir()
    (folder / beside).write_text(CASE)
    os.mkfifo(folder / name)
    one_sentence(caps("select", folder, "--strategy", "majority"), folder / name, "is a pipe or a device")


# --- Parquet --------------------------------------------------------------------------------------------------------

TEXT = "x" * 30_000_000


def repeated(text, times):
    """A column of one text, which the file holds once."""
    return pyarrow.DictionaryArray.from_arrays(
        pyarrow.array([0] * times, pyarrow.int32()), pyarrow.array([text])
    )


def in_one_row(values):
    return pyarrow.ListArray.from_arrays(pyarrow.array([0, len(values)], pyarrow.int32()), values)


SMALL_FILES = {
    "a text in a row": lambda: {"problem": repeated(TEXT, 1)},
    "a list of texts": lambda: {"candidates": in_one_row(repeated(TEXT, 2000))},
    "a list of objects": lambda: {"candidates": in_one_row(pyarrow.StructArray.from_arrays([repeated(TEXT, 2000)], ["text"]))},
    "a list of numbers": lambda: {"n": in_one_row(pyarrow.repeat(pyarrow.scalar(7), 30_000_000))},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL_FILES)
def test_a_small_parquet_file_with_a_large_row_is_refused_within_limits(tmp_path, name):
    path = tmp_path / "small.parquet"
    pyarrow.parquet.write_table(
        pyarrow.table(SMALL_FILES[name]()), path, compression="zstd", store_schema=False
    )
    assert path.stat().st_size < 5000
    with pytest.raises(
        InputError, match="longer than 10,000,000 bytes|takes more than [0-9,]+ bytes of memory"
    ):
        list(parquet_rows(str(path), Limits(line=10_000_000, whole=1 << 30)))


@pytest.mark.slow
@pytest.mark.linux
def test_a_text_that_all_rows_of_a_parquet_file_share_takes_the_memory_of_one_row(tmp_path):
    path = tmp_path / "shared.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"problem": repeated(TEXT, 20)}), path, compression="zstd")
    program = (  # getrusage would count the process that this one was forked from
        "import sys; from caps.datasets.reading import Limits, parquet_rows\n"
        "rows = parquet_rows(sys.argv[1], Limits(whole=1 << 30))\n"
        "assert sum(len(row['problem']) for row in rows) == 600_000_000\n"
        "print(int(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0]) >> 10)"
    )
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 400  # MB


@pytest.mark.linux
def test_a_parquet_file_that_is_left_early_leaves_no_process(tmp_path):
    path = tmp_path / "many.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"problem": ["What?"] * 100_000}), path)
    rows = parquet_rows(str(path))
    assert next(rows) == {"problem": "What?"}
    assert readers_of(path)
    rows.close()
    assert not readers_of(path)


def readers_of(path):
    """Processes that were started to read a file."""
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended meanwhile
            found += [command] if str(path).encode() in command.read_bytes() else []
    return found
