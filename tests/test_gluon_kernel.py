"""The Gluon kernel on the CPU, through tests/gluon_emulator.py: indices, masks, phases, deadlocks. Speed and layouts need a GPU."""
import math
import re
import struct

import pytest
import torch

from tests import gluon_emulator


@pytest.fixture(scope="module")
def kernel():
    with gluon_emulator.imported("attention/gluon_kernel") as module:
        yield module


def check(kernel, q_len, k_len, D, causal, dtype=torch.bfloat16, *, scale=1.0, heads=(1, 2), programs=3, **switches):  # noqa: PLR0917
    torch.manual_seed(0)
    q = (torch.randn(*heads, q_len, D) * scale).to(dtype)
    k, v = (torch.randn(*heads, k_len, D).to(dtype) for _ in "kv")
    out = kernel.attention(q, k, v, causal, programs=programs, **switches)
    right = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=causal)
    error = (out.double() - right).norm() / right.norm()
    assert error < (4e-3 if dtype == torch.bfloat16 else 6e-4), f"{error}"


LENGTHS = [(1, 1), (64, 64), (129, 129), (200, 385), (385, 200), (500, 130), (7, 600)]


@pytest.mark.parametrize(("q_len", "k_len"), LENGTHS)
@pytest.mark.parametrize("causal", [False, True])
def test_gluon_kernel_equals_attention_for_any_lengths(kernel, q_len, k_len, causal):
    check(kernel, q_len, k_len, 64, causal, torch.float16)


@pytest.mark.parametrize("switches", [
    {"CARRY": False}, {"TURNS": True}, {"DYNAMIC": True}, {"DYNAMIC": False, "FORTH": True}, {"SKIP": 8}, {"TOGETHER": 1},
    {"TOGETHER": 2}, {"DYNAMIC": False, "TOGETHER": 4}, {"CONSUMERS": 3, "TURNS": True}, {"BLOCK": 64, "STAGES": 4, "DYNAMIC": True},
    {"POLY": 4}, {"CONSUMERS": 3, "DYNAMIC": True, "SKIP": 8, "TURNS": True}], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_gluon_kernel_equals_attention_with_every_switch(kernel, switches, causal):
    check(kernel, 270, 270, 128, causal, programs=2, **switches)
    check(kernel, 130, 200, 64, causal, heads=(1, 5), programs=4, **switches)


@pytest.mark.parametrize("skip", [0, 8])
def test_gluon_kernel_takes_large_scores(kernel, skip):
    check(kernel, 300, 300, 64, True, scale=40.0, SKIP=skip)


def test_gluon_kernel_counter_is_ready_for_the_next_call(kernel, monkeypatch):
    word = torch.zeros(1, dtype=torch.int32)
    monkeypatch.setattr(kernel, "counter_of", lambda device: word)
    for _ in range(2):
        check(kernel, 300, 300, 64, True, heads=(2, 3), programs=5, DYNAMIC=True)
        assert word.item() == 0


def test_gluon_kernel_refuses_what_it_cannot_do(kernel):
    q = torch.zeros(1, 2, 64, 64, dtype=torch.bfloat16)
    for wrong in (q.float(), q[..., :32].contiguous(), q.transpose(1, 2).contiguous().transpose(1, 2), q[:, :, :0]):
        with pytest.raises(ValueError, match="wants|must"):
            kernel.attention(wrong, wrong, wrong)
    with pytest.raises(ValueError, match="as many heads"):
        kernel.attention(q, q[:, :1], q[:, :1])


def test_polynomial_keeps_within_its_error(kernel):
    """The cubic in single precision steps, against 2^f; and the bits of the assembly's constants."""
    c = [struct.unpack(">f", bytes.fromhex(word[2:]))[0] for word in kernel.CUBIC]
    f = torch.linspace(-0.5, 0.5, 10001)
    y = ((c[3] * f + c[2]) * f + c[1]) * f + c[0]
    assert ((y / torch.exp2(f.double()) - 1).abs().max()) < 7.6e-5
    x = torch.linspace(-125.4, 0, 20001)
    n = x + 1.5 * 2**23  # the steps of the assembly, in the same precision
    f = x - (n - 1.5 * 2**23)
    y = ((c[3] * f + c[2]) * f + c[1]) * f + c[0]
    power = (y.view(torch.int32) + (n.view(torch.int32) << 23)).view(torch.float32)
    assert ((power / torch.exp2(x.double()) - 1).abs().max()) < 7.7e-5
    asm, constraints = kernel.exp2_asm(4)
    assert struct.unpack(">f", bytes.fromhex("C2FC0000"))[0] == -126 and "0fC2FC0000" in asm
    assert struct.unpack(">f", bytes.fromhex("4B400000"))[0] == 1.5 * 2**23
    assert len(re.findall("ex2.approx", asm)) == 3 and constraints.count("=&f") == 4 and math.log2(1) == 0
