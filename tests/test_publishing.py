"""What a release needs beside the code: one version, complete files, commands that parse.

Containers and workflows cannot run here; `make lint-files` has linters read them.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from trimtab.cli import app
from trimtab.version import __version__

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
import check_package  # noqa: E402

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text())
    for path in (ROOT / ".github" / "workflows").glob("*.yml")
}
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def parse_command(words: list[str]) -> None:
    """Fail unless the command line accepts these words."""
    name, *options = words
    get_command(app).commands[name].make_context(name, list(options))  # type: ignore[attr-defined]


# One version -------------------------------------------------------------------------------------


def test_the_version_is_in_one_place():
    assert PROJECT["dynamic"] == ["version"]
    assert check_package.read_version() == __version__
    heading = re.search(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert heading is not None
    assert re.fullmatch(rf"{re.escape(__version__)}, (unreleased|\d{{4}}-\d\d-\d\d)", heading[1])


def test_a_wrong_tag_is_refused():
    assert check_package.check_tag("v9.9.9")[0] == f"tag v9.9.9, but version.py says {__version__}"


# Wheel and sdist ---------------------------------------------------------------------------------


def test_a_wheel_without_its_files_is_refused(tmp_path):
    path = tmp_path / f"trimtab-{__version__}-py3-none-any.whl"
    left_out = {"trimtab/py.typed", "trimtab/report/templates/page.css"}
    info = f"trimtab-{__version__}.dist-info"
    own = [f"{info}/METADATA", f"{info}/entry_points.txt", f"{info}/licenses/LICENSE"]
    with zipfile.ZipFile(path, "w") as wheel:
        for name in [*(check_package.package_files() - left_out), *own, "tests/x.py"]:
            wheel.writestr(name, "")
    assert check_package.check_wheel(path) == [
        "wheel lacks trimtab/py.typed",
        "wheel lacks trimtab/report/templates/page.css",
        "wheel has tests/x.py",
    ]
    assert "must hold trimtab-" in check_package.check_folder(tmp_path)[0]


@pytest.mark.parametrize("name", check_package.NEEDED_SOURCES)
def test_a_file_of_the_sdist_exists(name):
    assert (ROOT / name).is_file()


# Containers --------------------------------------------------------------------------------------


def test_commands_of_containers_parse():
    (default,) = re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.M)
    parse_command(json.loads(default))
    assert json.loads(default)[0] == "serve"
    for service in COMPOSE["services"].values():
        parse_command(service["command"])
    assert set(COMPOSE["services"]) == {"refresh", "serve"}


def test_the_image_has_extras_that_exist_and_is_not_run_by_root():
    (extras,) = re.findall(r'"\.\[([\w,]+)\]"', DOCKERFILE)
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    lines = DOCKERFILE.splitlines()
    assert lines.index("USER 10001") < lines.index("RUN python -m trimtab.compile")
    copied = [word for line in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.M)
              for word in line.split()]  # fmt: skip
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for name in copied:
        assert (ROOT / name).exists()
        assert f"!{name}" in ignored


# Workflows ---------------------------------------------------------------------------------------


def test_every_python_that_is_promised_is_tested():
    promised = {
        name.rpartition(" ")[2] for name in PROJECT["classifiers"] if re.search(r"3\.\d+$", name)
    }
    for job in ("tests", "install"):
        matrix = WORKFLOWS["tests"]["jobs"][job]["strategy"]["matrix"]
        assert set(matrix["python"]) == promised


def test_publishing_waits_for_the_tests_and_stores_no_secret():
    jobs = WORKFLOWS["publish"]["jobs"]
    assert set(jobs["publish"]["needs"]) == {"tests", "version"}
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    text = (ROOT / ".github" / "workflows" / "publish.yml").read_text()
    assert "secrets." not in text
    assert "password" not in text


def test_workflows_run_what_exists():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    steps = [step.get("run", "") for flow in WORKFLOWS.values() for job in flow["jobs"].values()
             for step in job.get("steps", ())]  # fmt: skip
    text = "\n".join(steps)
    assert set(re.findall(r"\bmake ([\w-]+)", text)) <= targets
    for name in re.findall(r"(?<!\w)(benchmarks/\w+\.py|\.ci/\w+)", text):
        assert (ROOT / name).is_file()


# Pages for contributors --------------------------------------------------------------------------


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md"])
def test_paths_and_targets_on_a_page_exist(page):
    text = (ROOT / page).read_text()
    links = re.findall(r"\]\(([\w./-]+)\)", text)
    paths = re.findall(r"`((?:src|tests|docs|benchmarks|\.github|\.ci)/[\w./-]*)`", text)
    assert [name for name in (*links, *paths) if not (ROOT / name).exists()] == []
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"^make ([\w-]+)", text, re.M)) <= targets


def test_the_citation_names_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    (paper,) = citation["references"]
    assert paper["title"] == "Thresholding for Top-k Recommendation with Temporal Dynamics"
    assert "1506.02190" in paper["journal"]
    assert citation["license"] == PROJECT["license"]
