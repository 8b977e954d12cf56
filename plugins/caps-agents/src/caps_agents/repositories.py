"""Repositories that cases name: found in one folder, copied once, and never changed.

A case may name a folder, a git repository at a commit, or an archive (.tar, .tar.gz, .zip) by its path inside
the folder that the user allows (`CAPS_REPOSITORIES`). A path that leaves that folder is refused, so that a
case file cannot show other files of this machine to a judge.
"""

import os
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from io import BytesIO
from pathlib import Path

from caps import Case, InputError, UserError

#: Fields of a case. `DIGEST` is computed, never read from a file.
FIELDS = ("repository", "commit", "test_command", "test_seconds", "environment")
DIGEST = "repository_digest"
MAX_BYTES = 2 << 30
MAX_FILES = 200_000
_COMMIT_CHARS = frozenset("0123456789abcdef")


def locate(root: str, name: object, field: str = "repository") -> Path:
    """The path of a named repository; `InputError` if it is not inside the folder of repositories."""
    if not isinstance(name, str) or not name.strip() or "\0" in name:
        raise InputError(f"{field}: must be a path inside the folder of CAPS_REPOSITORIES, not {name!r:.80}")
    top = Path(root).resolve()
    path = (top / name).resolve()
    if not path.is_relative_to(top):
        raise InputError(f"{field}: {name!r:.80} is outside {root}: name a path inside it")
    if not path.exists():
        raise InputError(f"{field}: {name!r:.80} does not exist in {root}")
    return path


def commit_of(case: Case) -> str:
    """The commit that a case names; empty for the files as they are."""
    commit = case.extra.get("commit") or ""
    if not isinstance(commit, str) or not 0 <= len(commit) <= 64 or set(commit.lower()) - _COMMIT_CHARS:
        raise InputError(f"commit: must be the hexadecimal name of a commit, not {commit!r:.80}")
    return commit


def digest_of(root: str, case: Case) -> str:
    """A digest of the repository of a case, which is part of the key of its findings."""
    path, commit = locate(root, case.extra.get("repository")), commit_of(case)
    if commit:
        return f"commit {commit}"
    digest = sha256()
    if path.is_file():
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    else:
        for relative, place in _files(path):
            digest.update(f"{relative}\0{os.access(place, os.X_OK)}\0".encode("utf-8", "surrogatepass"))
            digest.update(os.fsencode(place.readlink()) if place.is_symlink() else _digest(place))
    return digest.hexdigest()[:32]


def copy_repository(root: str, case: Case, target: Path) -> int:
    """Copy the files of a repository to a new folder, readable by all; returns their size in bytes."""
    path, commit = locate(root, case.extra.get("repository")), commit_of(case)
    target.mkdir(parents=True)
    if commit:
        _copy_commit(path, commit, target)
    elif path.is_file():
        _unpack(path, target)
    else:
        _copy_folder(path, target)
    return _open_to_all(target)


def _files(root: Path) -> Iterator[tuple[str, Path]]:
    """The files and links of a folder in a fixed order, without what belongs to git."""
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        links = [name for name in folders if (here / name).is_symlink()]
        folders[:] = sorted(name for name in folders if name != ".git" and name not in links)
        for name in sorted((*names, *links)):
            place = here / name
            if name != ".git" and (place.is_symlink() or place.is_file()):
                yield str(place.relative_to(root)), place


def _digest(place: Path) -> bytes:
    return sha256(place.read_bytes()).digest()


def _copy_folder(path: Path, target: Path) -> None:
    total = 0
    for count, (relative, place) in enumerate(_files(path)):
        total += place.lstat().st_size
        if total > MAX_BYTES or count > MAX_FILES:
            raise _too_large(path)
        goal = target / relative
        goal.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(place, goal, follow_symlinks=False)


def _copy_commit(path: Path, commit: str, target: Path) -> None:
    command = ["git", "-c", "safe.directory=*", "-C", str(path), "archive", "--format=tar", commit]
    try:
        done = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)  # noqa: S603
    except FileNotFoundError:
        raise UserError("git is not installed: patches are applied by git; install it") from None
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise InputError(f"commit: {commit!r} of {path.name!r} cannot be read ({reason[:200]})")
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(target, filter="data")


def _unpack(path: Path, target: Path) -> None:
    try:
        if tarfile.is_tarfile(path):
            with tarfile.open(path) as archive:
                members = archive.getmembers()
                if sum(member.size for member in members) > MAX_BYTES or len(members) > MAX_FILES:
                    raise _too_large(path)
                archive.extractall(target, members, filter="data")
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as packed:
                infos = packed.infolist()
                if sum(info.file_size for info in infos) > MAX_BYTES or len(infos) > MAX_FILES:
                    raise _too_large(path)
                packed.extractall(target)  # noqa: S202 - it keeps members inside the folder
        else:
            raise InputError(f"repository: {path.name!r} is neither a folder nor a .tar or .zip archive")
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise InputError(f"repository: {path.name!r} cannot be unpacked ({error})") from None
    only = list(target.iterdir())
    if len(only) == 1 and only[0].is_dir() and not only[0].is_symlink():  # the usual single folder
        inner = only[0].rename(target.with_name(f"{target.name}.inner"))
        target.rmdir()
        inner.rename(target)


def _open_to_all(root: Path) -> int:
    """Make a copy readable for the user of a sandbox; returns its size."""
    root.chmod(0o755)
    total = 0
    for folder, folders, names in os.walk(root):
        for name in (*folders, *names):
            place = Path(folder, name)
            if not place.is_symlink():
                place.chmod(0o755 if place.is_dir() or os.access(place, os.X_OK) else 0o644)
                total += 0 if place.is_dir() else place.stat().st_size
    return total


def _too_large(path: Path) -> InputError:
    return InputError(f"repository: {path.name!r} has more than {MAX_FILES:,} files or {MAX_BYTES >> 30} GiB")
