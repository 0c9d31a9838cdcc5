"""Stores for the unit tests: a folder, fsspec's memory, S3 by moto, a plain fsspec folder."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from headway.storage import ReliableStore, open_store
from headway.storage.remote import FsspecStore


@pytest.fixture(scope="session")
def s3_bucket() -> Iterator[str]:
    """A bucket on a server of this test run; the environment points S3 clients to it."""
    from moto.server import ThreadedMotoServer  # slow to import, and not every test needs it

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        fsspec.filesystem("s3", use_listings_cache=False).mkdir("headway-tests")
        yield "s3://headway-tests"
    server.stop()


@pytest.fixture
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], ReliableStore]:
    """An empty store of the kind: local, memory, s3, or other."""

    def make(kind: str) -> ReliableStore:
        name = secrets.token_hex(6)
        if kind == "local":
            return open_store(str(tmp_path / name))
        if kind == "memory":
            return open_store(f"memory://{name}/runs")
        if kind == "s3":
            return open_store(f"{request.getfixturevalue('s3_bucket')}/{name}")
        # stands for SFTP, HDFS and the like: no conditional write, no whole put
        root = str(tmp_path / name)
        return FsspecStore(LocalFileSystem(), root, f"other://{name}", protocol="other")

    return make


@pytest.fixture(params=["local", "memory", "s3", "other"])
def store(
    request: pytest.FixtureRequest, make_store: Callable[[str], ReliableStore]
) -> ReliableStore:
    return make_store(request.param)
