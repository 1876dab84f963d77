"""The ways that papers.py times agree with float64 and with one another, on the CPU."""
import pytest
import torch

from harness.snippet import load

papers = load("attention/papers")


def test_errors_name_a_backend_that_cannot_run_here():
    found = papers.errors("cpu", torch.float32)
    assert set(found) == {"full", "causal", "mask"}
    for kind in found.values():
        assert kind["standard"]["output"] < 2e-6 and kind["standard"]["query_gradient"] < 2e-6
        assert kind["cudnn"]["outcome"] == "refused" and "backend" in kind["cudnn"]["reason"]


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"mask": papers.padding(3, 37, "cpu")}], ids=["full", "causal", "mask"])
def test_standard_is_what_sdpa_computes(options):
    q, k, v = (x.detach() for x in papers.tensors(3, 2, 37, 8, dtype=torch.float64, device="cpu"))
    right = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=options.get("mask"), is_causal="causal" in options)
    torch.testing.assert_close(papers.standard(q, k, v, **options), right)


def test_standard_drops_weights_not_outputs():
    torch.manual_seed(0)
    q, k, v = (x.detach() for x in papers.tensors(1, 1, 64, 8, dtype=torch.float64, device="cpu"))
    kept = papers.standard(q, k, torch.ones_like(v), dropout=0.5)
    assert 0.5 < kept.mean() < 1.5 and kept.std() > 0.01


def test_tensors_lie_in_memory_as_a_model_has_them():
    q, k, _ = papers.tensors(2, 6, 5, 8, kv_heads=2, device="cpu")
    assert q.shape == (2, 6, 5, 8) and k.shape == (2, 2, 5, 8)
    assert q.transpose(1, 2).is_contiguous() and q.is_leaf and q.requires_grad


def test_padding_keeps_the_first_keys_of_each_sequence():
    mask = papers.padding(3, 8, "cpu")
    assert mask.shape == (3, 1, 1, 8) and mask.sum(-1).flatten().tolist() == [4, 6, 8]


def test_outcome_tells_memory_from_refusal():
    assert papers.outcome(torch.OutOfMemoryError("no"))["outcome"] == "out of memory"
    assert papers.outcome(RuntimeError("No available kernel.\nmore")) == {"outcome": "refused", "reason": "No available kernel."}
