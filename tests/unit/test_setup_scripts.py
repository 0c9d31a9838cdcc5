"""The set-up scripts on machines made of fake commands, and the lock against pyproject.toml."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ("bash", "awk", "cat", "dirname", "env", "mktemp", "rm")


class Machine:
    """A folder as the whole PATH: only the tools every Debian has, and what a test adds."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.runtimes = folder / "jvm"
        self.calls = folder / "calls"
        self.bin.mkdir()
        self.runtimes.mkdir()
        self.calls.touch()
        for tool in TOOLS:
            (self.bin / tool).symlink_to(str(shutil.which(tool)))
        self.has("id", "echo 1000")

    def has(self, command: str, body: str) -> None:
        """A command that notes how it was called and then does `body`."""
        self._write(self.bin / command, f'echo "{command} $*" >>"{self.calls}"\n{body}')

    def has_java(self, version: str, *, home: str | None = None) -> None:
        """As `java` on the PATH, or under `home` among Debian's runtimes."""
        folder = self.bin if home is None else self.runtimes / home / "bin"
        folder.mkdir(parents=True, exist_ok=True)
        self._write(folder / "java", java_script(version))

    def has_packages(self, *packages: str, install: str) -> None:
        """apt-get that knows these packages alone; `install` is what installing one does."""
        known = "|".join(packages) or "none"
        self.has(
            "apt-get",
            f'[ "$1" = update ] && exit 0\n'
            f'case "${{@: -1}}" in {known}) ;; *) echo "E: no such package"; exit 100 ;; esac\n'
            f'[ "$2" = --simulate ] && exit 0\n{install}',
        )

    def run(self, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(ROOT / "scripts" / script), str(self.runtimes)],
            env={"PATH": str(self.bin), **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
        )

    def installed(self) -> list[str]:
        lines = self.calls.read_text().splitlines()
        return [line for line in lines if "apt-get install --yes" in line]

    def _write(self, file: Path, body: str) -> None:
        file.write_text(f"#!{shutil.which('bash')}\n{body}\n")
        file.chmod(0o755)


def java_script(version: str) -> str:
    return (
        f'echo "    java.home = /jvm/java {version}" >&2\n'
        f'echo "    java.specification.version = {version}" >&2\n'
        f"echo 'openjdk version \"{version}.0.1\"' >&2"
    )


def install_java(machine: Machine, version: str) -> str:
    home = machine.runtimes / version / "bin"
    script = f"#!{shutil.which('bash')}\n{java_script(version)}\n"
    prepared = machine.bin.parent / "prepared-java"
    prepared.write_text(script)
    prepared.chmod(0o755)
    return f'{shutil.which("mkdir")} -p "{home}"; {shutil.which("cp")} "{prepared}" "{home}/java"'


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize("version", ["17", "21"])
def test_the_java_on_the_path_is_taken(machine: Machine, version: str) -> None:
    machine.has_java(version)
    assert machine.run("ensure-java.sh").stdout == f"/jvm/java {version}\n"
    assert machine.installed() == []


def test_java_home_comes_first(machine: Machine) -> None:
    machine.has_java("17")
    machine.has_java("21", home="own")
    done = machine.run("ensure-java.sh", JAVA_HOME=str(machine.runtimes / "own"))
    assert done.stdout == "/jvm/java 21\n"


@pytest.mark.parametrize("wrong", ["1.8", "11", "25"])
def test_other_versions_are_passed_over(machine: Machine, wrong: str) -> None:
    machine.has_java(wrong)
    machine.has_java(wrong, home="a")
    machine.has_java("17", home="b")
    done = machine.run("ensure-java.sh", JAVA_HOME=str(machine.runtimes / "a"))
    assert done.stdout == "/jvm/java 17\n"


def test_java_is_installed_where_there_is_none(machine: Machine) -> None:
    machine.has("id", "echo 0")
    machine.has_packages("openjdk-17-jre-headless", install=install_java(machine, "17"))
    done = machine.run("ensure-java.sh")
    assert (done.returncode, done.stdout) == (0, "/jvm/java 17\n")
    assert done.stderr == "headway: installing openjdk-17-jre-headless from Debian\n"
    assert machine.installed() == [
        "apt-get install --yes --no-install-recommends openjdk-17-jre-headless"
    ]


def test_java_21_is_installed_where_the_distribution_has_no_17(machine: Machine) -> None:
    machine.has("sudo", 'shift; exec "$@"')
    machine.has("true", "exit 0")
    machine.has_packages("openjdk-21-jre-headless", install=install_java(machine, "21"))
    done = machine.run("ensure-java.sh")
    assert (done.returncode, done.stdout) == (0, "/jvm/java 21\n")


@pytest.mark.parametrize("sudo", [None, "echo 'sudo: a password is required' >&2; exit 1"])
def test_without_rights_one_line_says_what_to_install(machine: Machine, sudo: str | None) -> None:
    machine.has_packages("openjdk-17-jre-headless", install="")
    if sudo is not None:
        machine.has("sudo", sudo)
    done = machine.run("ensure-java.sh")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "cannot be installed from here; install it with 'apt-get install open" in done.stderr
    assert machine.installed() == []


def test_without_apt_get_one_line_says_what_to_install(machine: Machine) -> None:
    machine.has("id", "echo 0")
    done = machine.run("ensure-java.sh")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)


def test_a_distribution_with_neither_java_is_told_so(machine: Machine) -> None:
    machine.has("id", "echo 0")
    machine.has_packages(install="")
    done = machine.run("ensure-java.sh")
    assert done.returncode == 1
    assert "this distribution has neither" in done.stderr


def test_what_apt_get_said_is_shown_when_it_fails(machine: Machine) -> None:
    machine.has("id", "echo 0")
    machine.has_packages("openjdk-17-jre-headless", install="echo 'E: disk full'; exit 100")
    done = machine.run("ensure-java.sh")
    assert done.returncode == 1
    assert "E: disk full\nheadway: Java 17 or 21 is missing and apt-get failed" in done.stderr


def test_a_python_of_another_version_is_passed_over(machine: Machine) -> None:
    machine.has("python3.11", "echo 'pyenv: python3.11: command not found' >&2; exit 127")
    machine.has("python3", "exit 0")
    assert machine.run("find-python.sh").stdout == f"{machine.bin}/python3\n"


def test_every_dependency_is_locked_at_its_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [
        *project["project"]["dependencies"],
        *project["project"]["optional-dependencies"]["dev"],
        *project["build-system"]["requires"],
    ]
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    locked = {_normal(line) for line in lines if not line.startswith("#")}
    assert all(re.fullmatch(r"[a-z0-9.-]+==[^ /]+", line) for line in locked)
    missing = {_normal(each) for each in wanted} - locked
    assert not missing, "requirements.lock is out of date; renew it with: make lock"


def _normal(requirement: str) -> str:
    name, _, version = re.sub(r"\[.*?\]", "", requirement).partition("==")
    return f"{re.sub(r'[-_.]+', '-', name).lower()}=={version}"
