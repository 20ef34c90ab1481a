"""Addresses of stores."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from reef.environment import Environment
from reef.errors import BucketNotFound, InvalidName
from reef.store import FolderStore, MemoryStore, Store, open_store


def test_a_folder_in_each_spelling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    open_store("./bucket").put("a", b"here")
    for url in (
        "bucket",
        tmp_path / "bucket",
        str(tmp_path / "bucket") + "/",
        f"file://{tmp_path}/bucket",
        f"file://localhost{tmp_path}/bucke%74",
        "~/bucket",
    ):
        store = open_store(url)
        assert isinstance(store, FolderStore)
        assert bytes(store.get("a").data) == b"here"
        assert store.url == str(tmp_path.resolve() / "bucket")


def test_a_folder_is_made_only_if_wanted(tmp_path: Path) -> None:
    with pytest.raises(BucketNotFound):
        open_store(tmp_path / "a" / "b", create=False)
    assert not (tmp_path / "a").exists()
    open_store(tmp_path / "a" / "b")
    open_store(tmp_path / "a" / "b", create=False)


def test_memory_is_new_unless_named() -> None:
    assert isinstance(open_store("memory://"), MemoryStore)
    assert open_store("memory://") is not open_store("memory://")
    named = open_store("memory://test-url")
    assert named is open_store("memory://test-url")
    assert named is not open_store("memory://test-url-2")
    assert named.url == "memory://test-url"


def test_the_clock_is_handed_on() -> None:
    store = open_store("memory://", environment=Environment(now=lambda: 12.0))
    store.put("a", b"")
    assert store.head("a").modified == 12.0


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket",
        "s3://bucket/some/prefix",
        "s3://bucket/a%20b",
        "s3://bucket?endpoint=http://127.0.0.1:9000&region=eu-west-1",
        "s3://bucket/x?endpoint=http://127.0.0.1:9000&allow_http=true&virtual_hosted=false",
        "gs://bucket/prefix",
        "az://container/prefix",
    ],
)
def test_cloud_addresses_are_kept(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    store = open_store(url)
    assert store.url == url
    again = open_store(store.url)
    assert again.url == url


def test_options_beat_the_address_and_secrets_stay_secret() -> None:
    store = open_store(
        "s3://bucket?region=here&endpoint=http://127.0.0.1:1",
        region="there",
        access_key_id="visible-id",
        secret_access_key="very-secret",
        timeout=1,
        retries=0,
    )
    assert store.url == "s3://bucket?endpoint=http://127.0.0.1:1&region=there"
    assert "secret" not in repr(store)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://host/path",
        "http://bucket",
        "s3://",
        "s3:///prefix",
        "s3://user:password@bucket",
        "s3://bucket/a/../b",
        "s3://bucket/a//b",
        "s3://bucket?nonsense=1",
        "s3://bucket?endpoint",
        "s3://bucket?endpoint=localhost:9000",
        "s3://bucket?timeout=soon",
        "s3://bucket?timeout=-1",
        "s3://bucket?allow_http=maybe",
        "s3://bucket?secret_access_key=x",
        "s3://bucket#part",
        "s3://[bucket",
        "memory://a/../b",
        "file://host/path",
        "file://",
        "a\0b",
    ],
)
def test_bad_addresses(url: str) -> None:
    with pytest.raises(InvalidName) as caught:
        open_store(url)
    assert "\n" not in str(caught.value)
    assert str(caught.value)


SECRETS = ["hunter2-hunter2", "hun/ter2+hun/ter2==", "hun?ter2#hunter2", "hunter2%2Fhunter2@x"]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(
    "address",
    [
        "ftp://user:{}@host/path",
        "https://AKIA:{}@bucket.example",
        "postgres://user:{}@host?x=1",
        "s3://AKIA:{}@bucket/prefix",
        "s3://AKIA:{}",
        "s3://AKIA:{}/prefix",
        "s3://bucket?secret_access_key={}",
        "s3://bucket?secret_access_key={}&endpoint=http://127.0.0.1:1",
        "s3://bucket?aws_secret_access_key={}",
        "s3://bucket?X-Amz-Signature={}",
        "s3://bucket?{}",
        "s3://bucket#{}",
        "s3://[bucket?session_token={}",
        "s3://bucket?endpoint=http://user:{}@127.0.0.1:9000",
        "s3://bucket?endpoint=user:{}@127.0.0.1:9000",
        "s3://bucket?endpoint=http://127.0.0.1:9000?token={}",
        "s3://bucket/a//{}@x?endpoint=http://127.0.0.1:1",
        "az://account:{}@container",
        "file://user:{}@host/path",
        "memory://user:{}@a/../b",
        "user:{}@host\0",
    ],
)
def test_a_refused_address_does_not_repeat_secrets(address: str, secret: str) -> None:
    with pytest.raises(InvalidName) as caught:
        open_store(address.format(secret))
    # The text with its causes, and not the lines of this file that a traceback would quote.
    chain = traceback.TracebackException.from_exception(caught.value)
    told = "".join(chain.format_exception_only())
    assert chain.__cause__ is None
    assert chain.__suppress_context__ or chain.__context__ is None
    assert "ter2" not in told
    assert "\n" not in str(caught.value)


def test_what_is_harmless_of_a_refused_address_is_shown() -> None:
    with pytest.raises(InvalidName) as caught:
        open_store("s3://user:pw@bucket/prefix?region=eu-west-1&endpoint=http://host:9000&sig=x")
    shown = "'s3://***@bucket/prefix?region=eu-west-1&endpoint=http://host:9000&***'"
    assert str(caught.value) == f"{shown} does not name a bucket"


def test_an_endpoint_of_the_environment_does_not_repeat_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://user:hunter2@127.0.0.1:1")
    with pytest.raises(InvalidName, match="has more than host, port and path") as caught:
        open_store("s3://bucket")
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_a_file_is_no_bucket(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InvalidName, match="is a file"):
        open_store(tmp_path / "file")
    with pytest.raises(InvalidName, match="region"):
        open_store(tmp_path, region="x")


def test_prefixes_do_not_see_each_other(s3_store: Store, s3_url: str) -> None:
    bucket, mark, query = s3_url.partition("?")
    s3_store.put("a b/%c", b"x")
    inner = open_store(f"{bucket}/a%20b{mark}{query}")
    assert [info.key for info in inner.list("")] == ["%c"]
    assert bytes(inner.get("%c").data) == b"x"
    other = open_store(f"{bucket}/a{mark}{query}")
    assert list(other.list("")) == []
