"""Statements: files cut at the semicolons that end one, names, and files that cannot be read."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from headway.base.errors import FileNotReadable, WrongUsage
from headway.cli.statements import Statement, read_statements, split_statements


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 1;", ["SELECT 1"]),
        ("SELECT 1;\nSELECT 2;\n", ["SELECT 1", "SELECT 2"]),
        (";; SELECT 1 ;;", ["SELECT 1"]),
        ("SELECT ';' AS a, \";\" AS b, `c;d`; SELECT 2", None),
        ("-- a; b\nSELECT 1 /* ; */; SELECT 2 -- ;", None),
        ("SELECT 'it\\'s; x'; SELECT 2", None),
        ("SELECT r'\\'; SELECT 2", None),
        ("SELECT '😀;'; SELECT 2", None),
        ("BEGIN DECLARE x INT; SELECT x; END", ["BEGIN DECLARE x INT; SELECT x; END"]),
        ("SELECT 'open; SELECT 2", ["SELECT 'open; SELECT 2"]),
        ("-- only a comment;", []),
        ("", []),
    ],
)
def test_cuts(text: str, parts: list[str] | None) -> None:
    found = split_statements(text)
    if parts is not None:
        assert found == parts
    else:
        assert len(found) == 2
        assert found[1].startswith("SELECT 2")
        assert found[0] in text


def test_names_come_from_files_and_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "report.sql"
    file.write_text("SELECT 1; SELECT 2", encoding="utf-8-sig")
    assert read_statements([str(file)], ["SELECT 3"]) == [
        Statement("report", "SELECT 1"),
        Statement("report_2", "SELECT 2"),
        Statement("query", "SELECT 3"),
    ]
    assert [s.name for s in read_statements([str(file)], [], "mine")] == ["mine", "mine_2"]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 1"))
    assert read_statements(["-"], []) == [Statement("stdin", "SELECT 1")]


def test_what_cannot_be_read(tmp_path: Path) -> None:
    binary = tmp_path / "binary.sql"
    binary.write_bytes(b"SELECT \xff\xfe")
    (tmp_path / "empty.sql").write_text("-- nothing\n")
    with pytest.raises(FileNotReadable, match="there is no file"):
        read_statements([str(tmp_path / "missing.sql")], [])
    with pytest.raises(FileNotReadable, match="is a folder"):
        read_statements([str(tmp_path)], [])
    with pytest.raises(FileNotReadable, match="not UTF-8"):
        read_statements([str(binary)], [])
    with pytest.raises(WrongUsage, match="holds no SQL"):
        read_statements([str(tmp_path / "empty.sql")], [])
    with pytest.raises(WrongUsage, match="no query"):
        read_statements([], [])
