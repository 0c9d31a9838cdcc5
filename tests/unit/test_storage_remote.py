"""S3 in particular: conditional writes, lost answers, and a service that is not there."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import fsspec
import pytest
import s3fs
from botocore.exceptions import ClientError

from headway.base.errors import StoreConflict, StoreFull, StoreUnavailable
from headway.storage import ReliableStore, Run, list_runs, new_manifest, open_store
from headway.storage.remote import FsspecStore

MakeStore = Callable[[str], ReliableStore]


def test_s3_refuses_by_condition_and_not_by_looking(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store("s3")
    store.write("p", b"first", if_absent=True)
    monkeypatch.setattr(FsspecStore, "exists", lambda *_: pytest.fail("looked first"))
    with pytest.raises(StoreConflict):
        store.write("p", b"second", if_absent=True)
    assert store.read("p") == b"first"


def test_a_put_whose_answer_was_lost_is_still_ours(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store("s3")
    pipe = s3fs.S3FileSystem.pipe_file

    def sent_twice(self: Any, *arguments: Any, **keywords: Any) -> None:
        pipe(self, *arguments, **keywords)
        pipe(self, *arguments, **keywords)

    monkeypatch.setattr(s3fs.S3FileSystem, "pipe_file", sent_twice)
    store.write("p", b"data", if_absent=True)
    assert store.read("p") == b"data"


def test_a_service_that_ignores_conditions_is_found_out(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store("s3")
    pipe = s3fs.S3FileSystem.pipe_file

    def unconditional(self: Any, path: str, data: bytes, **_: Any) -> None:
        pipe(self, path, data)

    monkeypatch.setattr(s3fs.S3FileSystem, "pipe_file", unconditional)
    store.write("p", b"first", if_absent=True)
    with pytest.raises(StoreConflict):  # by looking first, then
        store.write("p", b"second", if_absent=True)
    assert store.read("p") == b"first" and store._find("").keys() == {"p"}  # type: ignore[attr-defined]


def test_two_conditional_writes_that_meet_are_asked_again(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store("s3")
    store.write("q", b"", if_absent=True)  # the store has asked for conditional writes by now
    pipe = s3fs.S3FileSystem.pipe_file
    answers = ["ConditionalRequestConflict", "ConditionalRequestConflict"]

    def contended(self: Any, *arguments: Any, **keywords: Any) -> None:
        if answers:
            details = {"Error": {"Code": answers.pop()}}
            raise OSError(5, "conflict") from ClientError(details, "PutObject")
        pipe(self, *arguments, **keywords)

    monkeypatch.setattr(s3fs.S3FileSystem, "pipe_file", contended)
    store.write("p", b"data", if_absent=True)
    assert store.read("p") == b"data"


def test_a_large_piece_goes_up_from_a_file(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.storage.remote._LARGEST_IN_MEMORY", 1000)
    for kind in ("s3", "other"):
        store = make_store(kind)
        data = bytes(range(256)) * 10_000
        with store.writer("big", if_absent=True) as writer:
            writer.write(data)
        with pytest.raises(StoreConflict), store.writer("big", if_absent=True) as writer:
            writer.write(data)
        assert store.read("big") == data


def test_a_bucket_that_is_not_there(s3_bucket: str) -> None:
    with pytest.raises(StoreUnavailable, match="s3://no-such-bucket"):
        open_store("s3://no-such-bucket/runs")


def test_a_bucket_that_vanishes_is_not_a_missing_piece(s3_bucket: str) -> None:
    fs = fsspec.filesystem("s3", use_listings_cache=False)
    fs.mkdir("short-lived")
    store = open_store("s3://short-lived/x")
    fs.rmdir("short-lived")
    for use in (
        lambda: store.read("p"),
        lambda: list(store.reader("p")),
        lambda: store.size("p"),
        lambda: store.write("p", b""),
        store.list,
        lambda: list_runs(store),
    ):
        with pytest.raises(StoreUnavailable):
            use()


def test_a_service_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    options = {
        "endpoint_url": f"http://127.0.0.1:{port}",
        "key": "testing",
        "secret": "testing",
    }
    with pytest.raises(StoreUnavailable, match="s3://bucket/runs cannot be used") as caught:
        open_store("s3://bucket/runs", options=options)
    assert caught.value.hint


def test_a_failed_upload_leaves_the_old_piece(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store("other")
    store.write("p", b"old")

    def no_room(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(store._fs, "mv", no_room)  # type: ignore[attr-defined]
        with pytest.raises(StoreFull):
            store.write("p", b"new")
    assert store.read("p") == b"old" and store.list() == ["p"]
    assert store._find("").keys() == {"p"}  # type: ignore[attr-defined]


def test_sweep_takes_old_temporary_names(make_store: MakeStore) -> None:
    store = make_store("other")
    store._fs.pipe_file(f"{store._root}/.tmp-dead", b"half")  # type: ignore[attr-defined]
    assert store.list() == [] and store.sweep() == 0
    assert store.sweep(older_than_seconds=0.0) == 1


def test_our_own_bug_is_not_called_the_stores_trouble(make_store: MakeStore) -> None:
    for kind in ("local", "memory"):
        with pytest.raises(TypeError):
            make_store(kind).write("p", [1, 2])  # type: ignore[list-item]


def test_a_run_lives_on_s3(make_store: MakeStore) -> None:
    store = make_store("s3")
    run = Run.create(store, new_manifest([], run_id="r1"))
    for number in range(5):
        run.append("step", number=number)
    run.end("done")
    assert [event.data.get("number") for event in Run.open(store, "r1").events()][:5] == [*range(5)]
