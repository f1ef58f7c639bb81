"""Tries an installed schedlang (or, with a folder as argument, the clone there) from outside; .ci/run runs it.

Only the public face is used, in the way of a first user: the command, the shipped schedules, the library.
"""

import subprocess
import sys
import tempfile
from importlib import resources
from pathlib import Path

if len(sys.argv) > 1:
    sys.path.insert(0, str(Path(sys.argv[1]).resolve()))
import numpy as np

import schedlang

SCHEDULE = """
schedule pair(ranks):
    collective allreduce(sum)
    require ranks == 2
    chunks 2
    use ring()
"""


def command(*arguments: str, status: int = 0) -> str:
    done = subprocess.run([sys.executable, "-m", "schedlang", *arguments], capture_output=True, text=True, check=False,
                          env={"PYTHONPATH": sys.path[0]} if len(sys.argv) > 1 else None)
    assert done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stdout


library = Path(str(resources.files("schedlang"))) / "library"
if "site-packages" in str(library):
    assert {f.suffix for f in library.rglob("*") if f.is_file()} == {".sched"}, "only schedules are installed"
    from pygments.lexers import find_lexer_class_for_filename

    assert find_lexer_class_for_filename("ring.sched").name == "schedlang", "Pygments does not find the lexer"
ring = str(library / "allreduce" / "ring.sched")
command("verify", ring, "--ranks", "4")
command("run", ring, "--ranks", "4", "--elements", "10", "--check")
command("explain", "SL305")
assert "</html>" in command("show", ring, "--ranks", "4", "--format", "html")
assert command("--version").startswith("schedlang ")
with tempfile.TemporaryDirectory() as folder:
    mine = Path(folder) / "pair.sched"
    mine.write_text(SCHEDULE)
    command("verify", str(mine), "--ranks", "2")
    mine.write_text(SCHEDULE.replace("ring()", "rnig()"))
    command("verify", str(mine), "--ranks", "2", status=2)
outputs = schedlang.load(ring, ranks=3)([np.arange(5.0) * r for r in range(3)])
assert all(np.array_equal(o, np.arange(5.0) * 3) for o in outputs)
print("schedlang", schedlang.__version__, "works from", Path(schedlang.__file__).parent)
