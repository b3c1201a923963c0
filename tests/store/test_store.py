"""The store: readers find whole versions only, even when writers are killed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import trimtab as tt
from stores import ABOUT, BIAS, publish, write
from trimtab.errors import BusyError, RefusedError, StoreError
from trimtab.store import Store
from trimtab.store.writer import open_writer
from trimtab.tables.folders import POINTER

HELPERS = Path(__file__).parents[1] / "helpers"


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "store")


def entries(store: Store) -> set[str]:
    return {str(path.relative_to(store.folder)) for path in store.folder.rglob("*")}


def test_versions_count_up_and_the_last_are_kept(store):
    assert store.history() == []
    assert [publish(store) for _ in range(5)] == [1, 2, 3, 4, 5]
    assert [version.number for version in store.history()] == [3, 4, 5]
    assert store.current().number == 5
    assert sorted(path.name for path in (store.folder / "versions").iterdir()) == [
        "000003-2026-03-01", "000004-2026-03-01", "000005-2026-03-01",
    ]  # fmt: skip
    before = {path: path.stat().st_mtime_ns for path in store.folder.rglob("*")}
    version = store.current()
    assert str(version) == f"Version(5 of 2026-03-01 in {version.folder})"
    assert (store.load().bias == BIAS.bias).all()
    with pytest.raises(StoreError, match=r"/store\b"):
        BIAS.save(store.folder)
    # Reading writes nothing.
    assert {path: path.stat().st_mtime_ns for path in store.folder.rglob("*")} == before


def test_leftovers_of_killed_writers_are_removed(store):
    publish(store)
    clean = entries(store)
    (store.folder / ".staging-abc" / "bias").mkdir(parents=True)
    (store.folder / ".staging-abc" / "bias" / "header.json").write_text("{")
    shutil.copytree(
        store.folder / "versions" / "000001-2026-03-01",
        store.folder / "versions" / "000002-2026-03-02",
    )
    (store.folder / f".{POINTER}.zzz.part").write_text("{")
    assert store.current().number == 1
    with open_writer(store):
        assert entries(store) == {*clean, ".writer.lock.holder"}
    assert publish(store) == 2


def test_other_files_are_left_alone(store):
    """The folder was there before, with versions of something else in it."""
    other = store.folder / "versions" / "v1.0"
    other.mkdir(parents=True)
    (other / "release.tar").write_text("precious")
    (store.folder / "notes.txt").write_text("mine")
    publish(store)
    publish(store, keep=1)
    assert (other / "release.tar").read_text() == "precious"
    assert (store.folder / "notes.txt").read_text() == "mine"
    assert [version.number for version in store.history()] == [2]


def test_a_lost_pointer_loses_no_versions(store):
    publish(store)
    publish(store)
    pointer = (store.folder / POINTER).read_bytes()
    (store.folder / POINTER).unlink()
    with pytest.raises(StoreError, match=r"current\.json .* 2 versions"):
        publish(store)
    (store.folder / POINTER).write_bytes(pointer)
    assert (store.load().bias == BIAS.bias).all()
    shutil.rmtree(store.version(2).folder)
    (store.folder / POINTER).unlink()  # as if the first writer had been killed just before
    assert publish(store) == 1
    shutil.rmtree(store.current().folder)
    with pytest.raises(StoreError, match=r"000001-2026-03-01/manifest\.json: "):
        store.load()
    with pytest.raises(StoreError, match=r"current\.json: not a folder"):
        Store(store.folder / POINTER).current()


def test_a_foreign_file_of_the_same_name_is_not_replaced(store):
    store.folder.mkdir()
    (store.folder / POINTER).write_text('{"mine": 1}')
    with pytest.raises(StoreError, match=r"current\.json: not .* store"):
        publish(store)
    assert (store.folder / POINTER).read_text() == '{"mine": 1}'
    BIAS.save(store.folder)  # a saved bias beside it can still be loaded
    assert (tt.ItemBias.load(store.folder).bias == BIAS.bias).all()


def test_a_rollback_goes_to_the_version_replaced(store):
    for _ in range(3):
        publish(store, keep=9)
    assert store.rollback().number == 2
    assert publish(store, keep=9) == 4  # made while 2 was served
    assert store.rollback().number == 2
    assert store.rollback().number == 1


def test_the_version_rolled_back_to_is_kept(store):
    publish(store, keep=2)
    publish(store, keep=2)
    store.rollback()
    assert publish(store, keep=2) == 3
    assert [version.number for version in store.history()] == [1, 3]
    assert store.rollback().number == 1


def test_a_day_that_is_published_again_leaves_earlier_days(store):
    """`keep` counts days; of one day, the last version and the one that it replaced stay."""
    for day in ("2026-03-01", "2026-03-02", *["2026-03-03"] * 5):
        publish(store, keep=3, as_of=day)
    kept = [(version.number, version.as_of[-2:]) for version in store.history()]
    assert kept == [(1, "01"), (2, "02"), (6, "03"), (7, "03")]
    assert [store.rollback().number for _ in range(3)] == [6, 2, 1]
    with pytest.raises(StoreError, match="no earlier version to roll back to from version 1"):
        store.rollback()
    # Copies of earlier days go before days.
    for day, keep, left in (("2026-03-02", 3, [1, 7, 8]), ("2026-03-04", 1, [9])):
        publish(store, keep=keep, as_of=day)
        assert [version.number for version in store.history()] == left


def test_a_rollback_works_beside_writers(store):
    """Writers that clean up must not remove the file that a rollback is writing."""
    for _ in range(3):
        publish(store)
    code = (
        "import sys; from trimtab.store import Store\n"
        "from trimtab.store.writer import open_writer\n"
        "for _ in range(60):\n"
        "    with open_writer(Store(sys.argv[1])): pass"
    )
    cleaner = subprocess.Popen([sys.executable, "-c", code, str(store.folder)])
    numbers = set()
    while cleaner.poll() is None:
        numbers.add(store.rollback(1 if store.current().number == 2 else 2).number)
    assert cleaner.returncode == 0
    assert numbers == {1, 2}


@pytest.mark.parametrize("moment", ["filling", "renaming", "switching"])
def test_a_writer_that_fails_leaves_everything_as_it_was(store, moment, monkeypatch):
    publish(store)
    before = store.current()
    if moment == "filling":

        def fill(folder: Path) -> None:
            write(folder)
            raise OSError(28, "No space left on device")
    else:
        fill = write
        target = Path.rename if moment == "renaming" else Path.replace
        calls = []

        def fail(path: Path, other: Path) -> Path:
            calls.append(path)
            is_it = POINTER in other.name if moment == "switching" else True
            if is_it:
                raise OSError(28, "No space left on device")
            return target(path, other)

        monkeypatch.setattr(Path, target.__name__, fail)
    with (
        open_writer(store) as writer,
        pytest.raises(StoreError, match=r"/store\b.*No space left on device"),
    ):
        writer.publish(fill, ABOUT, 3)
    monkeypatch.undo()
    assert store.current() == before
    before.check()
    assert publish(store) == 2
    assert len(list((store.folder / "versions").iterdir())) == 2


def test_only_one_process_writes_at_a_time(store):
    code = (
        "import sys, time; from trimtab.store import Store\n"
        "from trimtab.store.writer import open_writer\n"
        "with open_writer(Store(sys.argv[1])):\n"
        "    print('in', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(store.folder)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout.readline() == "in\n"
        with pytest.raises(BusyError, match=rf"{store.folder}: .*process {other.pid} since 20"):
            publish(store)
        assert not store.exists()
    finally:
        other.kill()
        other.wait()
        other.stdout.close()
    assert publish(store) == 1  # the killed process no longer holds the lock


def test_a_lock_names_only_the_process_that_holds_it(store):
    """A killed process leaves its name behind; another user's file cannot be written to."""
    with open_writer(store):
        assert publish(Store(store.folder.parent / "other")) == 1  # has a lock of its own
    holder = store.folder / ".writer.lock.holder"
    assert not holder.exists()
    holder.write_text("process 1 since 2020-01-01")
    holder.chmod(0o444)
    with (
        open_writer(store),
        pytest.raises(BusyError, match=rf"process {os.getpid()} since 20"),
    ):
        publish(store)


def test_lock_files_follow_the_umask_which_stays_what_it_is(store, monkeypatch):
    """Changed even for a moment, it would also be that of files which other threads create."""
    before, asked = os.umask(0o027), []
    try:
        with monkeypatch.context() as patched:
            patched.setattr(os, "umask", asked.append)
            publish(store)
    finally:
        os.umask(before)
    assert asked == []
    modes = {path.name: path.stat().st_mode & 0o777 for path in store.folder.glob(".*.lock")}
    assert modes == {".writer.lock": 0o640, ".switch.lock": 0o640}


def test_a_rollback_during_a_refresh_wins(store):
    publish(store)
    publish(store)
    with open_writer(store) as writer:
        assert store.rollback().number == 1  # without waiting for the refresh
        with pytest.raises(RefusedError, match=r"version 1 .*version 2"):
            writer.publish(write, ABOUT, 3)
    assert store.current().number == 1
    assert publish(store) == 3


def test_a_damaged_version_is_refused(store):
    publish(store)
    publish(store)
    folder = store.current().folder
    for name in ("manifest.json", "bias/header.json", "bias/*.parquet"):
        (path,) = folder.glob(name)
        whole = path.read_bytes()
        for spoil in (b"", b"damaged"):
            path.write_bytes(whole[:-9] + spoil)
            with pytest.raises(StoreError, match=rf"{path.name}: damaged"):
                store.load()
            assert store.rollback(1).number == 1
            assert (store.load().bias == BIAS.bias).all()
            with pytest.raises(StoreError, match=rf"{path.name}: damaged"):
                store.rollback(2)
            path.write_bytes(whole)
            assert store.rollback(2).number == 2


def test_a_missing_version_does_not_hide_the_others(store):
    for _ in range(3):
        publish(store)
    shutil.rmtree(store.version(2).folder)
    assert [version.number for version in store.history()] == [1, 3]
    assert store.numbers() == [1, 2, 3]
    assert store.rollback().number == 1  # past the one that is missing


def test_readers_keep_up_with_writers_that_keep_one(store):
    """A version may be removed before it is read; the reader then reads the next one."""
    publish(store, keep=1)
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[2]); import stores\n"
        "from trimtab.store.versions import Store\n"
        "for _ in range(25): stores.publish(Store(sys.argv[1]), keep=1); time.sleep(0.02)"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, str(store.folder), HELPERS])
    seen = set()
    while writer.poll() is None:
        assert (store.load().bias == BIAS.bias).all()
        seen.add(store.current().number)
    assert writer.returncode == 0
    assert store.current().number == 26
    assert len(seen) > 1


def test_the_manifest_holds_the_given_entries(store):
    with open_writer(store) as writer:
        assert [writer.publish(write, {**ABOUT, "note": 'é "quoted"'}, 3) for _ in "ab"] == [1, 2]
    manifest = json.loads((store.current().folder / "manifest.json").read_bytes())
    assert manifest["note"] == 'é "quoted"'
    assert set(manifest["files"]) == {
        f"bias/{path.name}" for path in (store.current().folder / "bias").iterdir()
    }


# Full and read-only disks, mounted in a separate namespace: no root rights are needed, and nothing
# stays mounted.

DISK = """
import os, subprocess, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from shops import AS_OF, Shop, run_in_process
import trimtab as tt
from trimtab.store import Store

QUICK = ("--set", "method=ascent")
disk = Path(sys.argv[1])
shop = Shop(Path(sys.argv[3]), None)

def mount(options):
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)], check=True)

def refresh():
    command = shop.arguments("--as-of", AS_OF, "--finish-lists", *QUICK)
    command[command.index(shop.store)] = disk / "store"
    return run_in_process(*command)

def expect(done, status, words):
    assert done.returncode == status, (done.returncode, done.stderr)
    lines = [line for line in done.stderr.splitlines() if "compiling kernels" not in line]
    assert len(lines) == 1 and words in lines[0], done.stderr

mount("size=1200k")
first = refresh()
assert first.returncode == 0, first.stderr
store = Store(disk / "store")
served = store.load().bias.tobytes()
for size in (900, 990, 998, 1000):  # the disk fills up at a different moment each time
    filler = disk / "filler"
    free = os.statvfs(disk)
    filler.write_bytes(b"x" * int(free.f_bavail * free.f_frsize * size / 1000))
    expect(refresh(), 2, "No space left on device")
    assert store.current().number == 1 and store.load().bias.tobytes() == served
    filler.unlink()
again = refresh()
assert again.returncode == 0, again.stderr
assert sorted(p.name for p in (disk / "store" / "versions").iterdir()) == [
    f"000001-{AS_OF}", f"000002-{AS_OF}"]
subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
expect(refresh(), 2, str(disk))
try:
    store.rollback()
    raise AssertionError("rolled back on a read-only disk")
except tt.StoreError as error:
    assert str(disk) in str(error), error
assert store.current().number == 2 and store.load().bias.tobytes() == served
print("passed")
"""


def in_namespace(*command: object) -> list[str]:
    as_root = [] if os.getuid() == 0 else ["--map-root-user"]
    return ["unshare", "--mount", *as_root, *map(str, command)]


def can_mount(place: Path) -> bool:
    if shutil.which("unshare") is None:
        return False
    mounting = in_namespace("mount", "-t", "tmpfs", "tmpfs", place)
    return subprocess.run(mounting, capture_output=True, check=False).returncode == 0


@pytest.mark.xdist_group("shop")
def test_a_full_or_read_only_disk_loses_nothing(made_shop, tmp_path):
    if not can_mount(tmp_path):
        pytest.skip("file systems cannot be mounted here, even in a separate namespace")
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        in_namespace(
            sys.executable, "-c", DISK, disk, HELPERS, made_shop.folder
        ),
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "passed\n"
    assert list(disk.iterdir()) == []
