"""Memory of the executor's own: huge pages where there are any, and zeros in any case."""

import mmap

import pytest
import torch

from schedlang.backends.torch.room import HUGE, zeros


class Refusing(mmap.mmap):
    """Memory of a kernel that knows no huge pages."""

    def madvise(self, *_):
        raise OSError(22, "Invalid argument")


@pytest.mark.parametrize("elements,dtype", [(0, torch.float32), (1, torch.float64), (HUGE, torch.uint8),
                                            (HUGE // 2 + 3, torch.float16), (3 * HUGE // 8 + 1, torch.float64)])
@pytest.mark.parametrize("system", ["has them", "lacks them", "refuses them"])
def test_zeros_of_any_size(elements, dtype, system, monkeypatch):
    if system == "lacks them":
        monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    elif system == "refuses them":
        monkeypatch.setattr(mmap, "mmap", Refusing)
    memory = zeros(elements, dtype)
    assert (memory.shape, memory.dtype, memory.device.type) == ((elements,), dtype, "cpu")
    assert not memory.any()
    memory.fill_(7)
    assert bool((memory == 7).all())


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="a system without huge pages")
def test_large_ones_fill_huge_pages(monkeypatch):
    asked = []

    class Noting(mmap.mmap):
        def madvise(self, *advice):
            asked.append((len(self), advice))

    monkeypatch.setattr(mmap, "mmap", Noting)
    assert zeros(HUGE, torch.float32).data_ptr() % HUGE == 0
    assert asked == [(5 * HUGE, (mmap.MADV_HUGEPAGE,))]
    zeros(HUGE // 4 - 1, torch.float32)
    assert len(asked) == 1, "less than one of them"
