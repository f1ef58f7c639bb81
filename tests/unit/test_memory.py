"""What cannot fit into memory is refused before it is taken."""

import pytest

from schedlang import memory
from schedlang.diagnostics import SchedError
from schedlang.expand import statements
from schedlang.loading import load_table
from schedlang.verify import room, verify
from tests.tables import ring


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A system that has 10,240 bytes available, with control groups of the sizes given: {path: (max, current,
    inactive_file)}."""
    def made(own="", **groups):
        (tmp_path / "own").write_text(f"1:cpu:/elsewhere\n0::/{own}\n")
        (tmp_path / "meminfo").write_text("MemTotal:       30 kB\nMemAvailable:       10 kB\n")
        for path, (most, current, cached) in groups.items():
            group = tmp_path / "groups" / path.strip("_").replace("_", "/")
            group.mkdir(parents=True, exist_ok=True)
            (group / "memory.max").write_text(f"{most}\n")
            (group / "memory.current").write_text(f"{current}\n")
            (group / "memory.stat").write_text(f"anon 5\ninactive_file {cached}\n")
        for name, path in (("_MEMINFO", "meminfo"), ("_OWN_GROUPS", "own"), ("_GROUPS", "groups")):
            monkeypatch.setattr(memory, name, tmp_path / path)
    return made


def test_without_groups_the_system_tells(system):
    system()
    assert memory.available() == 10_240


@pytest.mark.parametrize(("own", "groups", "expected"), [
    ("a/b", {"a_b": (5000, 1000, 200)}, 4200),                       # what only caches files is free
    ("a/b", {"a_b": ("max", 1000, 0), "a": (3000, 1000, 0)}, 2000),  # the group above limits it
    ("a/b", {"a_b": (9000, 0, 0), "_": (4000, 500, 0)}, 3500),       # that of a container, seen as the root
    ("a", {"a": (1000, 1500, 0)}, 0),
    ("a", {"a": ("max", 1000, 0)}, 10_240),
    ("b", {"a": (100, 0, 0)}, 10_240),                               # another one's limit
])
def test_the_narrowest_group_counts(system, own, groups, expected):
    system(own, **groups)
    assert memory.available() == expected


def test_a_system_that_does_not_tell(monkeypatch, tmp_path):
    for name in ("_MEMINFO", "_OWN_GROUPS", "_GROUPS"):
        monkeypatch.setattr(memory, name, tmp_path / "nowhere")
    assert memory.available() is None


def test_expansion_stops_before_memory_is_gone(monkeypatch, shipped):
    monkeypatch.setattr(statements, "MANY_ROWS", 0)
    monkeypatch.setattr(statements, "available", lambda: 100_000)
    load_table(str(shipped), ranks=8)
    with pytest.raises(SchedError) as failed:
        load_table(str(shipped), ranks=64)
    found, = failed.value.diagnostics
    assert found.code == "SL208" and "8,064 operations, which take more than" in found.message
    assert found.location.line == 15 and "fewer ranks" in found.help


def test_verify_stops_before_memory_is_gone(monkeypatch):
    monkeypatch.setattr(room, "MANY_ROWS", 1)
    monkeypatch.setattr(room, "available", lambda: 10_000)
    assert verify(ring(4)).ok
    verdict = verify(ring(16))
    assert not verdict.ok and [d.code for d in verdict.diagnostics] == ["SL208"]
    assert "960 operations on 256 chunks" in verdict.diagnostics[0].message
    assert verdict.proof("form").state == "failed" and verdict.proof("matching").state == "not judged"


def test_where_nothing_is_told_nothing_is_refused(monkeypatch, shipped):
    for module in (room, statements):
        monkeypatch.setattr(module, "MANY_ROWS", 1)
        monkeypatch.setattr(module, "available", lambda: None)
    assert verify(load_table(str(shipped), ranks=8)[0]).ok
