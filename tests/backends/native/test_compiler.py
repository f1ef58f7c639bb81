"""The compiler is found or missed in one sentence; what it makes is kept, and nothing but whole libraries is loaded."""

import os
from pathlib import Path

import pytest

from schedlang.backends.cuda import kept
from schedlang.backends.native import compiler
from schedlang.diagnostics import SchedError

SOURCE = 'extern "C" int answer() { return 42; }\n'


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and a header that costs no time."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(compiler, "HERE", tmp_path)
    (tmp_path / compiler.HEADER).write_text("#define MEANING 42\n")
    return tmp_path / "cache" / "schedlang" / "native"


@pytest.fixture
def compiled(monkeypatch):
    """How often the compiler was asked."""
    asked = []
    real = compiler._compile
    monkeypatch.setattr(compiler, "_compile", lambda *args: (asked.append(args), real(*args)))
    return asked


def test_compiled_once(cache, compiled):
    assert compiler.load(SOURCE).answer() == 42
    assert compiler.load(SOURCE).answer() == 42
    assert len(compiled) == 1
    assert [path.suffix for path in cache.iterdir()] == [".so"], "nothing is left behind"
    assert os.stat(cache).st_mode & 0o077 == 0


@pytest.mark.parametrize("what", ["source", "flags", "header", "version"])
def test_what_makes_another_library(what, cache, compiled, monkeypatch):
    compiler.load(SOURCE)
    if what == "source":
        compiler.load(SOURCE + "\n")
    elif what == "flags":
        compiler.load(SOURCE, flags=["-DOTHER"])
    elif what == "header":
        (compiler.HERE / compiler.HEADER).write_text("#define MEANING 43\n")
        assert compiler.load('extern "C" int answer() { return MEANING; }').answer() == 43
    else:
        found = compiler.find()
        monkeypatch.setattr(compiler, "find", lambda: compiler.Compiler(found.command, found.version + "next"))
        compiler.load(SOURCE)
    assert len(compiled) == 2


@pytest.mark.parametrize("damage", ["cut", "empty", "flip", "unsealed"])
def test_damaged_libraries_are_made_anew(damage, cache, compiled):
    compiler.load(SOURCE)
    [path] = cache.iterdir()
    data = bytearray(path.read_bytes())
    path.unlink()                                           # the one that is loaded keeps its memory
    if damage == "flip":
        data[len(data) // 2] ^= 1
    path.write_bytes({"cut": data[: len(data) // 2], "empty": b"", "flip": data, "unsealed": data[:-100]}[damage])
    compiler.load(SOURCE)
    assert len(compiled) == 2
    assert kept.whole(path)


def test_a_whole_file_that_the_loader_refuses_is_made_anew(cache, compiled):
    path = kept.folder(compiler.FOLDER) / f"{compiler._key(compiler.find(), SOURCE, ())}.so"
    path.write_bytes(kept.sealed(b"of another system"))
    assert compiler.load(SOURCE).answer() == 42
    assert len(compiled) == 1


def test_the_cache_is_bounded(cache, monkeypatch):
    sources = [SOURCE + f"// {k}\n" for k in range(4)]
    for k, source in enumerate(sources):
        compiler.load(source)
        for path in cache.iterdir():
            os.utime(path, (os.stat(path).st_atime, min(os.stat(path).st_mtime, 1000 + k)))
    size = next(cache.iterdir()).stat().st_size
    before = {path: path.stat().st_mtime for path in cache.iterdir()}
    monkeypatch.setattr(compiler, "KEPT_BYTES", 3 * size + size // 2)
    compiler.load(SOURCE + "// the last\n")
    oldest = sorted(before, key=lambda path: before[path])[:2]
    assert len(list(cache.iterdir())) == 3 and not any(path.exists() for path in oldest)


def test_a_folder_that_others_could_write_to_is_not_used(cache):
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    assert compiler.load(SOURCE).answer() == 42
    assert not list(cache.iterdir())


def test_no_home(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    (tmp_path / "file").write_text("")
    folder = kept.folder(compiler.FOLDER)
    assert folder.is_dir() and Path(folder).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("wanted,told", [
    ("no-such-compiler", "no-such-compiler, which CXX names, is not there or does not run"),
    ("false", "false, which CXX names, is not there or does not run"),
    ("g++ 'open", "cannot be read as a command"),
])
def test_a_compiler_that_is_none(wanted, told, monkeypatch):
    monkeypatch.setenv("CXX", wanted)
    with pytest.raises(SchedError) as refused:
        compiler.find()
    [finding] = refused.value.diagnostics
    assert finding.code == "SL804" and told in finding.message


@pytest.mark.parametrize("text", ["no program", "#!/bin/sh\nexit 0\n"])
def test_a_file_that_is_no_compiler(text, monkeypatch, tmp_path):
    """Of another system, or one that says nothing of itself."""
    path = tmp_path / "c++"
    path.write_text(text)
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    with pytest.raises(SchedError) as caught:
        compiler.find()
    (finding,) = caught.value.diagnostics
    assert finding.code == "SL804" and f"{path}, which CXX names, is not there or does not run" in finding.message


def test_no_compiler(monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SchedError, match="there is no g\\+\\+ or clang\\+\\+"):
        compiler.find()


def test_cxx_may_have_options(monkeypatch, cache):
    name = compiler.find().command[0]
    monkeypatch.setenv("CXX", f"{name} -DANSWER=7")
    assert compiler.load('extern "C" int answer() { return ANSWER; }').answer() == 7


def test_what_the_compiler_refuses(cache):
    with pytest.raises(SchedError) as refused:
        compiler.load("this is no source")
    [finding] = refused.value.diagnostics
    assert finding.code == "SL804" and "error" in finding.notes[0].message and "CXX" in finding.help
    assert not list(cache.iterdir())
