"""The sealed format."""

from __future__ import annotations

import io
import struct
from zlib import crc32

import pytest

from headway.base.errors import FormatNotReadable, StoreCorrupt
from headway.storage.blocks import (
    BLOCK_SIZE,
    FOOTER_SIZE,
    SealWriter,
    check_ending,
    seal,
    unseal,
    unsealed_chunks,
)


@pytest.mark.parametrize("size", [0, 1, BLOCK_SIZE - 1, BLOCK_SIZE, BLOCK_SIZE + 1, 3 * BLOCK_SIZE])
def test_what_is_sealed_is_read_back(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    data = data[:size]
    assert unseal("k", seal("k", data), name="piece") == data


def test_chunks_are_joined_into_blocks() -> None:
    chunks = [b"a" * 700_000, b"", b"b" * 700_000, b"c" * 2_100_000]
    sealed = seal("k", iter(chunks))
    blocks = [len(b) for b in unsealed_chunks("k", io.BytesIO(sealed).read, name="piece")]
    assert blocks == [BLOCK_SIZE, BLOCK_SIZE, BLOCK_SIZE, 3_500_000 - 3 * BLOCK_SIZE]
    assert unseal("k", sealed, name="piece") == b"".join(chunks)


def test_a_cut_at_a_block_boundary_is_found() -> None:
    parts: list[bytes] = []
    writer = SealWriter("k", lambda part: parts.append(bytes(part)))
    writer.write(b"x" * (3 * BLOCK_SIZE))
    writer.finish()
    for kept in range(len(parts)):
        with pytest.raises(StoreCorrupt, match=r"^piece is (empty|truncated)"):
            unseal("k", b"".join(parts[:kept]), name="piece")


def test_blocks_of_two_seals_do_not_mix() -> None:
    first, second = seal("k", b"one"), seal("k", b"two")
    header = len(first) - FOOTER_SIZE - 3 - 9
    for cut in (header, len(first) - FOOTER_SIZE):
        with pytest.raises(StoreCorrupt):
            unseal("k", first[:cut] + second[cut:], name="piece")


def test_two_blocks_of_one_seal_do_not_change_places() -> None:
    sealed = seal("k", b"a" * BLOCK_SIZE + b"b" * BLOCK_SIZE)
    size = BLOCK_SIZE + 9
    start = len(sealed) - FOOTER_SIZE - 2 * size
    first, second = sealed[start : start + size], sealed[start + size : start + 2 * size]
    swapped = sealed[:start] + second + first + sealed[-FOOTER_SIZE:]
    with pytest.raises(StoreCorrupt, match="block 1 that does not match"):
        unseal("k", swapped, name="piece")


@pytest.mark.parametrize("more", [b"\0", b"F", seal("k", b"again")], ids=["zero", "letter", "seal"])
def test_bytes_after_the_end_are_found(more: bytes) -> None:
    with pytest.raises(StoreCorrupt, match="goes on after its end"):
        unseal("k", seal("k", b"data") + more, name="piece")


def test_another_kind_is_named() -> None:
    with pytest.raises(StoreCorrupt, match="piece holds 'event', not 'manifest'"):
        unseal("manifest", seal("event", b"data"), name="piece")


def test_foreign_bytes_are_not_data() -> None:
    with pytest.raises(StoreCorrupt, match="does not begin like"):
        unseal("k", b"PAR1 something else entirely", name="piece")


def test_a_newer_format_is_refused_by_name() -> None:
    prelude = seal("k", b"")[:8] + struct.pack("<H", 7)
    newer = prelude + struct.pack("<I", crc32(prelude)) + b"whatever comes then"
    with pytest.raises(FormatNotReadable, match="piece is sealed in format 7") as caught:
        unseal("k", newer, name="piece")
    assert caught.value.hint is not None


def test_a_flipped_version_is_damage_and_not_a_newer_format() -> None:
    sealed = bytearray(seal("k", b"data"))
    sealed[8] ^= 4
    with pytest.raises(StoreCorrupt, match="header that does not match"):
        unseal("k", bytes(sealed), name="piece")


def test_every_truncation_shows_at_the_end_already() -> None:
    sealed = seal("k", b"data" * 10)
    check_ending("k", sealed[-FOOTER_SIZE:], len(sealed), name="piece")
    for length in range(len(sealed)):
        with pytest.raises(StoreCorrupt):
            check_ending("k", sealed[:length][-FOOTER_SIZE:], length, name="piece")
