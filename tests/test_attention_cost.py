"""The byte counts of snippets/attention/cost.py against tensors that exist, and what snippets/attention/memory.py reads."""
import json
import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from harness import snippet

cost, memory = snippet.load("attention/cost"), snippet.load("attention/memory")
SHAPE = {"batch": 1, "heads": 2, "d": 16}
SIZE = {"heads": 1 * 2, "d": 16}


class Alive(TorchDispatchMode):
    """The most bytes alive at once in storages that operators made: the peak that a GPU's allocator would report."""

    def __init__(self, inputs):
        super().__init__()
        self.now = self.most = 0
        self.known = {x.untyped_storage().data_ptr() for x in inputs if x is not None}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(x, torch.Tensor):
                self._follow(x.untyped_storage())
        return out

    def _follow(self, storage):
        if storage.data_ptr() in self.known or not storage.nbytes():
            return
        place, size = storage.data_ptr(), storage.nbytes()
        self.known.add(place)
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._freed, place, size)

    def _freed(self, place, size):
        self.known.discard(place)
        self.now -= size


@pytest.mark.parametrize("mode", ["forward", "training"])
@pytest.mark.parametrize("n", [64, 130, 256])
def test_estimate_is_the_peak_of_what_is_alive(mode, n):
    args = cost.inputs(n, mode == "training", device="cpu", **SHAPE)
    with Alive(args) as alive:
        cost.step(cost.standard, *args)
    assert alive.most == sum(cost.peak_bytes(n, mode, **SIZE))


def test_matrices_are_half_of_what_is_held_at_the_crossing():
    for mode, inputs in (("forward", 3), ("training", 4)):
        n = cost.crossing(mode, d=16)
        matrices, linear = cost.peak_bytes(n, mode, **SIZE)
        assert matrices == linear + inputs * cost.tensor_bytes(n, **SIZE)


def test_bytes_are_those_of_tensors():
    q, k, v, dout = cost.inputs(70, True, device="cpu", **SHAPE)
    assert cost.tensor_bytes(70, **SIZE) == q.nbytes
    assert cost.matrix_bytes(70, heads=2) == (q @ k.mT).nbytes
    assert cost.minimum_bytes(q, k, v, None) == 4 * q.nbytes and cost.minimum_bytes(q, k, v, dout) == 12 * q.nbytes
    assert cost.flops(q, k, v, dout) == 3.5 * cost.flops(q, k, v, None) == 3.5 * 4 * 2 * 70 * 70 * 16


def test_capture_names_what_is_saved_and_stops_where_the_card_is_full(monkeypatch):
    def full(n, *args, make=memory.inputs, **options):
        if n > 64:
            raise torch.cuda.OutOfMemoryError
        return make(n, *args, **options)
    monkeypatch.setattr(memory, "inputs", full)
    kept = memory.climb(cost.standard, True, (32, 64, 128, 256), "cpu", **SHAPE)
    assert {n: found["outcome"] for n, found in kept.items()} == {"n_32": "fits", "n_64": "fits", "n_128": "out of memory"}


def test_standard_saves_the_weights_once_and_flash_none():
    q, k, v, _ = cost.inputs(70, True, device="cpu", **SHAPE)
    _, standard = memory.saved(cost.standard, q, k, v)
    _, flash = memory.saved(cost.flash, q, k, v)
    assert sum(part["shape"] == "1 × 2 × 70 × 70" for part in standard) == 1
    assert [part["of"] for part in standard] == ["k", "its own", "its own", "v"]
    assert sorted(part["of"] for part in flash) == ["its own", "k", "output", "q", "v"]
    assert sum(part["saved_bytes"] for part in flash if part["of"] == "its own") == 2 * 70 * 4


def test_capture_is_plain_data():
    data = memory.capture("cpu", (32, 64), 70, **SHAPE)
    assert json.loads(json.dumps(data)) == data
    assert {name: found["outcome"] for name, found in data["kept"].items() if name in ("standard", "math", "flash")} == {
        "standard": "fits", "math": "fits", "flash": "fits"}
    assert data["kept"]["flash"]["gradients_bytes"] == 3 * cost.tensor_bytes(70, **SIZE)
    assert [list(found) for kinds in (data["forward"], data["training"]) for found in kinds.values()] == 4 * [["n_32", "n_64"]]
