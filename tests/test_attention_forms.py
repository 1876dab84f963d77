"""What each torch version does with attention written by hand: rewritten to SDPA or not, right or wrong. On a CPU.

Most of it looks at the graph after Inductor's pattern matcher, which needs no compiler. The tables hold torch 2.11, whose
rewrite forgets the divisor of some forms, and 2.12 and 2.13, which have it (pytorch#174361). Checked with all three.
"""
import pytest
import torch
from torch.torch_version import TorchVersion

from harness import snippet
from tests.conftest import need
from tests.test_measure import COMPILER

forms = snippet.load("fusion/attention_forms")
VERSION = TorchVersion(torch.__version__)
FORGETS = VERSION < (2, 12)
REWRITTEN = {"s / 20": 1, "s * 0.05": 1, "s / 8 + mask": 1, "s / 20 + mask": 1, "s / 20 + mask, exp and sum by hand": 1,
             "s / 20 + mask, softmax in fp32": 1, "s / 20, softmax over the queries": 1, "mask + s / 20": 0,
             "s * 0.05 + mask": 0, "(s / 20).masked_fill": 0}
WRONG = {"s / 20 + mask", "s / 20 + mask, exp and sum by hand", "s / 20 + mask, softmax in fp32"} if FORGETS else set()
WRONG |= {"s / 20, softmax over the queries"}  # in 2.11, 2.12 and 2.13: pytorch#196468
HEADS_LAST = {"s / 8": 1, "s / 20": 1, "s * 0.05": 0 if FORGETS else 1, "s / 20 + mask": 1, "(q / 20) @ k.T": 1}
HEADS_LAST_WRONG = {"s / 20", "(q / 20) @ k.T"} if FORGETS else set()
LIMIT = {torch.float32: 1e-6, torch.bfloat16: 1e-2, torch.float16: 1e-3}
DTYPES = list(LIMIT)
IDS = [str(dtype).removeprefix("torch.") for dtype in DTYPES]


def arguments(dtype, n=32, d=64):
    torch.manual_seed(0)
    return forms.inputs(n, d=d, dtype=dtype, device="cpu")


def found(function, args) -> tuple[int, bool]:
    """How many calls of SDPA the rewritten graph has, and whether its result is right."""
    graph = forms.rewritten(function, args)
    return forms.sdpa_calls(graph), forms.error(graph(*args), function, args) < LIMIT[args[0].dtype]


@pytest.mark.parametrize("dtype", DTYPES, ids=IDS)
def test_forms_are_rewritten_as_this_version_does(dtype):
    args = arguments(dtype)
    assert {name: found(form, args) for name, form in forms.FORMS.items()} == {
        name: (count, name not in WRONG) for name, count in REWRITTEN.items()}


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=IDS[1:])
def test_forms_with_heads_last_are_rewritten_as_this_version_does(dtype):
    args = forms.heads_last(*arguments(dtype))
    assert {name: found(forms.from_heads_last(form), args) for name, form in forms.HEADS_LAST.items()} == {
        name: (count, name not in HEADS_LAST_WRONG) for name, count in HEADS_LAST.items()}


def test_forms_with_heads_last_are_right_in_fp32():
    """The patterns that forget the divisor with this layout have a softmax in fp32 between 16-bit products."""
    args = forms.heads_last(*arguments(torch.float32))
    assert all(found(forms.from_heads_last(form), args)[1] for form in forms.HEADS_LAST.values())


@pytest.mark.parametrize(("n", "d"), [(1, 64), (7, 64), (33, 24), (32, 1)])
def test_forms_that_escape_the_rewrite_are_right_at_awkward_sizes(n, d):
    args = arguments(torch.float32, n, d)
    for name in ("mask + s / 20", "s * 0.05 + mask", "(s / 20).masked_fill"):
        assert found(forms.FORMS[name], args)[1], name


def test_forgotten_divisor_is_the_default_of_sdpa():
    """Where 2.11 is wrong, its result is that of SDPA with scale 1 / sqrt(d); later versions give the user's scale."""
    args = arguments(torch.float32)
    q, k, v, mask = args
    got = forms.rewritten(forms.FORMS["s / 20 + mask"], args)(*args)
    right = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=None if FORGETS else 1 / 20)
    assert torch.allclose(got, right, atol=1e-6)


def test_dropout_of_zero_hides_no_form():
    """Dropout that is off is gone before the patterns are looked for."""
    def form(q, k, v, mask):
        return torch.nn.functional.dropout(torch.softmax(q @ k.transpose(-2, -1) / 20 + mask, -1), 0.0) @ v
    assert found(form, arguments(torch.float32)) == (1, not FORGETS)


def test_explicit_sdpa_is_right_and_counted_as_no_rewrite():
    args = arguments(torch.float32)
    assert found(forms.sdpa, args)[1]
    assert forms.error(forms.sdpa(*args), forms.FORMS["s / 20 + mask"], args) < 1e-6


def test_large_scores_stay_finite():
    q, k, v, mask = arguments(torch.float32)
    args = (1e3 * q, 1e3 * k, v, mask)
    out = forms.rewritten(forms.FORMS["s * 0.05 + mask"], args)(*args)
    assert out.isfinite().all() and forms.error(out, forms.FORMS["s * 0.05 + mask"], args) < 1e-3


def test_counter_reads_zero_on_a_warm_cache():
    """The generated code is the same and still calls SDPA, but the pass that counts did not run."""
    need(COMPILER, "no C++ compiler, which torch.compile needs on a CPU")
    args = arguments(torch.float32)
    with forms.fresh_cache():
        cold, warm = (forms.observe(forms.FORMS["s / 20"], args) for _ in range(2))
    assert (cold["counter_count"], warm["counter_count"]) == (1, 0)
    assert cold["calls"] == warm["calls"] and cold["call_count"] == 1


def test_compiled_form_is_what_the_graph_says():
    need(COMPILER, "no C++ compiler, which torch.compile needs on a CPU")
    args = arguments(torch.float32)
    seen = forms.observe_fresh(forms.FORMS["s / 20 + mask"], args)
    assert seen["call_count"] == 1 and (seen["error"] < 1e-6) is not FORGETS and seen["eager_error"] < 1e-6
