"""Files: read unless they have no end; written as a whole or not at all, and never in the place of what is no file."""

import os
import stat
import threading
from pathlib import Path

import pytest

from schedlang.cli.main import main
from schedlang.diagnostics import SchedError
from schedlang.files import read_file, write_file


def names(folder) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_file_is_written_or_replaced(tmp_path):
    path = tmp_path / "a"
    for content in (b"first", b"2"):
        write_file(str(path), lambda file, content=content: file.write(content))
        assert path.read_bytes() == content and names(tmp_path) == ["a"]
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


def test_permissions_stay(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"")
    path.chmod(0o600)
    write_file(str(path), lambda file: file.write(b"x"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_links_stay_links(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere" / "file")
    for content in (b"1", b"2"):
        write_file(str(link), lambda file, content=content: file.write(content))
        assert link.is_symlink() and (tmp_path / "elsewhere" / "file").read_bytes() == content
    assert names(tmp_path / "elsewhere") == ["file"] and names(tmp_path) == ["elsewhere", "link"]


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    pipe, received = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_file(str(pipe), lambda file: file.write(b"through"))
    reader.join(10)
    assert received == [b"through"] and stat.S_ISFIFO(pipe.stat().st_mode) and names(tmp_path) == ["pipe"]


@pytest.mark.parametrize("failure", [OSError(28, "no space left"), MemoryError(), KeyboardInterrupt()])
def test_after_a_failure_all_is_as_it_was(tmp_path, failure):
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def fail(file):
        file.write(b"half")
        raise failure

    with pytest.raises(SchedError if isinstance(failure, OSError) else type(failure)):
        write_file(str(path), fail)
    assert path.read_bytes() == b"old" and names(tmp_path) == ["a"]


@pytest.mark.parametrize("path", ["", ".", "nowhere/at/all", "null\0character"])
def test_what_cannot_be_written_is_refused(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SchedError) as refused:
        write_file(path, lambda file: file.write(b"x"))
    assert refused.value.diagnostics[0].code == "SL807" and names(tmp_path) == []


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="there is no /dev/zero here")
def test_a_device_has_no_end():
    with pytest.raises(OSError, match="it is a device"):
        read_file("/dev/zero")


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="there is no /dev/zero here")
@pytest.mark.parametrize("arguments", [
    ["verify", "/dev/zero"], ["verify", "examples/alltoallv/pairwise.sched", "-p", "counts=@/dev/zero"]])
def test_no_command_reads_a_device(arguments, capfd, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
    assert main(arguments) == 2
    said = capfd.readouterr()
    assert "it is a device" in said.out + said.err
