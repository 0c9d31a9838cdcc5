"""Damage anywhere in a run is detected and named; no text leads out of a store."""

from __future__ import annotations

import random
import secrets
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.base.errors import HeadwayError, InvalidIdentifier, InvalidPath, RunNotFound
from headway.base.errors import StoreCorrupt as Corrupt
from headway.base.ids import check_id
from headway.storage import QueryRecord, Run, new_manifest, open_store, resolve_run, seal, unseal
from headway.storage.blocks import BLOCK_SIZE
from headway.storage.local import LocalStore
from headway.storage.paths import check_path

FLIPS = 1_000


@pytest.fixture(scope="module")
def ended_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A small run with a file of every kind."""
    store = LocalStore(tmp_path_factory.mktemp("damage") / "store")
    queries = [QueryRecord("q1", "SELECT 1")]
    run = Run.create(store, new_manifest(queries, run_id="r"))
    run.append("query_started", query="q1")
    run.write_piece("results/q1", b"some rows")
    run.write_piece("empty", b"")
    run.append("query_done", query="q1", rows=2)
    run.end("done")
    return run


def files_of(run: Run) -> list[Path]:
    assert isinstance(run.store, LocalStore)
    files = sorted(path for path in run.store.root.rglob("*") if path.is_file())
    assert len(files) == 7  # head, manifest, 3 events, 2 pieces
    return files


def read_all(run: Run) -> None:
    Run.open(run.store, run.run_id).verify()


def assert_detected(run: Run, file: Path, what: str) -> None:
    assert isinstance(run.store, LocalStore)
    with pytest.raises(Corrupt) as caught:
        read_all(run)
    assert str(file.relative_to(run.store.root)) in caught.value.message, what


def test_the_whole_run_reads_well(ended_run: Run) -> None:
    read_all(ended_run)


def test_every_truncation_of_every_file_is_detected(ended_run: Run) -> None:
    for file in files_of(ended_run):
        whole = file.read_bytes()
        for length in range(len(whole)):
            file.write_bytes(whole[:length])
            assert_detected(ended_run, file, f"{file} cut to {length} bytes")
        file.write_bytes(whole)
    read_all(ended_run)


def test_flipped_bytes_anywhere_are_detected(ended_run: Run) -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    files = {file: file.read_bytes() for file in files_of(ended_run)}
    places = [(file, at) for file, whole in files.items() for at in range(len(whole))]
    for _ in range(FLIPS):
        file, at = chance.choice(places)
        flipped = bytearray(files[file])
        flipped[at] ^= chance.randrange(1, 256)
        file.write_bytes(flipped)
        assert_detected(ended_run, file, f"{file} byte {at}, seed {seed}")
        file.write_bytes(files[file])
    read_all(ended_run)


def test_every_deleted_file_is_detected(ended_run: Run) -> None:
    for file in files_of(ended_run):
        kept = file.read_bytes()
        file.unlink()
        assert_detected(ended_run, file, f"{file} deleted")
        file.write_bytes(kept)
    read_all(ended_run)


def test_every_file_in_the_place_of_another_is_detected(ended_run: Run) -> None:
    files = files_of(ended_run)
    for file in files:
        kept = file.read_bytes()
        for other in files:
            if other != file:
                shutil.copyfile(other, file)
                assert_detected(ended_run, file, f"{other} copied to {file}")
        file.write_bytes(kept)
    read_all(ended_run)


@given(kind=st.text(max_size=30), chunks=st.lists(st.binary(max_size=200), max_size=8))
def test_what_is_sealed_comes_back(kind: str, chunks: list[bytes]) -> None:
    assert unseal(kind, seal(kind, chunks), name="piece") == b"".join(chunks)


@given(
    sizes=st.lists(st.integers(0, 2 * BLOCK_SIZE + 2), max_size=4),
    flip=st.floats(0, 1, exclude_max=True),
)
def test_large_seals_come_back_and_show_a_flip(sizes: list[int], flip: float) -> None:
    chunks = [bytes([number]) * size for number, size in enumerate(sizes)]
    sealed = bytearray(seal("k", chunks))
    assert unseal("k", bytes(sealed), name="piece") == b"".join(chunks)
    sealed[int(flip * len(sealed))] ^= 1
    with pytest.raises(Corrupt):
        unseal("k", bytes(sealed), name="piece")


@given(data=st.binary(max_size=300))
def test_arbitrary_bytes_are_never_data(data: bytes) -> None:
    with pytest.raises(Corrupt):
        unseal("k", data, name="piece")


HOSTILE = st.one_of(
    st.text(max_size=40),
    st.lists(
        st.sampled_from(["..", ".", "", "a", "/", "~", "\\", "\0", "%2e%2e", "C:", "a.b", "-"]),
        max_size=6,
    ).map("/".join),
)


@pytest.fixture(scope="module")
def walled(tmp_path_factory: pytest.TempPathFactory) -> LocalStore:
    return LocalStore(tmp_path_factory.mktemp("wall") / "inside" / "store")


@given(path=HOSTILE)
def test_no_path_leaves_the_store(walled: LocalStore, path: str) -> None:
    wall = walled.root.parents[1]
    try:
        walled.write(path, b"data")
    except InvalidPath:
        with pytest.raises(InvalidPath):
            walled.read(path)
        with pytest.raises(InvalidPath):
            walled.delete_tree(path)
    except HeadwayError:
        pass  # a folder or a file of an earlier example stands there
    else:
        assert (walled.root / path).resolve().is_relative_to(walled.root)
        assert walled.read(path) == b"data" and path in walled.list()
    assert [entry.name for entry in wall.iterdir()] == ["inside"]
    assert [entry.name for entry in (wall / "inside").iterdir()] == ["store"]


@given(path=HOSTILE)
def test_a_checked_path_is_made_of_harmless_segments(path: str) -> None:
    try:
        segments = check_path(path)
    except InvalidPath:
        return
    assert "/".join(segments) == path
    assert all(s.isascii() and s.isprintable() and not s.startswith(".") for s in segments)
    assert not {"", ".", ".."} & set(segments)


@given(text=HOSTILE)
def test_no_run_id_leaves_the_store(walled: LocalStore, text: str) -> None:
    try:
        check_id(text)
    except InvalidIdentifier:
        for use in (Run.open, resolve_run):
            with pytest.raises(InvalidIdentifier):
                use(walled, text)
    else:
        with pytest.raises(RunNotFound):
            Run.open(walled, text)


@given(rest=HOSTILE)
def test_no_url_opens_more_than_it_names(rest: str) -> None:
    try:
        store = open_store(f"memory://{secrets.token_hex(8)}/{rest}")
    except HeadwayError:
        return
    store.write("a", b"data")
    assert ".." not in store.url.split("/")
    assert store.list() == ["a"]
    store.delete_tree("a")
