"""The gradients example: its shapes are the model's, and it runs with and without torch."""

import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "gradients"
ROOT = FOLDER.parents[1]

WITHOUT_TORCH = ("import sys; sys.modules['torch'] = None; import runpy; "
                 "runpy.run_path(sys.argv[1], run_name='__main__')")


def load():
    sys.path.insert(0, str(FOLDER))
    try:
        import make_gradients
    finally:
        sys.path.remove(str(FOLDER))
    return make_gradients


def test_shapes():
    shapes = load().shapes()
    assert len(shapes) == 182 and sum(map(math.prod, shapes)) == 28_589_128


def test_shapes_are_the_models():
    pytest.importorskip("torch")
    example = load()
    assert [tuple(p.shape) for p in example.model().parameters()] == example.shapes()


@pytest.mark.nightly
def test_ranks_have_gradients_of_their_own():
    torch = pytest.importorskip("torch")
    first, second = load().gradients(ranks=2, image=32, batch=1)
    assert first.shape == (28_589_128,) and first.isfinite().all() and (first != 0).float().mean() > 0.5
    assert not torch.equal(first, second)


@pytest.mark.parametrize("compiler", [True, False])
def test_the_example_runs_without_torch(compiler):
    if compiler and shutil.which("g++") is None:
        pytest.skip("there is no g++")
    path = os.environ["PATH"] if compiler else ""
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH, str(FOLDER / "allreduce_gradients.py")], cwd=FOLDER,
                          env={**os.environ, "PYTHONPATH": f"{ROOT}:{FOLDER}", "PATH": path, "CXX": ""},
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "28,589,128 gradients in 182 tensors on each of 4 ranks: NumPy arrays" in done.stdout
    assert ["ring, back end numpy: " in done.stdout, "all_pairs, back end native: " in done.stdout,
            "there is no g++ or clang++" in done.stdout] == [True, compiler, not compiler]
