"""The sealed format: any bytes, wrapped so that damage is found and named, never read as data.

    prelude   magic, format version, CRC            never changes, so that any release can read it
    header    token, kind, CRC                      the token says which write this is
    blocks    tag, length, CRC, payload             about 1 MiB each
    footer    tag, block count, total length, CRC over all, CRC of the footer, end magic

Every CRC is chained on the header's, so a block of another file or in another place does not fit,
and the footer is found only by walking the blocks, so a cut at any length is seen.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Callable, Iterable, Iterator
from zlib import crc32

from headway.base.errors import FormatNotReadable, StoreCorrupt

FORMAT_VERSION = 1
BLOCK_SIZE = 1 << 20
LARGEST_BLOCK = 1 << 26  # a flipped length must not make a reader allocate gigabytes

Buffer = bytes | memoryview
Data = bytes | bytearray | memoryview | Iterable[bytes]
ReadBytes = Callable[[int], Buffer]
"""Gives the next n bytes; fewer only where the data ends."""

_MAGIC = b"\x89HDWSEAL"
_END_MAGIC = b"HDWDONE\n"
_PRELUDE = struct.Struct("<8sHI")
_HEADER = struct.Struct("<8sH")
_CRC = struct.Struct("<I")
_BLOCK = struct.Struct("<cII")
_PLACE = struct.Struct("<QI")
_FOOTER = struct.Struct("<cQQII8s")
_BLOCK_TAG, _FOOTER_TAG = b"B", b"F"

FOOTER_SIZE = _FOOTER.size


def corrupt(name: str, reason: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"{name} {reason}",
        hint="the piece cannot be used: restore it from a copy, or remove the run and start again",
    )


class SealWriter:
    """Seals what is written to it, block by block, into `sink`; whole only after `finish`."""

    def __init__(self, kind: str, sink: Callable[[Buffer], None]) -> None:
        self.header = _make_header(kind)
        self._sink = sink
        # not of the whole: a CRC over data and its own CRC is the same for any data
        self._header_crc = crc32(self.header[: -_CRC.size])
        self._running = self._header_crc
        self._count = 0
        self._length = 0
        self._pending = bytearray()
        sink(self.header)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data).cast("B")
        if self._pending:
            room = BLOCK_SIZE - len(self._pending)
            self._pending += view[:room]
            view = view[room:]
            if len(self._pending) < BLOCK_SIZE:
                return
            self._flush()
        whole = len(view) - len(view) % BLOCK_SIZE
        for start in range(0, whole, BLOCK_SIZE):
            self._emit(view[start : start + BLOCK_SIZE])
        self._pending += view[whole:]

    def finish(self) -> None:
        if self._pending:
            self._flush()
        body = _FOOTER.pack(_FOOTER_TAG, self._count, self._length, self._running, 0, _END_MAGIC)
        footer_crc = crc32(body, self._header_crc)
        self._sink(
            _FOOTER.pack(
                _FOOTER_TAG, self._count, self._length, self._running, footer_crc, _END_MAGIC
            )
        )

    def _flush(self) -> None:
        self._emit(bytes(self._pending))
        self._pending.clear()

    def _emit(self, payload: Buffer) -> None:
        place = _PLACE.pack(self._count, len(payload))
        head = _BLOCK.pack(_BLOCK_TAG, len(payload), crc32(payload, crc32(place, self._header_crc)))
        self._running = crc32(head, self._running)
        self._count += 1
        self._length += len(payload)
        self._sink(head)
        self._sink(payload)


def seal(kind: str, data: Data) -> bytes:
    """`data` in the sealed format; two calls differ in their token."""
    parts: list[Buffer] = []
    writer = SealWriter(kind, parts.append)
    for chunk in as_chunks(data):
        writer.write(chunk)
    writer.finish()
    return b"".join(parts)


def unseal(kind: str, sealed: Buffer, *, name: str) -> bytes:
    """The data inside `sealed`, or StoreCorrupt that says what is wrong with `name`."""
    return b"".join(unsealed_chunks(kind, _reading(sealed), name=name))


def as_chunks(data: Data) -> Iterable[bytes | bytearray | memoryview]:
    return (data,) if isinstance(data, bytes | bytearray | memoryview) else data


def unsealed_chunks(kind: str, read: ReadBytes, *, name: str) -> Iterator[Buffer]:
    """The data, a verified block at a time. Only after the last block is the whole verified:
    a consumer keeps nothing of a stream that ends in StoreCorrupt."""
    header_crc = _read_header(kind, read, name)
    running, count, length = header_crc, 0, 0
    while True:
        tag = bytes(read(1))
        if tag == _FOOTER_TAG:
            break
        head = tag + bytes(_exactly(read, _BLOCK.size - 1, name)) if tag else b""
        payload = _read_block(head, count, header_crc, read, name)
        running = crc32(head, running)
        count += 1
        length += len(payload)
        yield payload
    footer = tag + bytes(_exactly(read, _FOOTER.size - 1, name))
    _check_footer(footer, header_crc, (count, length, running), name)
    if len(read(1)):
        raise corrupt(name, "goes on after its end")


def check_ending(kind: str, tail: bytes, stored: int, *, name: str) -> None:
    """Refuses a truncated piece by its last bytes alone, before a stream hands out its first."""
    if stored == 0:
        raise corrupt(name, "is empty")
    if len(tail) != FOOTER_SIZE:
        raise corrupt(name, f"is truncated: only {stored} bytes are left")
    _, count, length, _, _, end = _FOOTER.unpack(tail)
    overhead = len(_make_header(kind)) + count * _BLOCK.size + FOOTER_SIZE
    if end != _END_MAGIC or overhead + length != stored:
        raise corrupt(name, f"is truncated or overwritten: its {stored} bytes have no valid end")


def _make_header(kind: str) -> bytes:
    text = kind.encode()
    prelude = _MAGIC + struct.pack("<H", FORMAT_VERSION)
    body = prelude + _CRC.pack(crc32(prelude))
    body += _HEADER.pack(secrets.token_bytes(8), len(text)) + text
    return body + _CRC.pack(crc32(body))


def _read_header(kind: str, read: ReadBytes, name: str) -> int:
    prelude = bytes(read(_PRELUDE.size))
    if not prelude:
        raise corrupt(name, "is empty")
    if len(prelude) < _PRELUDE.size:
        raise corrupt(name, f"is truncated: only {len(prelude)} bytes are left")
    magic, version, crc = _PRELUDE.unpack(prelude)
    if magic != _MAGIC:
        raise corrupt(name, "does not begin like a piece of a Headway store")
    if crc != crc32(prelude[: -_CRC.size]):
        raise corrupt(name, "has a header that does not match its CRC")
    if version != FORMAT_VERSION:
        raise FormatNotReadable(
            f"{name} is sealed in format {version}; this release reads format {FORMAT_VERSION}",
            hint="read it with the Headway release that wrote it, or a newer one",
        )
    fixed = bytes(_exactly(read, _HEADER.size, name))
    text = bytes(_exactly(read, _HEADER.unpack(fixed)[1], name))
    stored_crc = bytes(_exactly(read, _CRC.size, name))
    body = prelude + fixed + text
    if stored_crc != _CRC.pack(crc32(body)):
        raise corrupt(name, "has a header that does not match its CRC")
    if text != kind.encode():
        raise corrupt(name, f"holds {text.decode(errors='replace')!r}, not {kind!r}")
    return crc32(body)


def _read_block(head: bytes, index: int, header_crc: int, read: ReadBytes, name: str) -> Buffer:
    if not head:
        raise corrupt(name, f"is truncated after block {index}")
    tag, length, crc = _BLOCK.unpack(head)
    if tag != _BLOCK_TAG or not 0 < length <= LARGEST_BLOCK:
        raise corrupt(name, f"has a damaged block {index + 1}")
    payload = _exactly(read, length, name)
    if crc != crc32(payload, crc32(_PLACE.pack(index, length), header_crc)):
        raise corrupt(name, f"has a block {index + 1} that does not match its CRC")
    return payload


def _check_footer(footer: bytes, header_crc: int, seen: tuple[int, int, int], name: str) -> None:
    tag, count, length, running, crc, end = _FOOTER.unpack(footer)
    blank = _FOOTER.pack(tag, count, length, running, 0, end)
    if end != _END_MAGIC or crc != crc32(blank, header_crc):
        raise corrupt(name, "has an end that does not match its CRC")
    if (count, length, running) != seen:
        raise corrupt(name, f"has {seen[0]} blocks where its end says {count}")


def _exactly(read: ReadBytes, size: int, name: str) -> Buffer:
    data = read(size)
    if len(data) < size:
        raise corrupt(name, f"is truncated: {size - len(data)} bytes are missing from a part")
    return data


def _reading(data: Buffer) -> ReadBytes:
    view = memoryview(data)
    position = 0

    def read(size: int) -> memoryview:
        nonlocal position
        part = view[position : position + size]
        position += len(part)
        return part

    return read
