"""The page of `schedlang show --format html` in a real browser, where one is found: stepping, keys, the address, and
nothing on the console."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest

from schedlang.cli.main import main

ROOT = Path(__file__).parents[1]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)

pytestmark = pytest.mark.skipif(BROWSER is None, reason=f"needs a browser: none of {', '.join(NAMES)} is found")

DRIVER = """
<script>
(() => {
  const seen = [];
  const look = (what) => seen.push([what, {
    now: document.getElementById("now").textContent, address: location.hash,
    marked: [...new Set([...document.querySelectorAll("#drawing .now")].map((e) => e.dataset.step))],
    changed: document.querySelectorAll("td.changed").length, wrong: document.querySelectorAll("td.wrong").length,
    cells: [...document.querySelectorAll("#body tr")].map((r) => [...r.cells].slice(1).map((c) => c.textContent)),
    lines: [...document.querySelectorAll(".source .here")].map((e) => e.textContent.trim()),
    operations: [...document.querySelectorAll("#operations li")].map((e) => e.textContent),
    play: document.getElementById("play").textContent,
    off: [...document.querySelectorAll("button:disabled")].map((e) => e.id),
    hue: getComputedStyle(document.body).backgroundColor,
  }]);
  const press = (key, on = document.body) =>
    on.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  const click = (id) => document.getElementById(id).click();
  look("first");
  ACTIONS
  document.documentElement.dataset.seen = JSON.stringify(seen);
})();
</script>
"""


@pytest.fixture
def visit(tmp_path, monkeypatch, capsys):
    """Opens the page of a schedule, does something there and gives what was seen, by name."""
    def opened(command, fragment="", actions="", dark=False):
        monkeypatch.chdir(ROOT)
        page = tmp_path / "page.html"
        assert main(["show", *command.split(), "--format", "html", "-o", str(page)]) == 0, capsys.readouterr().err
        page.write_text(page.read_text().replace("</body>", DRIVER.replace("ACTIONS", actions) + "</body>"))
        done = subprocess.run(
            [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr",
             *(["--force-dark-mode"] if dark else []), "--dump-dom", f"{page.as_uri()}{fragment}"],
            capture_output=True, text=True, timeout=120, check=True)
        assert "CONSOLE" not in done.stderr, done.stderr
        return dict(json.loads(unescape(re.search(r'data-seen="([^"]*)"', done.stdout)[1])))
    return opened


RING = "examples/allreduce/ring.sched --ranks 3"


def test_stepping(visit):
    seen = visit(RING, actions="""
        click("on"); look("on"); press("ArrowRight"); look("right"); press("ArrowLeft"); look("left");
        press("End"); look("end"); press("Home"); look("home"); click("to-end"); click("back"); look("back");
        document.querySelectorAll("#drawing .column")[1].dispatchEvent(new Event("click")); look("column");
        const slider = document.getElementById("slider");
        slider.value = 2; slider.dispatchEvent(new Event("input")); look("slider");
        click("play"); look("playing"); click("play"); look("paused");
    """)
    start = [["0"] * 3, ["1"] * 3, ["2"] * 3]
    assert seen["first"]["now"] == "at the start" and seen["first"]["cells"] == start
    assert seen["first"]["marked"] == [] and seen["first"]["off"] == ["to-start", "back"]
    on = seen["on"]
    assert (on["now"], on["address"], on["marked"], on["changed"]) == ("step 0", "#step=0", ["0"], 3)
    assert on["cells"] == [["0", "0", "0+2"], ["0+1", "1", "1"], ["2", "1+2", "2"]]
    assert on["operations"] == ["0 -> 1: data[0] +=", "1 -> 2: data[1] +=", "2 -> 0: data[2] +="]
    assert len(on["lines"]) == 1 and on["lines"][0].startswith("reduce data[")
    assert seen["right"]["now"] == "step 1" and seen["left"] == on
    assert seen["end"]["now"] == "step 3" and seen["end"]["cells"] == [["0-2"] * 3] * 3
    assert seen["end"]["off"] == ["on", "to-end"] and seen["end"]["lines"][0].startswith("send data[")
    assert seen["home"]["cells"] == start and seen["home"]["address"] == "#start"
    assert [seen[k]["now"] for k in ("back", "column", "slider")] == ["step 2", "step 1", "step 2"]
    assert seen["playing"]["play"] == "Pause" and seen["paused"]["play"] == "Play"


def test_an_address_chooses_the_step(visit):
    assert visit(RING, "#step=2")["first"]["now"] == "step 2"
    seen = visit(f"{RING} --steps 1..3", "#step=99", 'click("on"); look("on");')
    assert seen["first"]["now"] == "before step 1" and seen["on"]["address"] == "#step=1"


def test_faults_in_a_dark_page(visit):
    seen = visit("tests/cases/missing.sched --ranks 4", "#step=1", dark=True)["first"]
    assert seen["wrong"] == 1 and seen["hue"] == "rgb(21, 24, 28)"
    seen = visit("tests/cases/wait_closes_a_cycle.sched --ranks 2", actions='press("End"); look("end");')
    assert seen["end"]["now"] == "for ever" and len(seen["end"]["operations"]) == 2
    assert seen["first"]["hue"] == "rgb(255, 255, 255)"


def test_one_rank_has_no_steps(visit):
    seen = visit("examples/allreduce/ring.sched --ranks 1", actions='press("End"); look("end"); click("play");')
    assert seen["end"]["now"] == "at the start" and seen["end"]["cells"] == [["0"]]
