"""Original files: download, archive, list and file manager, for clients on this machine or where allowed."""

from __future__ import annotations

import csv
import io
import socket
import threading
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.service.support import API, KEY, application, assert_problem, id_of, service, soon

from vse.index.types import Item, MediaFile
from vse.service import files, media
from vse.service.problems import ProblemError

AWAY = [
    {"x-forwarded-for": "10.0.0.9"},
    {"forwarded": "for=10.0.0.9"},
    {"x-real-ip": "10.0.0.9"},
    {"via": "1.1 proxy"},
]


def test_original_is_the_file(client, home):
    """The same bytes under the name of the file, shown or saved, with ranges and revalidation."""
    content = (home.photos / "b.jpg").read_bytes()
    where = f"{API}/items/{id_of(client, 'b.jpg')}/original"
    shown = client.get(where)
    assert (shown.status_code, shown.content) == (200, content)
    assert shown.headers["content-type"] == "image/jpeg"
    assert shown.headers["content-disposition"] == "inline; filename=\"b.jpg\"; filename*=UTF-8''b.jpg"
    saved = client.get(where, params={"download": "1"})
    assert saved.headers["content-disposition"].startswith("attachment;")
    part = client.get(where, headers={"range": "bytes=5-9"})
    assert (part.status_code, part.content) == (206, content[5:10])
    assert client.get(where, headers={"if-none-match": shown.headers["etag"]}).status_code == 304
    head = client.head(where)
    assert (head.headers["content-length"], head.content) == (str(len(content)), b"")
    item = client.get(f"{API}/items/{id_of(client, 'b.jpg')}").json()
    assert item["original"] == where


@given(name=st.text(st.characters(codec=None), min_size=1))
def test_download_name_stays_in_its_header(name):
    """Quotes, line breaks, slashes and bytes that are not Unicode cannot add a header, a parameter or a folder."""
    value = files.disposition(name, attachment=True)
    assert value.isascii()
    assert value.isprintable()
    kind, plain, encoded = value.split("; ") if value.count("; ") == 2 else (value.split("; ", 1)[0], value, value)
    assert kind == "attachment"
    assert value.count('"') == 2
    assert "/" not in plain
    assert "\\" not in plain
    assert encoded.rpartition("''")[2].isprintable()


def test_folders_of_the_machine_are_shown_on_it_only(home):
    """Results and items have the path below the root for everybody, and the root where originals may be had."""
    with application(home.index) as client:
        found = client.get(f"{API}/items").json()["results"]
        assert {each["root"] for each in found} == {str(home.photos)}
        assert {each["path"] for each in found} >= {"a.png", "sea/c.png"}
        for headers in (*AWAY, {"host": "photos.example"}):
            assert str(home.folder) not in client.get(f"{API}/items", headers=headers).text
        described = client.get(f"{API}/collection").json()["original_files"]
        assert described["original"] is described["roots"] is described["archives"] is described["lists"] is True
    with application(home.index, peer="10.0.0.9") as client:
        for path in ("items", f"items/{id_of(client, 'b.jpg')}", "search?q=snow", "collection"):
            assert str(home.folder) not in client.get(f"{API}/{path}").text
        described = client.get(f"{API}/collection").json()["original_files"]
        assert not any(described[name] for name in ("original", "roots", "archives", "reveal"))


def test_originals_for_other_machines_are_an_option(home):
    """403 with a type by default, for the file and the archive; with ``originals`` both are given, and the root."""
    for allowed in (False, True):
        with application(home.index, host="0.0.0.0", key=KEY, originals=allowed, peer="10.0.0.9") as client:
            client.headers["authorization"] = f"Bearer {KEY}"
            item = id_of(client, "b.jpg")
            answers = [
                client.get(f"{API}/items/{item}/original"),
                client.post(f"{API}/export", json={"ids": [item], "format": "zip"}),
            ]
            root = client.get(f"{API}/items/{item}").json()["root"]
            shown = client.post(f"{API}/items/{item}/reveal")
            assert_problem(shown, 403, "loopback")
            assert shown.json()["type"] == "urn:vse:problem:not-local"
            if allowed:
                assert [each.status_code for each in answers] == [200, 200]
                assert root == str(home.photos)
            else:
                assert [assert_problem(each, 403, "--originals") for each in answers]
                assert {each.json()["type"] for each in answers} == {"urn:vse:problem:not-local"}
                assert root is None


def test_results_mark_missing_files(own):
    """A deleted file is ``missing`` in lists, searches and details, and its original is 404."""
    with application(own.index) as client:
        item = id_of(client, "e.png")
        (own.photos / "e.png").unlink()
        for path in ("items", "search?q=snow"):
            marked = {each["name"]: each["missing"] for each in client.get(f"{API}/{path}").json()["results"]}
            assert [name for name, missing in marked.items() if missing] == ["e.png"]
        details = client.get(f"{API}/items/{item}").json()
        assert (details["missing"], details["available"]) == (True, False)
        assert_problem(client.get(f"{API}/items/{item}/original"), 404, "moved or deleted")


def test_dates_are_iso(client):
    """``date`` is the local time of capture without a zone, beside ``taken``; null without one."""
    for path in ("items", "search?q=snow"):
        dates = {each["name"]: each["date"] for each in client.get(f"{API}/{path}").json()["results"]}
        assert dates["b.jpg"] == "2024-05-17T12:00:00"
        assert dates["a.png"] is None


@pytest.mark.parametrize(
    ("platform", "command"),
    [
        ("linux", ["xdg-open", "/photos/sea"]),
        ("darwin", ["open", "-R", "/photos/sea/c.png"]),
        ("win32", ["explorer", "/select,\\photos\\sea\\c.png"]),
    ],
)
def test_reveal_command_of_each_system(platform, command):
    """The file is selected where the file manager can; xdg-open would open the image, so it gets the folder."""
    assert files.reveal_command("/photos/sea/c.png", platform) == command


def test_reveal_needs_a_desktop(client, monkeypatch):
    """Without a session or xdg-open it is a problem with a type, and /collection says so."""
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert client.get(f"{API}/collection").json()["original_files"]["reveal"] is False
    response = client.post(f"{API}/items/{id_of(client, 'b.jpg')}/reveal")
    assert_problem(response, 403, "file manager")
    assert response.json()["type"] == "urn:vse:problem:no-desktop"


def test_reveal_runs_the_file_manager(own, monkeypatch, tmp_path):
    """With the folder of an existing file; a page of another origin, a proxy or a deleted file opens nothing."""
    program, seen = tmp_path / "xdg-open", tmp_path / "seen"
    program.write_text(f'#!/bin/sh\necho "$1" >> {seen}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("sys.platform", "linux")
    with application(own.index) as client:
        item = id_of(client, "c.png")
        where = f"{API}/items/{item}/reveal"
        assert client.get(f"{API}/collection").json()["original_files"]["reveal"] is True
        for headers in (
            {"origin": "http://evil.example"},
            {"origin": "null"},
            {"origin": "http://127.0.0.1:9999"},
            {"sec-fetch-site": "same-site"},
            *AWAY,
        ):
            assert_problem(client.post(where, headers=headers), 403)
        assert not seen.exists()
        assert client.post(where, headers={"origin": "http://127.0.0.1:8080"}).status_code == 204
        assert client.post(where).status_code == 204
        assert seen.read_text().splitlines() == [str(own.photos / "sea")] * 2
        program.write_text("#!/bin/sh\nexit 3\n")
        assert_problem(client.post(where), 403, "file manager")
        (own.photos / "sea" / "c.png").unlink()
        assert_problem(client.post(where), 404, "moved or deleted")


def test_export_lists(client, home):
    """CSV, JSON and plain paths name each item in the given order, once."""
    ids = [id_of(client, name) for name in ("b.jpg", "c.png", "clip.mp4")]
    asked = {"ids": [*ids, ids[0]]}
    table = client.post(f"{API}/export", json=asked)
    assert table.headers["content-type"] == "text/csv; charset=utf-8"
    assert table.headers["content-disposition"].startswith('attachment; filename="export.csv"')
    rows = list(csv.DictReader(io.StringIO(table.text)))
    assert [int(row["id"]) for row in rows] == ids
    assert [row["path"] for row in rows] == ["b.jpg", "sea/c.png", "clip.mp4"]
    assert rows[0]["date"] == "2024-05-17T12:00:00"
    listed = client.post(f"{API}/export", json={**asked, "format": "json"}).json()["items"]
    assert [each["id"] for each in listed] == ids
    assert {each["root"] for each in listed} == {str(home.photos)}
    paths = client.post(f"{API}/export", json={**asked, "format": "paths"}).text.splitlines()
    assert paths == [str(home.photos / name) for name in ("b.jpg", "sea/c.png", "clip.mp4")]


def test_export_list_escapes_formulas_and_line_breaks():
    """A name that a spreadsheet would compute, or that is two lines, stays one harmless value."""
    row = files.Listed(1, "=1+1\n.png", None, "image", None, None, None, missing=False)
    assert list(csv.reader(io.StringIO(files.csv_list([row]))))[1][1] == "'=1+1\n.png"
    assert files.path_list([row, row]) == "=1+1\\n.png\n"


def test_export_archive_holds_the_files(own):
    """Each file once, stored, under its path; a missing one is listed; Python and other programs can read it."""
    with application(own.index) as client:
        names = ("a.png", "sea/c.png", "clip.mp4", "e.png")
        ids = [id_of(client, name.rpartition("/")[2]) for name in names]
        (own.photos / "e.png").unlink()
        response = client.post(f"{API}/export", json={"ids": [*ids, *ids], "format": "zip"})
        assert response.headers["content-type"] == "application/zip"
        with zipfile.ZipFile(io.BytesIO(response.content)) as archive:
            assert archive.testzip() is None
            assert set(archive.namelist()) == {*names[:3], "missing.txt"}
            assert "e.png" in archive.read("missing.txt").decode()
            for name in names[:3]:
                assert archive.read(name) == (own.photos / name).read_bytes()
                assert archive.getinfo(name).compress_type == zipfile.ZIP_STORED
        gone = client.post(f"{API}/export", json={"ids": [ids[3]], "format": "zip"})
        assert_problem(gone, 404, "none of the 1 files")


def test_export_bad_input(own):
    """Unknown ids are 404; too many, none, or a wrong format 422; too many bytes 422 with the limit."""
    with application(own.index, limits={"archive": 1000}) as client:
        where, item = f"{API}/export", id_of(client, "a.png")
        assert_problem(client.post(where, json={"ids": [item, 987654]}), 404, "987654")
        assert_problem(client.post(where, json={"ids": []}), 422, "ids")
        assert_problem(client.post(where, json={"ids": [1] * 2001}), 422, "ids")
        assert_problem(client.post(where, json={"ids": [item], "format": "tar"}), 422, "format")
        assert_problem(client.post(where, json={"ids": [item], "format": "zip"}), 422, "at most 1,000")
        assert_problem(client.post(where, json={"ids": [item], "more": 1}), 422, "more")


@given(st.lists(st.sampled_from(["a.png", "A.png", "a (2).png", "a", "x/a.png", "x/A", "MISSING.txt", "con:.png"])))
def test_archive_names_are_unique_in_any_letter_case(paths):
    """However many files of however many roots have one name."""
    taken = {files.MISSING_LIST}
    names = [files._unique(files._archive_name(path), taken) for path in paths]
    assert len({name.casefold() for name in (*names, files.MISSING_LIST)}) == len(names) + 1
    assert not any(set(name) & set(files.UNSAFE) for name in names)


def test_archive_of_a_file_that_vanishes_meanwhile(tmp_path, monkeypatch):
    """One that is gone or shorter by then is listed, and the rest is complete."""
    monkeypatch.setattr(media, "_served", [media.ServedRoots("", [str(tmp_path)])])
    made = []
    for name in ("a.png", "b.png", "c.png"):
        (tmp_path / name).write_bytes(name.encode() * 1_000_000)
        made.append(Item(len(made) + 1, MediaFile(str(tmp_path), name, "image", 1, 1, "d", 1, 1)))
    blocks = files.zip_blocks(files.plan_archive(made, 10**9))
    first = next(blocks)
    (tmp_path / "b.png").unlink()
    with (tmp_path / "a.png").open("r+b") as file:
        file.truncate(1_000_000)
    with zipfile.ZipFile(io.BytesIO(first + b"".join(blocks))) as archive:
        assert archive.read("c.png") == b"c.png" * 1_000_000
        assert archive.read("missing.txt").decode().splitlines()[1:] == ["a.png (incomplete)", "b.png"]


def test_archive_streams_with_little_memory(own, tmp_path):
    """Files larger than the buffers are read as fast as they are sent, and closed when the client leaves."""
    for name in ("clip.mp4", "a.png"):
        with (own.photos / name).open("ab") as file:
            file.truncate(60_000_000)
    with service(own.index, tmp_path) as served:
        ids = [id_of(served.client, name) for name in ("clip.mp4", "a.png")]
        body = f'{{"ids": {ids}, "format": "zip"}}'.encode()
        head = f"POST {API}/export HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
        before = served.descriptors()
        with socket.create_connection(("127.0.0.1", served.port), 20) as connection:
            connection.sendall(f"{head}{len(body)}\r\n\r\n".encode() + body)
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        assert soon(lambda: served.descriptors() <= before)
        whole = served.client.post(f"{API}/export", content=body, headers={"content-type": "application/json"})
        assert len(whole.content) > 120_000_000
        assert served.peak_memory() - served.memory() < 50_000_000


def test_originals_of_replaced_files_are_not_given(own):
    """A link in place of the file is neither downloaded nor archived."""
    secret = own.folder / "secret"
    secret.write_bytes(b"the secret")
    with application(own.index) as client:
        item, other = id_of(client, "a.png"), id_of(client, "b.jpg")
        (own.photos / "a.png").unlink()
        (own.photos / "a.png").symlink_to(secret)
        assert_problem(client.get(f"{API}/items/{item}/original"), 404)
        archive = client.post(f"{API}/export", json={"ids": [item, other], "format": "zip"}).content
        assert b"the secret" not in archive
        assert zipfile.ZipFile(io.BytesIO(archive)).namelist() == ["b.jpg", "missing.txt"]


def test_file_manager_in_the_foreground_is_not_waited_for(monkeypatch):
    """The response comes at once, and the process is reaped when it ends."""
    monkeypatch.setattr(files, "REVEAL_SECONDS", 0.05)
    threads = threading.active_count()
    files._start(["sleep", "0.3"])
    assert threading.active_count() == threads + 1
    assert soon(lambda: threading.active_count() == threads)
    with pytest.raises(ProblemError, match="file manager"):
        files._start(["a-program-that-does-not-exist"])
