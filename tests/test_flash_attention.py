"""The tiled forward pass of snippets/attention against the whole matrix in float64: PyTorch, then Triton's interpreter."""
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness import snippet
from tests.conftest import need

tiled = snippet.load("attention/tiled")
length = st.integers(1, 40)
checked = settings(max_examples=150, deadline=None, database=None, derandomize=True)
SHAPES = [(1, 1, 64, False), (1, 1, 128, True), (200, 200, 64, True), (200, 200, 128, False), (129, 300, 128, True),
          (129, 300, 64, False), (300, 65, 64, True), (300, 65, 128, False), (128, 128, 128, True), (256, 256, 64, True)]
INTERPRET = """
import json, sys, torch
from attention import rungs, tiled, triton_kernel
def error(found, right):
    return float((found.double() - right).norm() / right.norm())
torch.manual_seed(0)
out = []
for n_q, n_k, d, causal in json.loads(sys.argv[1]):
    q, k, v = (torch.randn(1, 2, n, d, dtype=torch.float16) for n in (n_q, n_k, n_k))
    right = tiled.standard(q.double(), k.double(), v.double(), causal)
    scores = q.double() @ k.double().mT * d**-0.5
    if causal:
        scores = scores.masked_fill(torch.ones(n_q, n_k, dtype=torch.bool).triu(1), -torch.inf)
    found, lse = triton_kernel.attention(q, k, v, causal, return_lse=True)
    other = torch.empty_like(q)
    triton_kernel.launch(q, k, v, other, causal=causal, together=1 if causal else 100)
    row = [error(found, right), float((lse - scores.logsumexp(-1)).abs().max()), float((other - found).abs().max())]
    out.append(row + [error(rungs.attention(q, k, v, causal), right) if n_q == n_k else 0.0])
print(json.dumps(out))
"""


def tensors(n_q, n_k, d=4, scale=1.0):
    q, k, v = (torch.sin(torch.arange(1.0, n * d + 1, dtype=torch.float64) * step).reshape(1, n, d)
               for n, step in ((n_q, 1.3), (n_k, 0.7), (n_k, 2.1)))
    return q * scale, k, v


@checked
@given(length, length, st.integers(1, 17), st.integers(1, 17), st.booleans(), st.sampled_from([1.0, 1e3, 1e30]))
@example(1, 1, 1, 1, True, 1.0)
@example(40, 3, 8, 8, True, 1.0)
@example(3, 40, 8, 8, True, 1.0)
@example(17, 17, 16, 5, True, 1e30)
def test_tiled_gives_what_the_whole_matrix_gives(n_q, n_k, rows, keys, causal, scale):  # noqa: PLR0917
    q, k, v = tensors(n_q, n_k, scale=scale)
    found = tiled.attention(q, k, v, causal, rows=rows, keys=keys)
    assert found.shape == q.shape
    assert torch.allclose(found, tiled.standard(q, k, v, causal), rtol=1e-10, atol=1e-12)
    assert torch.allclose(found, F.scaled_dot_product_attention(q, k, v, is_causal=causal), rtol=1e-10, atol=1e-12)


def test_tiled_takes_any_dimensions_in_front():
    q, k, v = (torch.randn(2, 3, n, 8, dtype=torch.float64) for n in (33, 50, 50))
    assert torch.allclose(tiled.attention(q, k, v, True), tiled.standard(q, k, v, True))


def test_tile_loads_count_what_the_walk_reads():
    assert tiled.tile_loads(256, 256, 64) == (256 + 2 * 2 * 256) * 64 * 2  # two tiles, each meets all
    assert tiled.tile_loads(256, 256, 64, causal=True) == (256 + 2 * (128 + 256)) * 64 * 2
    assert tiled.tile_loads(256, 100, 64, causal=True) == (256 + 2 * 200) * 64 * 2


@pytest.fixture(scope="module")
def interpreted():
    need(find_spec("triton"), "no triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": f"{snippet.SNIPPETS}:{snippet.ROOT}"}
    told = subprocess.run([sys.executable, "-c", INTERPRET, json.dumps(SHAPES)], env=environment, capture_output=True, text=True,
                          check=False)
    assert told.returncode == 0, told.stderr[-2000:]
    return json.loads(told.stdout.splitlines()[-1])


@pytest.mark.parametrize("number", range(len(SHAPES)), ids=map(str, SHAPES))
def test_triton_kernel_is_right_at_awkward_shapes(interpreted, number):
    error, lse, order, rung = interpreted[number]
    assert error < 5e-4 and lse < 1e-5 and order == 0 and rung < 5e-4


def event(name, start, us, device=torch.autograd.DeviceType.CUDA):
    return SimpleNamespace(name=name, device_type=device, time_range=SimpleNamespace(start=start, elapsed_us=lambda: us))


def test_duel_adds_up_the_kernels_between_two_marks():
    need(find_spec("triton"), "no triton")
    forward = snippet.load("attention/forward")
    names = ["fill", "spin_kernel", "a", "b", "spin_kernel", "fill", "spin_kernel", "spin_kernel", "fill"]
    events = [event(name, start, 2.5) for start, name in enumerate(names)]
    on_host = [event("launch", 2.5, 9.0, torch.autograd.DeviceType.CPU)]
    assert forward.between_marks(events[::-1] + on_host) == [5.0, 0.0]
    assert [forward.rotated(["a", "b", "c"], turn) for turn in (0, 1, 3)] == [["a", "b", "c"], ["b", "c", "a"], ["a", "b", "c"]]
