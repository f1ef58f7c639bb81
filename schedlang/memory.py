"""How much memory there is, so that what cannot fit is refused before the system ends the process for it."""

from __future__ import annotations

from pathlib import Path

_MEMINFO, _OWN_GROUPS, _GROUPS = Path("/proc/meminfo"), Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def available() -> int | None:
    """The bytes that this process can still take: what the system calls available, or less where a control group
    (version 2), such as that of a container, limits it. None where the system does not tell (it does on Linux)."""
    rooms = [room for room in (_of_system(), *_of_groups()) if room is not None]
    return min(rooms, default=None)


def require(size: int) -> None:
    """Raises MemoryError where there are fewer bytes left: the system would give them, and end the process later."""
    left = available()
    if left is not None and size > left:
        raise MemoryError


def gigabytes(size: int) -> str:
    """A number of bytes for people: ``12.3 GB``."""
    return f"{size / 1e9:,.1f} GB"


def _of_system() -> int | None:
    for line in _read(_MEMINFO).splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return None


def _of_groups() -> list[int | None]:
    own = next((line[3:] for line in _read(_OWN_GROUPS).splitlines() if line.startswith("0::")), None)
    if own is None:
        return []
    group = _GROUPS / own.lstrip("/")
    return [_of_group(at) for at in (group, *group.parents) if at == _GROUPS or _GROUPS in at.parents]


def _of_group(group: Path) -> int | None:
    """What a control group may still take; memory that only caches files counts as free."""
    limit, used = _read(group / "memory.max").strip(), _read(group / "memory.current").strip()
    if not limit.isdigit() or not used.isdigit():
        return None
    cached = next((int(line.split()[1]) for line in _read(group / "memory.stat").splitlines()
                   if line.startswith("inactive_file ")), 0)
    return max(0, int(limit) - int(used) + cached)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
