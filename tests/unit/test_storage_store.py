"""What every store promises, over each kind of store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.base.errors import (
    InvalidPath,
    PieceMissing,
    StoreConflict,
    StoreCorrupt,
    StoreUnavailable,
)
from headway.storage import ReliableStore, open_store


def test_a_piece_is_read_back_and_replaced(store: ReliableStore) -> None:
    store.write("a/b/c", b"one")
    assert store.read("a/b/c") == b"one"
    store.write("a/b/c", [b"tw", b"o"])
    assert store.read("a/b/c") == b"two"
    assert b"".join(store.reader("a/b/c")) == b"two"


def test_a_missing_piece_is_named(store: ReliableStore) -> None:
    for read in (store.read, store.size, lambda path: list(store.reader(path))):
        with pytest.raises(PieceMissing, match="a/nothing is missing") as caught:
            read("a/nothing")
        assert isinstance(caught.value, StoreCorrupt)
    assert not store.exists("a/nothing")


def test_if_absent_refuses_a_second_write(store: ReliableStore) -> None:
    store.write("a/one", b"first", if_absent=True)
    with pytest.raises(StoreConflict, match="a/one"):
        store.write("a/one", b"second", if_absent=True)
    with pytest.raises(StoreConflict), store.writer("a/one", if_absent=True) as writer:
        writer.write(b"third")
    assert store.read("a/one") == b"first"


def test_listing_sizes_and_folders(store: ReliableStore) -> None:
    assert store.list() == [] and store.folders() == []
    for path in ("runs/r2/manifest", "runs/r1/events/1", "runs/r1/manifest", "top"):
        store.write(path, b"data")
    assert store.list() == ["runs/r1/events/1", "runs/r1/manifest", "runs/r2/manifest", "top"]
    assert store.list("runs/r1") == ["runs/r1/events/1", "runs/r1/manifest"]
    assert store.list("runs/r") == []
    assert store.list("top") == []
    assert store.folders("runs") == ["r1", "r2"]
    assert store.folders("nothing") == []
    assert store.sizes("runs/r2") == {"runs/r2/manifest": store.size("runs/r2/manifest")}
    assert store.exists("top") and not store.exists("runs/r1")


def test_delete_tree_takes_a_folder_a_piece_or_nothing(store: ReliableStore) -> None:
    for path in ("a/b/1", "a/b/2", "a/bc", "a/b2/1"):
        store.write(path, b"data")
    store.delete_tree("a/b")
    assert store.list() == ["a/b2/1", "a/bc"]
    store.delete_tree("a/bc")
    store.delete_tree("a/nothing")
    assert store.list() == ["a/b2/1"]
    store.write("a/b/1", b"again")
    assert store.read("a/b/1") == b"again"


def test_a_large_piece_streams(store: ReliableStore) -> None:
    chunks = [bytes([i]) * 300_001 for i in range(30)]
    with store.writer("big") as writer:
        for chunk in chunks:
            writer.write(chunk)
        assert not store.exists("big")
    assert b"".join(store.reader("big")) == b"".join(chunks) == store.read("big")


def test_a_writer_that_fails_leaves_the_old_piece(store: ReliableStore) -> None:
    store.write("p", b"old")
    with pytest.raises(OSError, match="the caller's own"), store.writer("p") as writer:
        writer.write(b"n" * 3_000_000)
        raise OSError("the caller's own trouble")
    assert store.read("p") == b"old"
    assert store.list() == ["p"]


def test_a_piece_that_took_the_place_of_another_is_found(store: ReliableStore) -> None:
    store.write("a", b"data")
    _overwrite(store, "b", _raw(store, "a"))
    with pytest.raises(StoreCorrupt, match="b holds 'a', not 'b'"):
        store.read("b")


def test_a_truncated_stream_gives_no_data_at_all(store: ReliableStore) -> None:
    store.write("a", b"x" * 3_000_000)
    _overwrite(store, "a", _raw(store, "a")[:-1])
    with pytest.raises(StoreCorrupt, match="a is truncated"):
        next(iter(store.reader("a")))
    _overwrite(store, "a", b"")
    for read in (store.read, lambda path: list(store.reader(path))):
        with pytest.raises(StoreCorrupt, match="a is empty"):
            read("a")


@pytest.mark.parametrize(
    "path",
    ["", "/", "/etc/passwd", "..", "a/../b", "a//b", "a/", ".hidden", "a/.b", "a\\b", "a b", "ä",
     "a\n", "a\0b", "x" * 129, "/".join(["abc"] * 300)],
)  # fmt: skip
def test_paths_are_checked_before_anything_happens(tmp_path: Path, path: str) -> None:
    for store in (open_store(str(tmp_path / "s")), open_store("memory://checked")):
        uses: list[Callable[[], object]] = [
            lambda s=store: s.write(path, b""),
            lambda s=store: s.read(path),
            lambda s=store: list(s.reader(path)),
            lambda s=store: s.exists(path),
            lambda s=store: s.size(path),
            lambda s=store: s.delete_tree(path),
            lambda s=store: s.writer(path).__enter__(),
        ]
        if path:
            uses += [lambda s=store: s.list(path), lambda s=store: s.folders(path)]
        for use in uses:
            with pytest.raises(InvalidPath):
                use()


@pytest.mark.parametrize("kind", ["local", "memory", "other"])
def test_one_of_many_threads_wins(kind: str, make_store: Callable[[str], ReliableStore]) -> None:
    store = make_store(kind)
    outcomes: list[str] = []

    def contend(mine: bytes) -> None:
        try:
            store.write("a/b/prize", mine, if_absent=True)
            outcomes.append(mine.decode())
        except StoreConflict:
            outcomes.append("")

    threads = [threading.Thread(target=contend, args=(f"writer {i}".encode(),)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [outcome for outcome in outcomes if outcome]
    assert len(outcomes) == 8 and winners == [store.read("a/b/prize").decode()]


def test_the_same_path_from_many_threads_is_always_whole(store: ReliableStore) -> None:
    values = [bytes([i]) * 50_000 for i in range(4)]
    store.write("p", values[0])
    wrong: list[object] = []

    def work(value: bytes) -> None:
        for _ in range(3):
            store.write("p", value)
            if store.read("p") not in values:
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(value,)) for value in values]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and store.read("p") in values


@pytest.mark.parametrize(
    "url",
    ["", "\0", "a\nb", "file://elsewhere/x", "file:relative", "s3://bucket/../other",
     "simplecache::s3://bucket/x", "s3://", "s3://bucket/x*", "s3://bucket/s3://x", "nosuch://x/y"],
)  # fmt: skip
def test_urls_are_checked(url: str) -> None:
    with pytest.raises(InvalidPath):
        open_store(url)


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidPath) as caught:
        open_store("sftp://me:secret@host/x")
    assert "secret" not in caught.value.describe()


def test_a_path_and_its_file_url_are_one_store(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    open_store(str(folder)).write("a", b"data")
    for url in (folder.as_uri(), f"file:{folder}", f"{folder}/"):
        store = open_store(url)
        assert store.read("a") == b"data"
        assert store.url == folder.as_uri()


def test_a_store_that_must_exist_is_not_made(tmp_path: Path) -> None:
    for url in (str(tmp_path / "no"), "memory://not-there"):
        with pytest.raises(StoreUnavailable):
            open_store(url, create=False)
    assert not (tmp_path / "no").exists()


def _raw(store: ReliableStore, path: str) -> bytes:
    root = getattr(store, "root", None)
    if root is not None:
        return bytes((root / path).read_bytes())
    return bytes(store._fs.cat_file(f"{store._root}/{path}"))  # type: ignore[attr-defined]


def _overwrite(store: ReliableStore, path: str, data: bytes) -> None:
    root = getattr(store, "root", None)
    if root is not None:
        (root / path).write_bytes(data)
    else:
        store._fs.pipe_file(f"{store._root}/{path}", data)  # type: ignore[attr-defined]
