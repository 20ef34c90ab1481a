"""The command line on a real object store."""

from __future__ import annotations

from cli.running import Shell


def test_a_bucket_behind_s3(shell: Shell, s3_url: str) -> None:
    shell.bucket = s3_url
    assert shell.ok("list").text == ""
    assert "there is no namespace" in shell.run("count", "m").err
    shell.ok("create", "m", "--retention", "0", "--grace", "0")
    shell.ok("write", "m", stdin='{"id":"a","n":1}\n{"id":"b","n":null}\n')
    shell.ok("load", "m", "--from", shell.file("more.csv", "id,n\nc,3\n"))
    shell.ok("index", "m", "--all")
    shell.ok("compact", "m", "--full")
    assert shell.ok("verify", "m", "--deep", "--json").document["sound"]
    assert shell.ok("gc", "m", "--apply", "--json").document["deleted"] > 0
    assert shell.ok("scan", "m").lines == [
        {"id": "a", "n": 1},
        {"id": "b", "n": None},
        {"id": "c", "n": 3},
    ]
    assert shell.ok("list").text == "m\n"
    shell.ok("drop", "m", "--yes")
    assert shell.ok("list").text == ""
