"""`schedlang fmt`: which files it touches, what it says, how it ends."""

import gzip
import io
import os
import sys

import pytest

from schedlang.cli.main import main
from schedlang.ir import json as table_json
from tests import tables

ROUGH, SMOOTH, BROKEN = "fn f( x )=x\n", "fn f(x) = x\n", "fn f(x = x\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "deep").mkdir()
    (tmp_path / "rough.sched").write_text(ROUGH)
    (tmp_path / "deep" / "smooth.sched").write_text(SMOOTH)
    (tmp_path / "other.txt").write_text(ROUGH)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_files_and_folders_are_formatted(folder, capsys):
    assert main(["fmt", "."]) == 0
    assert (folder / "rough.sched").read_text() == SMOOTH
    assert (folder / "other.txt").read_text() == ROUGH
    out, err = capsys.readouterr()
    assert out == "formatted rough.sched\n"
    assert err == "1 file formatted, 1 file unchanged\n"
    assert main(["fmt", ".", "--check"]) == 0


def test_check_writes_nothing(folder, capsys):
    assert main(["fmt", "--check", "."]) == 1
    assert (folder / "rough.sched").read_text() == ROUGH
    assert capsys.readouterr().out == "would format rough.sched\n"
    assert main(["fmt", "--check", "deep/smooth.sched"]) == 0


def test_diff_writes_nothing(folder, capsys):
    assert main(["fmt", "--diff", "rough.sched"]) == 0
    assert main(["fmt", "--diff", "--check", "rough.sched"]) == 1
    assert (folder / "rough.sched").read_text() == ROUGH
    assert "-fn f( x )=x\n+fn f(x) = x\n" in capsys.readouterr().out


def test_a_broken_file_is_reported_and_the_others_formatted(folder, capsys):
    (folder / "broken.sched").write_text(BROKEN)
    assert main(["fmt", "."]) == 2
    assert (folder / "broken.sched").read_text() == BROKEN
    assert (folder / "rough.sched").read_text() == SMOOTH
    err = capsys.readouterr().err
    assert "broken.sched:1:5" in err and "1 file unreadable" in err


def test_an_op_table_is_called_that(folder, capsys):
    (folder / "table.json").write_text(table_json.dumps(tables.ring(2)))
    (folder / "importer.sched").write_text('import "table.json"\n')
    for arguments in (["fmt", "--check", "table.json"], ["verify", "importer.sched"]):
        assert main(arguments) == 2
        said = "".join(capsys.readouterr())
        assert "table.json:1:1: error[SL101] syntax-error: this is JSON" in said and said.count("error[") == 1


@pytest.mark.parametrize("arguments", [["missing.sched"], ["empty"], []])
def test_nothing_to_format(arguments, folder, capsys):
    (folder / "empty").mkdir()
    assert main(["fmt", *arguments]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_line_ends_permissions_and_links_stay(folder):
    file = folder / "rough.sched"
    file.write_bytes(ROUGH.replace("\n", "\r\n").encode())
    file.chmod(0o640)
    link = folder / "link.sched"
    link.symlink_to(file)
    assert main(["fmt", "link.sched"]) == 0
    assert link.is_symlink()
    assert file.read_bytes() == SMOOTH.replace("\n", "\r\n").encode()
    assert file.stat().st_mode & 0o777 == 0o640


def test_standard_input_goes_to_standard_output(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(ROUGH.encode())))
    assert main(["fmt", "-"]) == 0
    assert capsys.readouterr().out == SMOOTH


def test_a_file_named_twice_is_formatted_once(folder, capsys):
    assert main(["fmt", "rough.sched", "rough.sched"]) == 0
    assert capsys.readouterr().err == "1 file formatted\n"


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="permissions do not bind the superuser")
def test_a_folder_that_cannot_be_written(folder, capsys):
    folder.chmod(0o500)
    try:
        assert main(["fmt", "rough.sched"]) == 2
    finally:
        folder.chmod(0o700)
    assert "SL807" in capsys.readouterr().err


@pytest.mark.parametrize("text", ['<algo name="a">', '<?xml version="1.0"?>\n<algo/>', "\n  <!-- by hand -->"])
def test_xml_is_not_formatted(folder, capsys, text):
    (folder / "ring.xml").write_text(text)
    assert main(["fmt", "ring.xml"]) == 2 and (folder / "ring.xml").read_text() == text
    said = capsys.readouterr().err
    assert "error[SL101] syntax-error: this is XML" in said and "--target sched" in said and said.count("error[") == 1


def test_what_is_compressed_is_not_formatted(folder, capsys):
    (folder / "ring.xml.gz").write_bytes(gzip.compress(b"<algo/>"))
    assert main(["fmt", "ring.xml.gz"]) == 2
    said = capsys.readouterr().err
    assert "error[SL105] unreadable: ring.xml.gz is compressed, not text" in said and "gunzip ring.xml.gz" in said
