"""The kernels of the page on reductions, in Triton's interpreter: awkward shapes, infinities, NaN, and pieces in any order.

The interpreter runs programs one after another, so a program that waits for a later one would wait for ever. A shared row
is therefore tested with all its words filled in before, or in one piece.
"""
import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from harness.snippet import ROOT
from tests.conftest import need

SHAPES = ["1x1", "1x70", "5x1", "3x300", "2x257"]
ROWS = {"some -inf": "[0., -inf, 3., -inf]", "large": "[60000., -60000., 59968., 0.]", "one left": "[-inf, -inf, -inf, 2.]",
        "all -inf": "[-inf, -inf, -inf, -inf]", "+inf": "[1., inf, 2., 3.]", "nan": "[1., nan, 2., -inf]"}
PROGRAM = """
import json, sys
import torch
from torch import inf, nan
from fusion.reduction import norm_kernel as norms, softmax_kernel as softmaxes

def words(x, block, pieces, scale):
    piece = torch.full((len(x), pieces * block), -inf)
    piece[:, :x.shape[1]] = x
    piece = piece.view(len(x), pieces, block)
    m = piece.amax(-1)
    s = torch.exp(piece - m.masked_fill(m == -inf, 0)[..., None]).sum(-1)
    m = m * scale
    return (m.contiguous().view(torch.int32).long() << 32) | (s.contiguous().view(torch.int32).long() & 0xFFFFFFFF)

def in_two_launches(x, block=64):
    scale = softmaxes.scale_of(x)
    pieces = 2 ** max(0, (x.shape[1] - 1) // block).bit_length()
    y, all_pieces = torch.full_like(x, 7.), len(x) * pieces
    state = torch.cat([torch.zeros(1, dtype=torch.int64), words(x, block, pieces, scale).flatten()])
    for programs in (all_pieces - all_pieces // 2, all_pieces // 2):  # program 0 starts twice, and takes another piece
        if programs:
            softmaxes.split_kernel[(programs,)](x, y, state, state[1:], x.shape[1], PIECES=pieces, BLOCK=block,
                                              PACKED=False, SCALE=scale)
    assert int(state[0]) == all_pieces
    return y

SOFTMAX = {"row": softmaxes.row_softmax, "online": lambda x: softmaxes.online_softmax(x, 64), "split": in_two_launches,
           "one piece": lambda x: softmaxes.split_softmax(x, BLOCK=1024), "own": softmaxes.softmax}

def worst(out, right):
    assert torch.equal(out.isnan(), right.isnan()), (out, right)
    return float((out.double() - right).nan_to_num().abs().max())

def norm_errors(rows, columns, layer):
    x, dy = (torch.randn(rows, columns, requires_grad=True) for _ in range(2))
    weight, bias = (torch.randn(columns, requires_grad=True) for _ in range(2))
    x64, w64, b64, dy64 = (tensor.detach().double().requires_grad_() for tensor in (x, weight, bias, dy))
    mean = x64.mean(-1, keepdim=True) if layer else 0 * x64[:, :1]
    rstd = torch.rsqrt((x64 - mean).pow(2).mean(-1, keepdim=True) + 1e-5)
    y64 = (x64 - mean) * rstd * w64 + (b64 if layer else 0)
    right = torch.autograd.grad(y64, (x64, w64, b64) if layer else (x64, w64), dy64)
    x, dy, weight, bias = (tensor.detach() for tensor in (x, dy, weight, bias))
    forward = norms.norm(x, weight, bias if layer else None)
    backward = norms.norm_backward(dy, x, weight, mean.detach().float() if layer else None, rstd.detach().float())
    scale = 1 + float(rstd.max())  # one column: x - mean is 0 and rstd is 1 / sqrt(eps)
    return [worst(out, exact.detach()) / scale for out, exact in zip((forward, *backward), (y64, *right), strict=True)]

torch.manual_seed(0)
shapes, special = json.loads(sys.argv[1]), json.loads(sys.argv[2])
found = {}
for shape in shapes:
    rows, columns = map(int, shape.split("x"))
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        x = torch.randn(rows, columns).to(dtype)
        for name, function in SOFTMAX.items():
            found[f"{name} {shape} {dtype}"] = worst(function(x), torch.softmax(x.double(), -1))
    for layer in (False, True):
        for name, error in zip(("y", "dx", "dweight", "dbias"), norm_errors(rows, columns, layer)):
            found[f"{'layer' if layer else 'rms'} {name} {shape}"] = error
    y, dy = torch.softmax(torch.randn(rows, columns), -1), torch.randn(rows, columns)
    found[f"softmax backward {shape}"] = worst(norms.softmax_backward(dy, y), (y * (dy - (dy * y).sum(-1, keepdim=True))).double())
for layer in (False, True):  # a row too long for the sums beside it: two kernels
    for name, error in zip(("y", "dx", "dweight", "dbias"), norm_errors(3, 8200, layer)):
        found[f"{'layer' if layer else 'rms'} {name} 3x8200"] = error
for label, row in special.items():
    for dtype in (torch.float16, torch.float32):
        x = torch.cat([torch.tensor(eval(row)), torch.full((66,), -inf)])[None].to(dtype)  # in 64s: a piece of nothing but -inf
        for name, function in SOFTMAX.items():
            found[f"{name} {label} {dtype}"] = worst(function(x), torch.softmax(x.double(), -1))
x = torch.tensor([[3e38, -3e38, 1e30, 0.]])
for name, function in SOFTMAX.items():
    found[f"{name} fp32 large"] = worst(function(x), torch.softmax(x.double(), -1))
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found():
    need(find_spec("triton"), "no triton")
    env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT / "snippets")}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM, json.dumps(SHAPES), json.dumps(ROWS)], env=env,
                          capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["row", "online", "split", "one piece", "own"])
def test_softmax_is_right_for_awkward_shapes_and_rows(found, name):
    errors = {key: error for key, error in found.items() if key.startswith(f"{name} ")}
    assert len(errors) == len(SHAPES) * 3 + len(ROWS) * 2 + 1
    limit = {"float32": 1e-6, "float16": 1e-3, "bfloat16": 8e-3, "large": 1e-6}
    assert {key: error for key, error in errors.items() if error > limit[key.split(".")[-1].split()[-1]]} == {}


@pytest.mark.parametrize("kind", ["rms", "layer", "softmax backward"])
def test_norm_and_backward_are_right_for_awkward_shapes(found, kind):
    errors = {key: error for key, error in found.items() if key.startswith(f"{kind} ")}
    assert len(errors) == (len(SHAPES) + (kind != "softmax backward")) * {"rms": 3, "layer": 4, "softmax backward": 1}[kind]
    assert max(errors.values()) < 1e-5
