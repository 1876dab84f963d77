"""The variants of the page on attention and fusion, at shapes that the measured sizes do not have. On a CPU, eager ones only."""
import pytest
import torch
import torch.nn.functional as F

from harness import measure, snippet

attention, epilogue, choices = (snippet.load(f"fusion/{name}") for name in ("attention", "epilogue", "epilogue_choices"))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("n", "heads", "d"), [(1, 1, 8), (2, 1, 1), (33, 3, 24), (130, 2, 64)])
def test_attention_variants_agree_at_awkward_shapes(n, heads, d, masked):
    torch.manual_seed(0)
    args = attention.inputs(n, heads, d, masked, dtype=torch.float32, device="cpu")
    right = attention.reference(*args)
    for variant in attention.variants.values():
        assert torch.allclose(variant(*args).double(), right, atol=1e-5)


def test_attention_bytes_and_flops_follow_the_formula():
    args = attention.inputs(8, 2, 4, True, device="cpu")
    assert attention.minimum_bytes(*args) == 4 * 2 * 8 * 4 * 2 + 8 * 8 * 2
    assert attention.flops(*args) == 2 * 2 * 2 * 8 * 8 * 4  # heads, products, multiply and add, 8 x 8 x 4


def test_attention_survives_large_values():
    q, k, v, mask = attention.inputs(16, 2, 8, True, dtype=torch.float32, device="cpu")
    out = attention.naive(1e4 * q, 1e4 * k, v, mask)
    assert out.isfinite().all() and torch.allclose(out, attention.sdpa(1e4 * q, 1e4 * k, v, mask), atol=1e-3)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (1, 70, 40), (33, 1, 129), (17, 65, 1)])
def test_epilogue_variants_agree_at_awkward_shapes(m, n, k):
    torch.manual_seed(0)
    args = epilogue.inputs(m, n, k, dtype=torch.float32, device="cpu")
    right = epilogue.reference(*args)
    for name, variant in epilogue.variants.items():
        close = 1e-3 if name == "full epilogue" else 1e-5  # on a CPU its gelu is the erf form, on a GPU the tanh form
        assert torch.allclose(variant(*args).double(), right, atol=close), name


@pytest.mark.parametrize("value", [torch.nan, 1e30, -1e30])  # infinity: the erf form of gelu is NaN there on a CPU
def test_epilogue_passes_extreme_values_on(value):
    x, w, bias = torch.ones(2, 3), torch.ones(3, 4), torch.full((4,), value)
    outs = [variant(x, w, bias) for variant in epilogue.variants.values()]
    assert all(torch.equal(out.nan_to_num(-1.0), outs[0].nan_to_num(-1.0)) for out in outs)


def test_epilogue_bytes_count_operands_and_result():
    args = epilogue.inputs(3, 5, 7, device="cpu")
    assert epilogue.minimum_bytes(*args) == 2 * (3 * 7 + 7 * 5 + 5 + 3 * 5) and epilogue.flops(*args) == 2 * 3 * 5 * 7


def test_epilogue_gelu_on_a_cpu_is_the_erf_form():
    errors = choices.capture("cpu")["gelu"]
    assert errors["none"] < 1e-6 and errors["tanh"] > 1e-5


def test_epilogue_has_no_derivative():
    x, w, bias = epilogue.inputs(4, 4, 4, dtype=torch.float32, device="cpu")
    with pytest.raises(RuntimeError, match="not implemented"):
        epilogue.full_epilogue(x.requires_grad_(), w, bias).sum().backward()


def test_wrong_gelu_would_be_refused():
    """The gate of the harness tells the two forms apart in fp32, so a record cannot hold the wrong one unseen."""
    args = epilogue.inputs(64, 64, 64, dtype=torch.float32, device="cpu")
    right = measure.tensors(epilogue.reference(*args))
    error = (F.gelu(torch.addmm(args[2], args[0], args[1])).double() - right[0]).norm() / right[0].norm()
    assert error > 1e-5
