"""The tiled backward of snippets/attention/tiled_backward.py against float64 autograd, over lengths, tiles and masks."""
import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from harness import snippet

tiled, memory = snippet.load("attention/tiled_backward"), snippet.load("attention/memory")
length = st.integers(1, 24)
checked = settings(max_examples=60, deadline=None, database=None, derandomize=True)


def tensors(n_q: int, n_k: int, d: int = 4, scale: float = 1.0) -> list[torch.Tensor]:
    """q, k, v that ask for gradients, and the gradient of the output."""
    torch.manual_seed(n_q * 1000 + n_k)
    made = [torch.randn(2, rows, d, dtype=torch.float64) * factor for rows, factor in ((n_q, scale), (n_k, 1), (n_k, 1), (n_q, 1))]
    return [x.requires_grad_(index < 3) for index, x in enumerate(made)]


def by_autograd(q, k, v, dout, causal: bool) -> tuple[torch.Tensor, ...]:
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return out, *torch.autograd.grad(out, (q, k, v), dout)


def by_tiles(q, k, v, dout, *how) -> tuple[torch.Tensor, ...]:
    with torch.no_grad():
        out, lse = tiled.forward(q, k, v, *how)
        return out, *tiled.backward((q, k, v, out, lse), dout, *how)


def close(found, right) -> bool:
    return all(torch.allclose(a, b, rtol=1e-9, atol=1e-11) for a, b in zip(found, right, strict=True))


@checked
@given(length, length, st.sampled_from([1, 2, 5, 8, 32]), st.booleans(), st.sampled_from([1e-3, 1.0, 30.0]))
@example(1, 1, 1, True, 1.0)
@example(33, 33, 32, True, 1.0)  # one row, and one key, beyond the last whole tile
@example(40, 3, 8, True, 30.0)
@example(3, 40, 8, True, 30.0)  # most keys are seen by no query
def test_tiled_backward_is_the_gradient(n_q, n_k, size, causal, scale):
    args = tensors(n_q, n_k, scale=scale)
    assert close(by_tiles(*args, causal, size), by_autograd(*args, causal))


@checked
@given(length, length, st.sampled_from([1, 2, 5, 8, 32]), st.booleans())
def test_lse_is_that_of_the_whole_row(n_q, n_k, size, causal):
    q, k, v, _ = tensors(n_q, n_k)
    _, lse = tiled.forward(q.detach(), k.detach(), v.detach(), causal, size)
    scores = tiled.tile_scores(q, k, slice(0, n_q), slice(0, n_k), causal)
    assert torch.allclose(lse, torch.logsumexp(scores, -1, keepdim=True))


def test_function_passes_gradcheck():
    q, k, v, _ = tensors(7, 5)
    for causal in (False, True):
        assert torch.autograd.gradcheck(lambda *args, causal=causal: tiled.Attention.apply(*args, causal, 3), (q, k, v))


def test_large_scores_neither_overflow_nor_vanish():
    args = tensors(20, 30, scale=1e4)
    found = by_tiles(*args, True, 8)
    assert all(x.isfinite().all() for x in found) and close(found, by_autograd(*args, True))


def test_key_that_no_query_sees_has_no_gradient():
    found = by_tiles(*tensors(3, 40), True, 8)
    assert found[2][:, 3:].count_nonzero() == 0 and found[3][:, 3:].count_nonzero() == 0
    assert found[3][:, :3].count_nonzero() > 0


def test_function_saves_no_matrix():
    q, k, v, _ = tensors(64, 64)
    _, kept = memory.saved(lambda *args: tiled.Attention.apply(*args, False, 16), q, k, v)
    assert [part["of"] for part in kept] == ["q", "k", "v", "output", "its own"]
    assert kept[-1]["shape"] == "2 × 64 × 1" and kept[-1]["saved_bytes"] == 2 * 64 * 8


@pytest.mark.parametrize(("causal", "ratio"), [(False, 2.5), (True, 2.5)])
def test_backward_multiplies_two_and_a_half_times_as_much(causal, ratio):
    q, k, v, dout = (x.detach() for x in tensors(64, 64, 16))
    with FlopCounterMode(display=False) as forward:
        out, lse = tiled.forward(q, k, v, causal, 16)
    with FlopCounterMode(display=False) as backward:
        tiled.backward((q, k, v, out, lse), dout, causal, 16)
    assert backward.get_total_flops() == ratio * forward.get_total_flops()
    whole = 4 * q.numel() * 64
    assert forward.get_total_flops() == whole * (10 / 16 if causal else 1)  # of 4 x 4 tiles, those up to the diagonal


def test_standard_multiplies_twice_as_much_backward():
    q, k, v, dout = tensors(64, 64, 16)
    with FlopCounterMode(display=False) as forward:
        out = snippet.load("attention/cost").standard(q, k, v)
    with FlopCounterMode(display=False) as backward:
        torch.autograd.grad(out, (q, k, v), dout)
    assert backward.get_total_flops() == 2 * forward.get_total_flops() == 2 * 4 * q.numel() * 64
