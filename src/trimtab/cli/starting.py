"""The command `init`: a small project for the daily job, in an empty folder."""

from __future__ import annotations

import shlex
from pathlib import Path

from trimtab.cli.options_from import options_from
from trimtab.cli.printing import say
from trimtab.errors import StoreError
from trimtab.tables.files import require_writable_folder

_FILES = Path(__file__).parents[1] / "starter"
_NOT_OURS = ".txt"  # after the names of Python files, which are not part of the package
_PLACE = "FOLDER"  # stands for the folder, in files of schedule


@options_from(arguments="folder")
def init(folder: str) -> None:
    """Write a small project for the daily job into an empty folder.

    It has settings, scripts for the job and for a backtest, and schedules. It runs on the gift
    shop's data unchanged.

    Options:
        folder: Empty or new folder for the project.
    """
    place = Path(folder)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise StoreError(f"{folder}: must be an empty or a new folder; name another one")
    require_writable_folder(place)
    try:
        _write_files(place)
    except OSError as error:
        raise StoreError(
            f"cannot write to {folder}: {error.strerror}; use another folder"
        ) from error
    say(f"next: cd {shlex.quote(folder)}, and read README.md")


def _write_files(folder: Path) -> None:
    for source in sorted(path for path in _FILES.rglob("*") if path.is_file()):
        place = folder / str(source.relative_to(_FILES)).removesuffix(_NOT_OURS)
        place.parent.mkdir(parents=True, exist_ok=True)
        text = source.read_text()
        if place.parent.name == "schedule":
            text = text.replace(_PLACE, shlex.quote(str(folder.absolute())))
        place.write_text(text)
        if place.suffix == ".sh":
            place.chmod(0o755)
        say(f"wrote {place}")
