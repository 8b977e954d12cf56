"""Outputs never destroy anything: whatever stands where a command is to write survives, or is replaced as a whole."""

import gzip
import json
import os
import shutil
import stat
import subprocess
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import caps.reports.page as pages
from caps.core.errors import InputError
from caps.files import FolderLock, Output, append_file, write_file
from caps.reports.page import Page, write_page
from caps.testing import ScriptedEndpoint, better_quality_wins, case_line, spread, write_cases
from support.batching import answer_files
from support.shell import CAPS, caps, clean, one_sentence, start
from support.waiting import PATIENCE, wait_until


@pytest.fixture
def server():
    with ScriptedEndpoint(better_quality_wins, models=("stub", "other")) as running:
        yield running


@pytest.fixture
def cases(tmp_path):
    return write_cases(tmp_path / "cases.jsonl", 2, n=2, answer="0")


@pytest.fixture
def grade(cases):
    def run(out, *words, **more):
        return caps("grade", cases, "--no-journal", "--quiet", "-o", out, *words, **more)

    return run


@pytest.fixture
def select(server, tmp_path):
    def run(cases, *words):
        return caps(
            "select", cases, "--base-url", server.url, "--model", "stub", "--no-journal", "--hard-evidence", "off",
            "--strategy", "round-robin", "--quiet", *words,
        )  # fmt: skip

    return run


def labelled(text):
    return [[one["correct"] for one in json.loads(line)["candidates"]] for line in text.splitlines()]


def made_node(path, kind, *numbers):
    """A device of our own, or the reason why none can be made."""
    try:
        os.mknod(path, kind | 0o666, os.makedev(*numbers))
        os.close(os.open(path, os.O_WRONLY))
    except OSError as error:
        pytest.skip(f"no device can be made or opened here: {error}")
    return path


def tree(folder):
    """Every file below a folder with its content."""
    return {
        path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


# What stands at the name of an output


@pytest.mark.parametrize("command", ["grade", "import", "export", "report", "diagnose", "simulate"])
def test_every_command_that_writes_a_file_leaves_a_device_a_device(command, tmp_path, cases, select):
    device = made_node(tmp_path / "null", stat.S_IFCHR, 1, 3)
    before = device.stat()
    if command == "report":
        assert select(cases, "--out", tmp_path / "run").returncode == 0
    words = {
        "grade": (cases, "--no-journal", "-o", device),
        "import": (cases, "-o", device),
        "export": (cases, "--format", "text", "-o", device),
        "report": (tmp_path / "run", "-o", device),
        "diagnose": ("--simulate", "80", "--contests", "5", "--quiet", "--save", device, "--html", device),
        "simulate": ("--problems", "3", "--html", device),
    }[command]
    done = caps(command, *words)
    assert done.returncode == 0, done.stderr
    after = device.stat()
    assert (after.st_ino, after.st_rdev, after.st_mode) == (before.st_ino, before.st_rdev, before.st_mode)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        {"null", "cases.jsonl", *(["run"] if command == "report" else [])}
    )


def test_a_device_that_takes_nothing_is_reported_in_a_sentence_and_stays(grade, tmp_path):
    device = made_node(tmp_path / "full", stat.S_IFCHR, 1, 7)
    one_sentence(grade(device), device, "No space left")
    assert stat.S_ISCHR(device.stat().st_mode)


def test_a_block_device_is_refused_unopened(tmp_path):
    try:
        os.mknod(tmp_path / "disk", stat.S_IFBLK | 0o600, os.makedev(7, 250))
    except OSError as error:
        pytest.skip(f"no device can be made here: {error}")
    with pytest.raises(InputError, match="is a disk"):
        Output(tmp_path / "disk")


@pytest.mark.parametrize("linked", [False, True], ids=["plain", "behind a link"])
def test_a_fifo_hands_everything_to_its_reader_and_stays_a_fifo(grade, tmp_path, linked):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    heard = []
    reader = threading.Thread(target=lambda: heard.append(fifo.read_text()), daemon=True)
    reader.start()
    name = tmp_path / "link" if linked else fifo
    if linked:
        name.symlink_to(fifo)
    assert grade(name).returncode == 0
    reader.join(PATIENCE)
    assert labelled(heard[0]) == [[True, False], [True, False]]
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert not linked or name.is_symlink()


def shell_line(line, folder):
    """Run a line of shell in a folder."""
    return subprocess.run(
        ["bash", "-c", line], cwd=folder, env=clean({"CAPS": str(CAPS)}), capture_output=True, text=True, timeout=PATIENCE, check=False
    )  # fmt: skip


def test_the_name_of_standard_output_writes_behind_what_stands_in_it(tmp_path, grade):
    log, link = tmp_path / "log", tmp_path / "link"
    log.write_text("precious\n")
    link.symlink_to("/dev/stdout")
    with log.open("a") as file:
        for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", link, "/dev/../dev/stdout"):
            done = grade(name, stdout=file)
            assert done.returncode == 0, (name, done.stderr)
    first, *rest = log.read_text().splitlines()
    assert first == "precious"
    assert labelled("\n".join(rest)) == [[True, False]] * 10
    assert link.is_symlink()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_standard_stream_never_becomes_an_output_file(tmp_path, cases, closed):
    done = shell_line(f'"$CAPS" grade cases.jsonl --no-journal --explain -o out.jsonl {closed}', tmp_path)
    assert done.returncode == 0, done.stderr
    assert labelled((tmp_path / "out.jsonl").read_text()) == [[True, False]] * 2


@pytest.mark.parametrize("depth", [1, 3])
def test_a_symbolic_link_stays_and_its_target_is_replaced_with_its_mode(grade, tmp_path, depth):
    (tmp_path / "deep").mkdir()
    target = tmp_path / "deep" / "target.jsonl"
    target.write_text("old")
    target.chmod(0o640)
    name = target
    for number in range(depth):
        link = tmp_path / f"link{number}.jsonl"
        link.symlink_to(os.path.relpath(name, tmp_path))
        name = link
    assert grade(name).returncode == 0
    assert name.is_symlink()
    assert len(labelled(target.read_text())) == 2
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert [path.name for path in target.parent.iterdir()] == ["target.jsonl"]


def test_a_dangling_link_makes_its_target_and_a_loop_is_refused(grade, tmp_path):
    (tmp_path / "dangling").symlink_to("new.jsonl")
    assert grade(tmp_path / "dangling").returncode == 0
    assert len(labelled((tmp_path / "new.jsonl").read_text())) == 2
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    one_sentence(grade(tmp_path / "a"), "symbolic links")


def test_another_hard_link_keeps_the_old_content(grade, tmp_path):
    out, other = tmp_path / "out.jsonl", tmp_path / "other.jsonl"
    out.write_text("old")
    other.hardlink_to(out)
    assert grade(out).returncode == 0
    assert other.read_text() == "old"
    assert len(labelled(out.read_text())) == 2


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o755])
def test_a_file_keeps_its_mode_and_a_new_one_gets_that_of_the_shell(tmp_path, mode):
    (tmp_path / "old").write_text("old")
    (tmp_path / "old").chmod(mode)
    write_file(tmp_path / "old", b"new")
    assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == mode
    write_file(tmp_path / "fresh", b"new")
    (tmp_path / "touched").touch()
    assert (tmp_path / "fresh").stat().st_mode == (tmp_path / "touched").stat().st_mode


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "Is a directory"),
        ("missing/out.jsonl", "No such file or directory"),
        ("cases.jsonl/out.jsonl", "Not a directory"),
        ("n" * 300, "File name too long"),
        ("out\0.jsonl", ""),
    ],
)
def test_a_place_that_cannot_be_written_is_named_before_anything_is_done(cases, server, tmp_path, name, said):
    if "\0" in name:
        with pytest.raises((InputError, ValueError)):
            Output(f"{tmp_path}/{name}")
        return
    out = f"{tmp_path}/{name}"
    one_sentence(caps("grade", cases, "--no-journal", "--quiet", "-o", out), said)
    problems = tmp_path / "problems.jsonl"
    problems.write_text('{"problem": "?"}\n')
    done = caps("sample", problems, "-n 2 --base-url", server.url, "--model stub --no-journal -o", out)
    one_sentence(done, said)
    assert server.requests == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cases.jsonl", "problems.jsonl"]


def test_a_file_name_with_control_characters_is_written_and_printed_safely(grade, tmp_path):
    out = tmp_path / "a\nb\x1b[31m\u202e.jsonl"
    assert grade(out).returncode == 0
    assert len(labelled(out.read_text())) == 2
    one_sentence(grade(tmp_path / "no\x1b[31m" / "x"), "No such file")


def test_a_name_that_is_not_utf_8_is_refused_in_a_sentence(tmp_path):
    done = shell_line("\"$CAPS\" grade $'caf\\xe9.jsonl' -o x", tmp_path)
    one_sentence(done, "is not UTF-8")


def test_a_read_only_file_is_not_replaced(tmp_path):
    if os.geteuid() == 0:
        pytest.skip("for root nothing is read-only")
    out = tmp_path / "out"
    out.write_text("old")
    out.chmod(0o444)
    with pytest.raises(InputError, match="Permission denied"):
        write_file(out, b"new")
    assert out.read_text() == "old"


@pytest.mark.parametrize("command", ["grade", "import", "export", "sample"])
def test_the_file_that_is_read_is_never_written_over(command, cases, tmp_path):
    (tmp_path / "link").symlink_to(cases)
    (tmp_path / "hard").hardlink_to(cases)
    before = cases.read_bytes()
    more = {
        "export": ("--format", "text"),
        "sample": ("--base-url", "http://127.0.0.1:9", "--model", "m"),
    }.get(command, ())
    for name in (cases, tmp_path / "link", tmp_path / "hard"):
        one_sentence(caps(command, cases, "-o", name, *more), "is the file that is read")
    if command == "grade":
        done = shell_line('"$CAPS" grade - -o cases.jsonl < cases.jsonl', tmp_path)
        one_sentence(done, "is the file that is read")
        with cases.open("a") as same:
            one_sentence(caps("grade", cases, stdout=same), "is the file that is read")
    assert cases.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cases.jsonl", "hard", "link"]


def test_a_journal_is_never_replaced_by_an_output(cases, tmp_path):
    journal = tmp_path / "journal.sqlite"
    assert caps("grade", cases, "--journal", journal, "--quiet").returncode == 0
    before = journal.read_bytes()
    one_sentence(caps("grade", cases, "--journal", journal, "--quiet", "-o", journal), "is a database")
    one_sentence(caps("simulate", "--problems", 3, "--html", journal), "is a database")
    assert journal.read_bytes() == before


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_a_journal_is_neither_a_pipe_nor_a_device(cases, tmp_path, kind):
    path = tmp_path / "j"
    if kind == "fifo":
        os.mkfifo(path)
    else:
        made_node(path, stat.S_IFCHR, 1, 3)
    before = path.stat()
    for words in ("journal stats", "journal redact --all --yes", "journal prune --all --yes"):
        one_sentence(caps(*words.split(), "--journal", path), "is a device or a pipe")
    one_sentence(caps("grade", cases, "--journal", path), "is a device or a pipe")
    assert (path.stat().st_mode, path.stat().st_ino) == (before.st_mode, before.st_ino)


@pytest.mark.parametrize("name", ["run.json", "selections.jsonl", "rulings.jsonl"])
def test_a_pipe_or_a_deep_text_in_the_folder_of_a_run_is_a_sentence_and_no_wait(
    select, cases, tmp_path, name
):
    run = tmp_path / "run"
    assert select(cases, "--out", run).returncode == 0
    (run / name).write_text("[" * 100_000 + "\n")
    one_sentence(caps("export", run, "--format", "preferences"), run)
    (run / name).unlink()
    os.mkfifo(run / name)
    one_sentence(caps("report", run), run)
    one_sentence(select(cases, "--out", run), run)
    assert stat.S_ISFIFO((run / name).stat().st_mode)


def test_what_was_there_stays_until_the_new_file_is_whole(tmp_path):
    out = tmp_path / "out.jsonl"
    out.write_text("old")
    with Output(out) as output:
        output.write(b"half of it")
        assert out.read_text() == "old"
    assert tree(tmp_path) == {Path("out.jsonl"): b"old"}


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz"])
def test_two_writers_of_one_file_leave_one_whole_file(tmp_path, name):
    with Output(tmp_path / name) as one, Output(tmp_path / name) as two:
        for _ in range(100):
            one.write(b"1" * 99 + b"\n")
            two.write(b"2" * 99 + b"\n")
        one.finish()
        two.finish()
    (only,) = tmp_path.iterdir()
    data = gzip.decompress(only.read_bytes()) if name.endswith(".gz") else only.read_bytes()
    assert data in ((b"1" * 99 + b"\n") * 100, (b"2" * 99 + b"\n") * 100)


def test_a_part_that_is_kept_is_taken_over_only_from_a_run_that_has_ended(tmp_path):
    out = tmp_path / "drawn.jsonl"
    with Output(out, keep=True) as first:
        first.write(b'{"id":"a"}\n')
        with pytest.raises(InputError, match="another process is writing it"):
            Output(out, keep=True)
        assert (tmp_path / "drawn.jsonl.partial").read_bytes() == b'{"id":"a"}\n'
    with Output(out, keep=True) as again:
        again.finish()
    assert tree(tmp_path) == {Path("drawn.jsonl"): b""}
    (tmp_path / "drawn.jsonl.partial").write_text("my own notes")
    with pytest.raises(InputError, match="caps did not write"):
        Output(out, keep=True)
    (tmp_path / "drawn.jsonl.partial").unlink()
    (tmp_path / "precious").write_text("keep me")
    (tmp_path / "drawn.jsonl.partial").symlink_to(tmp_path / "precious")
    with pytest.raises(InputError):
        Output(out, keep=True)
    assert (tmp_path / "precious").read_text() == "keep me"


def test_a_file_that_grows_is_never_a_fifo_that_nobody_reads(tmp_path):
    os.mkfifo(tmp_path / "selections.jsonl")
    with pytest.raises((InputError, OSError)):
        append_file(tmp_path / "selections.jsonl")


# The folder of a run


def test_the_same_run_goes_on_in_its_folder_with_more_cases_too(select, cases, tmp_path):
    run = tmp_path / "run"
    assert select(cases, "--out", run, "--limit", 1).returncode == 0
    assert select(cases, "--out", run).returncode == 0
    assert len((run / "selections.jsonl").read_text().splitlines()) == 2
    with cases.open("a") as file:
        file.write(case_line("one more", spread(2)) + "\n")
    assert select(cases, "--out", run).returncode == 0
    assert len((run / "selections.jsonl").read_text().splitlines()) == 3
    shutil.copy(cases, tmp_path / "copy.jsonl")
    (run / "notes.txt").write_text("my own")
    assert select(tmp_path / "copy.jsonl", "--out", run).returncode == 0
    assert (run / "notes.txt").read_text() == "my own"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--seed", 7), "'seed'"), (("--strategy", "caps"), "'strategy'"), (("--model", "other"), "'model'"),
        (("--max-tokens", 99), "'max_tokens'"), (("--view", "partial=math-window"), "'views'"),
        (("--limit", 1), "'limit'"), (("--extra", "top_k=3"), "'extra'"), ((), "'cases'"),
    ],
    ids=lambda value: str(value)[:30],
)  # fmt: skip
def test_another_run_is_refused_before_anything_is_asked_and_left_as_it_is(
    select, server, cases, tmp_path, words, said
):
    run = tmp_path / "run"
    assert select(cases, "--out", run).returncode == 0
    before, asked = tree(run), server.requests
    if not words:
        write_cases(cases, 2, n=3)
    done = select(cases, "--out", run, *words)
    one_sentence(done, run, "another", said, "--force")
    assert tree(run) == before
    assert server.requests <= asked + 1  # the one call that tries an endpoint, at most
    assert select(cases, "--out", run, *words, "--force").returncode == 0
    assert tree(run) != before


def test_other_cases_through_a_pipe_are_refused_by_their_first(server, tmp_path, cases):
    where = ("--base-url", server.url, "--model stub --no-journal --quiet --out", tmp_path / "run")
    assert caps("select", "-", *where, stdin=cases.read_text()).returncode == 0
    assert caps("select", "-", *where, stdin=cases.read_text()).returncode == 0
    before = tree(tmp_path / "run")
    done = caps("select", "-", *where, stdin=case_line("x", spread(2)) + "\n")
    one_sentence(done, "first case is", "--force")
    assert tree(tmp_path / "run") == before


@pytest.mark.parametrize("name", ["notes.txt", "selections.jsonl", "run.json", "deep/er.txt", ".hidden"])
@pytest.mark.parametrize("command", ["select", "bench"])
def test_a_folder_with_files_of_others_is_refused_and_force_spares_them(
    server, cases, tmp_path, command, name
):
    out = tmp_path / "mine"
    (out / name).parent.mkdir(parents=True)
    (out / name).write_text('{"my": "own"}')
    (tmp_path / "study.toml").write_text(STUDY)
    words = {
        "select": ("select", cases, "--base-url", server.url, "--model", "stub", "--no-journal", "--quiet"),
        "bench": ("bench", tmp_path / "study.toml", "--simulate", "--quiet"),
    }[command]
    done = caps(*words, "--out", out)
    assert done.returncode == 2
    assert tree(out) == {Path(name): b'{"my": "own"}'}
    assert server.requests == 0
    done = caps(*words, "--out", out, "--force")
    assert done.returncode == 0, done.stderr
    if name not in ("selections.jsonl", "run.json"):
        assert (out / name).read_text() == '{"my": "own"}'


def test_the_journal_and_redirected_output_of_the_run_itself_may_lie_in_its_folder(server, cases, tmp_path):
    line = f'mkdir run && "$CAPS" select cases.jsonl --base-url {server.url} --model stub --journal run/j.sqlite --out run > run/out.jsonl 2> run/log'
    done = shell_line(f"{line}; cat run/log >&2", tmp_path)
    assert (tmp_path / "run" / "run.json").is_file(), done.stderr
    assert len((tmp_path / "run" / "out.jsonl").read_text().splitlines()) == 2


STUDY = """
title = "A study"
seeds = [1]
reference = "V1"
suites = [{ name = "made up", n = 4, simulated = { problems = 3, kind = "math" } }]
strategies = [{ name = "V1", use = "v1-infer" }]
[[tables]]
name = "all"
title = "Everything"
metrics = ["pass_at_1"]
"""


def test_a_study_goes_on_in_its_folder_and_another_is_refused(tmp_path):
    for name in ("study", "other"):
        (tmp_path / f"{name}.toml").write_text(STUDY)
    out = tmp_path / "out"
    for _ in range(2):
        assert caps("bench", tmp_path / "study.toml", "--simulate", "--quiet", "--out", out).returncode == 0
    before = tree(out)
    one_sentence(caps("bench", tmp_path / "other.toml", "--simulate", "--out", out), "'study'", "--force")
    assert tree(out) == before
    forced = caps("bench", tmp_path / "other.toml", "--simulate", "--quiet", "--out", out, "--force")
    assert forced.returncode == 0


def test_a_file_of_ours_by_name_alone_is_not_cut(tmp_path):
    """A torn last line is cut off results; a user's file of such a name must not be."""
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "out" / "results").mkdir(parents=True)
    own = tmp_path / "out" / "results" / "made-up.jsonl"
    own.write_text("my own\nwithout an end")
    assert caps("bench", tmp_path / "study.toml", "--simulate", "--out", tmp_path / "out").returncode == 2
    assert own.read_text() == "my own\nwithout an end"


def test_two_processes_cannot_write_one_folder(select, server, cases, tmp_path):
    run = tmp_path / "run"
    assert select(cases, "--out", run).returncode == 0
    before = tree(run)
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "bench").mkdir()
    with FolderLock(run), FolderLock(tmp_path / "bench"):
        one_sentence(select(cases, "--out", run), "another process")
        one_sentence(select(cases, "--out", run, "--force"), "another process")
        done = caps("bench", tmp_path / "study.toml", "--simulate", "--out", tmp_path / "bench")
        one_sentence(done, "another process")
    assert tree(run) == before
    assert select(cases, "--out", run).returncode == 0


def test_a_lock_ends_with_its_process(server, cases, tmp_path):
    words = ("select", cases, "--base-url", server.url, "--model stub --no-journal --out", tmp_path / "run")
    process = start(*words)
    wait_until((tmp_path / "run" / "run.json").exists)
    process.kill()
    process.communicate()
    done = caps(*words)
    assert done.returncode == 0, done.stderr


# The parts of a page


def page_of(tmp_path, count, monkeypatch):
    monkeypatch.setattr(pages, "INLINE_LIMIT", 10)
    monkeypatch.setattr(pages, "PART_SIZE", 5)
    return write_page(Page("A page", []), [f'"{i} receipt"' for i in range(count)], tmp_path / "page.html")


@pytest.mark.parametrize("name", ["notes.txt", "0.js", "image.png", "0.js/deep.js"])
def test_a_folder_beside_a_page_that_caps_did_not_make_is_never_touched(tmp_path, monkeypatch, name):
    own = tmp_path / "page_files" / name
    own.parent.mkdir(parents=True)
    own.write_text("window.mine = 1")
    (tmp_path / "page.html").write_text("the old page")
    with pytest.raises(InputError, match="not written by caps report"):
        page_of(tmp_path, 9, monkeypatch)
    assert tree(tmp_path) == {
        Path("page_files") / name: b"window.mine = 1",
        Path("page.html"): b"the old page",
    }
    page_of(tmp_path, 0, monkeypatch)  # a small page needs no folder, and leaves this one alone
    assert own.read_text() == "window.mine = 1"


def test_a_folder_of_an_earlier_page_is_replaced_and_one_with_something_added_is_not(tmp_path, monkeypatch):
    first = page_of(tmp_path, 9, monkeypatch)
    second = page_of(tmp_path, 4, monkeypatch)
    assert len(second) < len(first)
    assert {path.name for path in (tmp_path / "page_files").iterdir()} == {path.name for path in second[1:]}
    (tmp_path / "page_files" / "mine.txt").write_text("my own")
    before = tree(tmp_path)
    with pytest.raises(InputError, match="not written by caps report"):
        page_of(tmp_path, 9, monkeypatch)
    assert tree(tmp_path) == before


def test_a_link_in_the_place_of_the_folder_is_not_followed(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "0.js").write_text("capsPart(0)")
    (tmp_path / "page_files").symlink_to("elsewhere")
    with pytest.raises(InputError):
        page_of(tmp_path, 9, monkeypatch)
    assert (tmp_path / "elsewhere" / "0.js").read_text() == "capsPart(0)"


def test_a_page_that_cannot_be_finished_leaves_the_old_page_with_its_parts(tmp_path, monkeypatch):
    page_of(tmp_path, 9, monkeypatch)
    before = tree(tmp_path)

    def broken():
        yield from (f'"{i} other"' for i in range(20))
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_page(Page("A page", []), broken(), tmp_path / "page.html")
    assert tree(tmp_path) == before


# A full disk


@contextmanager
def full_disk(place):
    """A folder on a disk without any room, or a skip where none can be mounted."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(place)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def fill(place):
    with (place / "filler").open("wb") as file, suppress(OSError):
        while True:
            os.write(file.fileno(), b"x" * 4096)


@pytest.mark.slow
def test_a_full_disk_is_one_sentence_for_every_command_that_writes(server, cases, tmp_path):
    where = ("--base-url", server.url, "--model", "stub", "--quiet")
    problems = tmp_path / "problems.jsonl"
    problems.write_text('{"id": "a", "problem": "?"}\n')
    (tmp_path / "study.toml").write_text(STUDY)
    assert caps("select", cases, *where, "--no-journal", "--out", tmp_path / "run").returncode == 0
    with full_disk(tmp_path / "disk") as disk:
        (disk / "folder").mkdir()
        fill(disk)
        commands = [
            ("grade", cases, "--no-journal", "-o", disk / "out.jsonl"),
            ("grade", cases, "--no-journal", "-o", disk / "out.jsonl.gz"),
            ("import", cases, "-o", disk / "out.jsonl"),
            ("export", cases, "--format", "text", "-o", disk / "out.txt"),
            ("export", tmp_path / "run", "--format", "preferences", "-o", disk / "out.txt"),
            ("sample", problems, "-n", 2, *where, "--no-journal", "-o", disk / "out.jsonl"),
            ("select", cases, *where, "--no-journal", "--out", disk / "run"),
            ("select", cases, *where, "--no-journal", "--out", disk / "folder"),
            ("select", cases, *where, "--journal", disk / "j"),
            ("solve", "2 + 2?", "-n", 2, *where, "--journal", disk / "j"),
            ("report", tmp_path / "run", "-o", disk / "page.html"),
            ("bench", tmp_path / "study.toml", "--simulate", "--out", disk / "bench"),
            ("diagnose", "--simulate", 80, "--contests", 5, "--quiet", "--save", disk / "judge.json"),
            ("diagnose", "--simulate", 80, "--contests", 5, "--quiet", "--html", disk / "page.html"),
            ("simulate", "--problems", 3, "--plots", disk / "plots"),
            ("simulate", "--problems", 3, "--html", disk / "page.html"),
            (
                "select",
                cases,
                *where,
                "--engine batch --batch-dir",
                disk / "batch",
                "--journal",
                tmp_path / "j",
            ),
        ]
        for words in commands:
            done = caps(*words)
            assert done.returncode == 2, (words, done.stderr)
            assert "Traceback" not in done.stderr, words
            last = done.stderr.strip().splitlines()[-1]
            assert last.startswith("caps: "), (words, done.stderr)
            assert str(disk) in last, (words, last)
        ours = {"filler", "run.json", "selections.jsonl", "rulings.jsonl"}
        left = {path.name for path in disk.rglob("*") if path.is_file()} - ours
        assert all(name.startswith(("j", "out.jsonl.partial")) for name in left), left


def test_a_batch_that_goes_on_with_a_full_disk_ends_in_a_sentence(tmp_path):
    cases = write_cases(tmp_path / "cases.jsonl", 1, n=6)
    with full_disk(tmp_path / "disk") as disk:
        words = (
            "select", cases, "--engine", "batch", "--batch-dir", disk / "b", "--model", "stub", "--strategy", "caps",
            "--journal", tmp_path / "j", "--hard-evidence", "off", "--quiet",
        )  # fmt: skip
        assert caps(*words).returncode == 4
        answer_files(disk / "b")
        fill(disk)
        one_sentence(caps(*words), disk)


def test_standard_output_on_a_full_disk_is_one_sentence(server, cases, tmp_path):
    where, run, journal = ("--base-url", server.url, "--model", "stub"), tmp_path / "run", tmp_path / "j"
    assert caps("select", cases, *where, "--journal", journal, "--out", run).returncode == 0
    for words in (
        ("select", cases, *where, "--no-journal"),
        ("solve", "2 + 2?", "-n", "2", *where, "--no-journal"),
        ("replay", run),
        ("report", run, "-o", tmp_path / "page.html"),
        ("plan", "--pool", "8"),
        ("journal", "stats", "--journal", journal, "--json"),
        ("grade", cases, "--no-journal"),
    ):
        with Path("/dev/full").open("wb") as full:
            done = caps(*words, stdout=full)
        assert done.returncode == 2, (words, done.stderr)
        assert "Traceback" not in done.stderr
        assert "Exception ignored" not in done.stderr
        assert done.stderr.strip().splitlines()[-1].endswith("No space left on device")
