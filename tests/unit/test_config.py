from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest

from headway.base.config import (
    SETTINGS,
    RunSettings,
    Settings,
    describe_settings_markdown,
    load_settings,
    parse_assignments,
)
from headway.base.errors import FileNotReadable, InvalidSetting
from headway.base.setting_kinds import Location, Number, Size

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "configuration.md"


@pytest.fixture(autouse=True)
def empty_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(file: Path, text: str) -> Path:
    file.write_text(text, encoding="utf-8")
    return file


def test_defaults() -> None:
    settings = load_settings(environ={"HOME": "/home/ada"})
    assert settings.store.url == "/home/ada/.local/share/headway"
    assert settings.engine.name == "auto"
    assert settings.results.collect_limit == 64 * 2**20
    assert settings.results.keep is True
    assert settings.progress.interval == 0.25
    assert settings.run.parallel_queries == 1
    assert settings.spark.master == "local[*]"
    assert settings.spark.driver_memory == "4g"
    assert settings.statistics.observe is True
    assert {settings.origin(each.name) for each in SETTINGS} == {"default"}


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"HOME": "/home/ada", "XDG_DATA_HOME": "/data"}, "/data/headway"),
        ({"HOME": "/home/ada", "XDG_DATA_HOME": "data"}, "/home/ada/.local/share/headway"),
        ({"HOME": "/home/ada", "XDG_DATA_HOME": ""}, "/home/ada/.local/share/headway"),
    ],
)
def test_the_store_is_in_the_users_data_folder(environ: dict[str, str], folder: str) -> None:
    assert load_settings(environ=environ).store.url == folder


def test_a_user_without_home_has_to_name_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(InvalidSetting, match="no home folder"):
        load_settings(environ={})
    assert load_settings(environ={"HEADWAY_STORE_URL": "/data"}).store.url == "/data"


def test_each_source_outweighs_those_before_it(tmp_path: Path) -> None:
    spark_conf = {"spark.headway.run.parallel_queries": "2", "spark.sql.ansi.enabled": "true"}
    environ = {"HEADWAY_RUN_PARALLEL_QUERIES": "3", "PATH": "/bin"}
    toml_file = write(tmp_path / "own.toml", "[run]\nparallel_queries = 4\n")
    command_line = {"run.parallel_queries": "5"}

    loaded = load_settings(spark_conf=spark_conf, environ={})
    assert loaded.run.parallel_queries == 2
    assert (
        loaded.origin("run.parallel_queries") == "Spark setting spark.headway.run.parallel_queries"
    )
    loaded = load_settings(spark_conf=spark_conf, environ=environ)
    assert loaded.run.parallel_queries == 3
    assert loaded.origin("run.parallel_queries") == "environment HEADWAY_RUN_PARALLEL_QUERIES"
    loaded = load_settings(spark_conf=spark_conf, environ=environ, toml_file=toml_file)
    assert loaded.run.parallel_queries == 4
    assert loaded.origin("run.parallel_queries") == f"file {toml_file}"
    loaded = load_settings(
        spark_conf=spark_conf, environ=environ, toml_file=toml_file, command_line=command_line
    )
    assert loaded.run.parallel_queries == 5
    assert loaded.origin("run.parallel_queries") == "command line"


def test_every_type_is_read_from_toml() -> None:
    write(
        Path("headway.toml"),
        """
        store.url = "s3://bucket/headway"
        [engine]
        name = "spark"
        [results]
        keep = false
        collect_limit = 1024
        [progress]
        interval = "1.5s"
        [spark]
        driver_memory = "2048 MiB"
        """,
    )
    settings = load_settings(environ={})
    assert settings.store.url == "s3://bucket/headway"
    assert settings.engine.name == "spark"
    assert settings.results.keep is False
    assert settings.results.collect_limit == 1024
    assert settings.progress.interval == 1.5
    assert settings.spark.driver_memory == "2g"
    assert settings.origin("engine.name") == "file headway.toml"


def test_a_named_file_replaces_the_one_of_the_current_folder(tmp_path: Path) -> None:
    write(Path("headway.toml"), "run.parallel_queries = 2")
    by_variable = write(tmp_path / "a.toml", "run.parallel_queries = 3")
    by_option = write(tmp_path / "b.toml", "run.parallel_queries = 4")
    environ = {"HEADWAY_CONFIG": str(by_variable)}
    assert load_settings(environ={"HEADWAY_CONFIG": ""}).run.parallel_queries == 2
    assert load_settings(environ=environ).run.parallel_queries == 3
    assert load_settings(environ=environ, toml_file=by_option).run.parallel_queries == 4


def test_a_named_file_that_is_missing_is_an_error() -> None:
    with pytest.raises(FileNotReadable, match=r"no\.toml does not exist") as raised:
        load_settings(environ={"HEADWAY_CONFIG": "no.toml"})
    assert raised.value.hint == "it is named by --config or HEADWAY_CONFIG"
    for named in ({"toml_file": Path("headway.toml")}, {"toml_file": Path("no.toml")}):
        with pytest.raises(FileNotReadable):
            load_settings(environ={}, **named)
    with pytest.raises(FileNotReadable):
        load_settings(environ={"HEADWAY_CONFIG": "headway.toml"})
    with pytest.raises(FileNotReadable, match="directory"):
        load_settings(environ={}, toml_file=Path())


def test_a_file_that_is_not_toml_is_an_error() -> None:
    write(Path("headway.toml"), "[run\n")
    with pytest.raises(InvalidSetting, match=r"headway\.toml is not TOML: .*line 1"):
        load_settings(environ={})


@pytest.mark.parametrize(
    ("sources", "message", "hint"),
    [
        (
            {"spark_conf": {"spark.headway.store.ulr": "x"}},
            "there is no setting spark.headway.store.ulr (from Spark setting ",
            "did you mean spark.headway.store.url?",
        ),
        (
            {"environ": {"HEADWAY_RUN_PARALEL": "2"}},
            "there is no setting HEADWAY_RUN_PARALEL (from environment HEADWAY_RUN_PARALEL)",
            "did you mean HEADWAY_RUN_PARALLEL_QUERIES?",
        ),
        (
            {"command_line": {"engine": "spark"}},
            "there is no setting engine (from command line)",
            "did you mean engine.name?",
        ),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(
    sources: dict[str, dict[str, str]], message: str, hint: str
) -> None:
    with pytest.raises(InvalidSetting) as raised:
        load_settings(**{"environ": {}, **sources})
    assert raised.value.message.startswith(message)
    assert raised.value.hint == hint


@pytest.mark.parametrize(
    ("text", "unknown", "hint"),
    [
        ("[stores]\nurl = 'x'", "stores.url", "did you mean store.url?"),
        ("store = 'x'", "store", "did you mean store.url?"),
        ("[store.url]\nplace = 'x'", "store.url.place", "did you mean store.url?"),
        ("zzz = 1", "zzz", f"the settings are {', '.join(each.name for each in SETTINGS)}"),
    ],
)
def test_an_unknown_name_in_the_file_is_refused(text: str, unknown: str, hint: str) -> None:
    write(Path("headway.toml"), text)
    with pytest.raises(InvalidSetting) as raised:
        load_settings(environ={})
    assert raised.value.message == f"there is no setting {unknown} (from file headway.toml)"
    assert raised.value.hint == hint


@pytest.mark.parametrize(
    ("name", "text", "accepted"),
    [
        ("store.url", " ", "a folder or an address such as s3://bucket/folder"),
        ("engine.name", "flink", "auto or spark or pipelined"),
        ("results.keep", "1", "true or false"),
        ("results.collect_limit", "64 apples", "a size such as 64MiB or 1g"),
        ("results.collect_limit", "-1", "a size such as 64MiB or 1g"),
        ("results.collect_limit", "9999999t", "a size such as 64MiB or 1g"),
        ("progress.interval", "5", "a duration such as 250ms, 30s or 5m, from 10ms to 1h"),
        ("progress.interval", "2h", "a duration such as 250ms, 30s or 5m, from 10ms to 1h"),
        ("run.parallel_queries", "65", "a whole number from 1 to 64"),
        ("run.parallel_queries", "2.0", "a whole number from 1 to 64"),
        ("spark.driver_memory", "511m", "a size such as 512m or 4g, at least 512m"),
    ],
)
def test_a_wrong_value_names_setting_value_source_and_what_is_accepted(
    name: str, text: str, accepted: str
) -> None:
    with pytest.raises(InvalidSetting) as raised:
        load_settings(environ={}, command_line={name: text})
    assert raised.value.message == f"{name} cannot be {text!r} (from command line)"
    assert raised.value.hint == f"{name} accepts {accepted}"


def test_a_wrong_value_is_refused_even_when_outweighed() -> None:
    with pytest.raises(InvalidSetting, match="from environment HEADWAY_RESULTS_KEEP"):
        load_settings(
            environ={"HEADWAY_RESULTS_KEEP": "maybe"}, command_line={"results.keep": "true"}
        )


@pytest.mark.parametrize("text", ["url = ['a']", "url = 2026-01-01"])
def test_lists_and_dates_are_no_values(text: str) -> None:
    write(Path("headway.toml"), f"[store]\n{text}")
    with pytest.raises(InvalidSetting, match=r"store.url cannot be a (list|date) \(from file"):
        load_settings(environ={})


def test_a_variable_set_to_nothing_is_not_set() -> None:
    settings = load_settings(environ={"HEADWAY_ENGINE_NAME": ""})
    assert settings.origin("engine.name") == "default"


def test_the_home_folder_is_expanded_as_a_shell_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert Location().parse("~/runs") == "/home/ada/runs"
    assert Location().parse("s3://bucket/~x") == "s3://bucket/~x"
    with pytest.raises(ValueError):
        Location().parse("~nobody-of-that-name/runs")


def test_numbers() -> None:
    assert Number(minimum=0).parse("1e-3") == 0.001
    assert Number().accepts == "a number"
    assert Number(0, 1).accepts == "a number, from 0 to 1"
    assert Size(maximum=2**30).accepts == "a size such as `64MiB` or `1g`, at most 1GiB"
    for text in ("nan", "inf", "-1", "one"):
        with pytest.raises(ValueError):
            Number(minimum=0).parse(text)


def test_settings_are_frozen_and_check_themselves() -> None:
    settings = Settings()
    with pytest.raises(FrozenInstanceError):
        settings.run = RunSettings()  # type: ignore[misc]
    assert replace(settings, run=RunSettings(parallel_queries=3)).run.parallel_queries == 3
    with pytest.raises(InvalidSetting, match=r"run\.parallel_queries cannot be '0'"):
        replace(settings, run=RunSettings(parallel_queries=0))


def test_values_are_shown_as_a_user_would_write_them() -> None:
    settings = Settings()
    assert settings.text("results.collect_limit") == "64MiB"
    assert settings.text("progress.interval") == "250ms"
    assert settings.text("results.keep") == "true"
    with pytest.raises(KeyError):
        settings.origin("results.kept")


def test_assignments_of_the_command_line() -> None:
    texts = ["store.url=s3://bucket/a=b", "results.keep=false"]
    assert parse_assignments(texts) == {"store.url": "s3://bucket/a=b", "results.keep": "false"}
    with pytest.raises(InvalidSetting, match="does not set anything"):
        parse_assignments(["store.url"])


def test_no_two_settings_share_a_spelling() -> None:
    for spelling in ("name", "spark_name", "variable"):
        assert len({getattr(each, spelling) for each in SETTINGS}) == len(SETTINGS)
    assert "HEADWAY_CONFIG" not in {each.variable for each in SETTINGS}


def test_the_documentation_is_up_to_date() -> None:
    assert DOCUMENTATION.read_text(encoding="utf-8") == describe_settings_markdown(), (
        "docs/configuration.md is out of date; rewrite it with: make docs"
    )
