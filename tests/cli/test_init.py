"""`trimtab init`: a project that runs as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import trimtab as tt


@pytest.fixture(scope="module")
def project(tmp_path_factory, call):
    folder = tmp_path_factory.mktemp("projects") / "my shop"
    run = call("init", folder, cwd=folder.parent)
    assert run.returncode == 0, run.stderr
    return folder


def run_in(folder, *command):
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_runs_as_it_stands(project):
    """The engine's stand-in with fewer nights, then the daily job."""
    script = (project / "make_lists.py").read_text()
    assert "range(28)" in script
    few = script.replace("range(28)", "range(7, 14)")  # 4 to 10 November
    run_in(project, sys.executable, "-c", few)
    assert "is served" in run_in(project, "sh", "daily.sh")
    version = tt.Store(str(project / "store")).current()
    assert str(version.as_of) == "2010-11-10"
    assert version.lists().num_rows > 10_000


def test_a_folder_that_cannot_be_written_is_refused(tmp_path, call):
    (tmp_path / "file").touch()
    run = call("init", "file/shop", cwd=tmp_path)
    assert (run.returncode, run.stdout) == (2, "")
    sentence = "cannot write to file/shop: .* is not a folder; use another folder"
    assert re.fullmatch(f"trimtab: {sentence}\n", run.stderr)


def test_a_full_disk_is_told_of(tmp_path):
    limited = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); "
    command = limited + "from trimtab.cli import main; main(sys.argv[1:])"
    run = subprocess.run(
        [sys.executable, "-c", command, "init", "shop"],
        cwd=tmp_path, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 2
    assert run.stderr == "trimtab: cannot write to shop: File too large; use another folder\n"


def test_schedules_name_the_folder(project):
    names = {path.name for path in (project / "schedule").iterdir()}
    assert names == {"airflow_dag.py", "crontab", "trimtab.service", "trimtab.timer"}
    for name in names - {"trimtab.timer"}:
        assert f"'{project}'/daily.sh" in (project / "schedule" / name).read_text()
    compile((project / "schedule" / "airflow_dag.py").read_text(), "dag", "exec")


def test_a_folder_with_files_is_left_alone(project, call):
    before = sorted(project.rglob("*"))
    run = call("init", project, cwd=project)
    assert run.returncode == 2
    assert "empty or a new folder" in run.stderr
    assert sorted(project.rglob("*")) == before


def test_scripts_pass_a_shell(project):
    for name in ("daily.sh", "judge.sh", "settings.sh"):
        run_in(project, "sh", "-n", name)
        assert (project / name).stat().st_mode & 0o100
    assert Path(project / "README.md").read_text().startswith("# A daily job")
