"""The Java that Spark gets, on machines made of fake commands; Spark's defaults without Spark."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headway.base.errors import JavaNotFound
from headway.spark.defaults import spark_defaults
from headway.spark.java import find_java


def put_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f"#!{shutil.which('bash')}\n"
        f'echo "    java.home = {home}" >&2\n'
        f'echo "    java.specification.version = {version}" >&2\n'
    )
    java.chmod(0o755)
    return home


def test_java_home_comes_first(tmp_path: Path) -> None:
    wanted = put_java(tmp_path / "a", "17")
    other = put_java(tmp_path / "b", "21")
    environ = {"JAVA_HOME": str(wanted), "PATH": str(other / "bin")}
    assert find_java(environ, tmp_path / "none") == wanted


def test_a_wrong_version_is_passed_over(tmp_path: Path) -> None:
    old = put_java(tmp_path / "old", "11")
    right = put_java(tmp_path / "jvm" / "java-21", "21")
    environ = {"JAVA_HOME": str(old), "PATH": str(old / "bin")}
    assert find_java(environ, tmp_path / "jvm") == right


def test_what_was_found_instead_is_named(tmp_path: Path) -> None:
    old = put_java(tmp_path / "old", "11")
    with pytest.raises(JavaNotFound, match="is Java 11") as caught:
        find_java({"JAVA_HOME": str(old), "PATH": ""}, tmp_path / "none")
    assert "openjdk-17-jre-headless" in (caught.value.hint or "")
    with pytest.raises(JavaNotFound, match=r"needs Java 17 or 21$"):
        find_java({"PATH": ""}, tmp_path / "none")
    with pytest.raises(JavaNotFound, match="not a Java that runs"):
        find_java({"JAVA_HOME": "/nowhere", "PATH": ""}, tmp_path / "none")


def test_spark_defaults(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# a comment\n! another\n\nspark.a   1\nspark.b=two words\nspark.c: x=y\nspark.d\n"
    )
    found = {"spark.a": "1", "spark.b": "two words", "spark.c": "x=y"}
    assert spark_defaults({"SPARK_CONF_DIR": str(tmp_path)}) == found
    assert spark_defaults({"SPARK_CONF_DIR": str(tmp_path / "none")}) == {}
    assert spark_defaults({}) == {}
