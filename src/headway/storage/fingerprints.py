"""Fingerprints of table files, cheap enough to take of every file at the start of every run.

They answer "are these still the files the run began with?", not "did somebody forge them?": of a
large file only its metadata and samples are read.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import fsspec
import msgspec

from headway.base.errors import FileNotReadable, HeadwayError
from headway.storage.failures import name_failure, words
from headway.storage.paths import local_path

SMALL = 1 << 20
READ_WHOLE = 64 << 20
_PARQUET_MAGIC = (b"PAR1", b"PARE")
_PARQUET_SAMPLES = 8
_OTHER_SAMPLES = 64
_SAMPLE_SIZE = 16 << 10
_EDGE = 1 << 20
_SAMPLED = "sampled"
_THREADS = 16

Range = tuple[int, int]
ReadRanges = Callable[[list[Range]], list[bytes]]


class FileFingerprint(msgspec.Struct, frozen=True):
    path: str
    size: int
    digest: str
    version: str = ""
    """Of a file of which only samples are read: what changes when it is written again."""


def fingerprint_file(url: str) -> FileFingerprint:
    """Of a local path or any fsspec URL; FileNotReadable when it cannot be read."""
    try:
        local = local_path(url)
        if local is not None:
            with local.open("rb", buffering=0) as file:
                handle = file.fileno()
                found = os.fstat(handle)
                version = f"{found.st_mtime_ns}"
                return _fingerprint(
                    url, found.st_size, version, lambda ranges: _read_local(handle, ranges)
                )
        fs, path = fsspec.core.url_to_fs(url, use_listings_cache=False)
        told = fs.info(path)
        version = str(told.get("ETag") or told.get("mtime") or "")
        return _fingerprint(
            url, int(told["size"]), version, lambda ranges: _read_remote(fs, path, ranges)
        )
    except HeadwayError:
        raise
    except Exception as error:
        named = name_failure(error, f"reading {url}", url)
        if named is None and not isinstance(error, ValueError | ImportError):
            raise
        raise FileNotReadable(
            f"{url} cannot be read: {words(error)}",
            hint="check that the file exists and may be read",
        ) from error


def fingerprint_files(urls: Iterable[str]) -> tuple[FileFingerprint, ...]:
    """In the order given; many remote files at a time."""
    names = list(urls)
    if all(local_path(name) is not None for name in names):
        return tuple(map(fingerprint_file, names))
    with ThreadPoolExecutor(_THREADS) as pool:
        return tuple(pool.map(fingerprint_file, names))


def same_data(first: FileFingerprint, second: FileFingerprint) -> bool:
    """Whether two files hold the same, wherever they are, as far as was read of them."""
    return (first.size, first.digest) == (second.size, second.digest)


def written_again(first: FileFingerprint, second: FileFingerprint) -> bool:
    """Whether a file seems to be the same, of which only samples are read, and was written again at
    its place."""
    same_place = first.path == second.path and first.version != second.version
    return same_place and same_data(first, second)


def _fingerprint(url: str, size: int, version: str, read: ReadRanges) -> FileFingerprint:
    scheme, ranges = _what_to_read(size, read)
    digest = hashlib.blake2b(f"{scheme} {size} ".encode(), digest_size=16)
    for part in read(ranges):
        digest.update(part)
    return FileFingerprint(url, size, digest.hexdigest(), version if scheme == _SAMPLED else "")


def _what_to_read(size: int, read: ReadRanges) -> tuple[str, list[Range]]:
    if size <= SMALL:
        return "whole", [(0, size)]
    head, tail = read([(0, 4), (size - 8, size)])
    footer = int.from_bytes(tail[:4], "little") + 8
    if head in _PARQUET_MAGIC and tail[4:] in _PARQUET_MAGIC and footer <= size - 4:
        # The footer has row counts, offsets and statistics; the samples tell apart two files
        # of fixed-width values that differ between the same extremes.
        return "parquet", [(size - footer, size), *_samples(size, _PARQUET_SAMPLES)]
    if size <= READ_WHOLE:
        return "whole", [(0, size)]
    return _SAMPLED, [(0, _EDGE), *_samples(size, _OTHER_SAMPLES), (size - _EDGE, size)]


def _samples(size: int, count: int) -> list[Range]:
    step = size // (count + 1)
    return [(step * i, step * i + _SAMPLE_SIZE) for i in range(1, count + 1)]


def _read_local(handle: int, ranges: list[Range]) -> list[bytes]:
    parts = []
    for start, end in ranges:
        part = os.pread(handle, end - start, start)
        if len(part) != end - start:
            raise OSError("it became shorter while it was read")
        parts.append(part)
    return parts


def _read_remote(fs: object, path: str, ranges: list[Range]) -> list[bytes]:
    wanted = [(start, end) for start, end in ranges if end > start]
    starts, ends = [start for start, _ in wanted], [end for _, end in wanted]
    parts: list[bytes] = fs.cat_ranges(  # type: ignore[attr-defined]
        [path] * len(wanted), starts, ends, on_error="raise"
    )
    return parts
