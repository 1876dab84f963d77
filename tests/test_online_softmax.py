"""The online softmax of snippets/attention/online_softmax.py against torch.softmax, in float64, over rows of every kind."""
import math
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from harness import snippet, stepper

twin = snippet.load("attention/online_softmax")
INF = math.inf
ORDERS = {"as drawn": list, "rising": sorted, "falling": lambda row: sorted(row, reverse=True)}
HUGE = 1e30  # exp of it overflows in every dtype
score = st.one_of(st.floats(-20, 20), st.floats(-HUGE, HUGE), st.sampled_from([-INF, -HUGE, 0.0, HUGE]))
row = st.builds(lambda scores, order: ORDERS[order](scores), st.lists(score, min_size=1, max_size=24), st.sampled_from(sorted(ORDERS)))
block = st.integers(1, 30)
checked = settings(max_examples=150, deadline=None, database=None, derandomize=True)


def tensors(scores: list[float], d: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """The row, and values that no two of its places share."""
    values = torch.sin(torch.arange(1, len(scores) * d + 1, dtype=torch.float64)).reshape(-1, d)
    return exact(scores), values


def exact(numbers) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def reference(scores, values):
    """torch.softmax, and 0 where it gives NaN because everything is masked."""
    p = torch.softmax(scores, -1)
    return p.masked_fill((scores == -INF).all(-1, keepdim=True), 0) @ values


def close(found, expected) -> bool:
    return torch.allclose(found, expected, rtol=1e-12, atol=1e-13)


def same(a, b) -> bool:
    """Whether two states have one maximum, and sums that agree up to rounding."""
    return torch.equal(a[0], b[0]) and all(close(x, y) for x, y in zip(a[1:], b[1:], strict=True))


@pytest.mark.parametrize("form", [twin.online, twin.online_normalised])
@checked
@given(row, block)
@example([5.0], 1)
@example([-INF], 1)
@example([-INF] * 5, 2)
@example([-INF, -INF, 1.0, 2.0], 2)
@example([1.0, -INF, -INF, -INF], 1)
@example([HUGE, -HUGE, HUGE], 1)
@example([float(n) for n in range(12)], 5)
@example([float(-n) for n in range(12)], 5)
def test_online_gives_the_softmax_of_the_whole_row(form, scores, block):
    scores, values = tensors(scores)
    found = form(scores, values, block)
    assert found.shape == (3,) and close(found, reference(scores, values))


@pytest.mark.parametrize("wrong", [INF, math.nan])
@pytest.mark.parametrize("form", [twin.online, twin.online_normalised, twin.softmax_in_one])
def test_infinite_score_and_nan_give_nan_as_torch_does(form, wrong):
    scores, values = tensors([1.0, wrong, 2.0])
    found = form(scores, values) if form is twin.softmax_in_one else form(scores, values, 1)
    assert found.isnan().all() and torch.softmax(scores, -1).isnan().all()


@checked
@given(row, block, block)
def test_both_forms_agree_at_any_block_sizes(scores, block, other):
    scores, values = tensors(scores)
    assert close(twin.online(scores, values, block), twin.online_normalised(scores, values, other))


@checked
@given(row, block)
def test_state_is_what_it_is_said_to_be(scores, block):
    scores, values = tensors(scores)
    m, l, o = twin.fold(scores, values, block)
    p = torch.zeros_like(scores) if m == -INF else torch.exp(scores - scores.max())
    assert torch.equal(m[0], scores.max()) and close(l[0], p.sum()) and close(o, p @ values)


@checked
@given(row, row, row, block)
@example([-INF], [1.0], [-INF], 1)
@example([HUGE], [-HUGE], [0.0], 1)
def test_merge_is_associative_and_commutative(first, second, third, block):
    scores, values = tensors(first + second + third)
    sizes = [len(first), len(second), len(third)]
    a, b, c = (twin.fold(s, v, block) for s, v in zip(scores.split(sizes), values.split(sizes), strict=True))
    left, right = twin.merge(twin.merge(a, b), c), twin.merge(a, twin.merge(b, c))
    assert same(left, right) and same(twin.merge(a, b), twin.merge(b, a))
    assert same(left, twin.fold(scores, values, block))
    assert close(twin.finish(twin.merge(c, twin.merge(a, b))), reference(scores, values))


@checked
@given(row, block)
def test_merging_nothing_changes_nothing(scores, block):
    scores, values = tensors(scores)
    state = twin.fold(scores, values, block)
    assert same(twin.merge(state, twin.start(scores, values)), state)


@checked
@given(row)
def test_one_block_is_the_whole_row_at_once(scores):
    assume(max(scores) > -INF)
    scores, values = tensors(scores)
    assert close(twin.online(scores, values, len(scores)), twin.softmax_in_one(scores, values))


@pytest.mark.parametrize("form", [twin.online, twin.online_normalised])
def test_masked_rows_are_as_sdpa_gives_them(form):
    """Rows of one matrix: masked first block, masked last, all masked, none masked."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 1, n, 4, dtype=torch.float64) for n in (4, 9, 9))
    keep = torch.ones(4, 9, dtype=torch.bool)
    keep[0, :3], keep[1, 6:], keep[2] = False, False, False
    scores = (q @ k.mT / math.sqrt(4)).masked_fill(~keep, -INF)
    found = form(scores, v, 3)
    assert close(found, F.scaled_dot_product_attention(q, k, v, attn_mask=keep))
    assert found[0, 0, 2].tolist() == [0, 0, 0, 0] and torch.softmax(scores, -1)[0, 0, 2].isnan().all()


@pytest.mark.parametrize(("old", "new"), [(2.0, 3.0), (2.0, 2.0), (-INF, 1.0), (3.0, -1.0)])
def test_factors_are_those_of_each_form(old, new):
    """A second block whose values are 0: what is left of o is the old one times its factor."""
    scores, values = tensors([old, new])
    values[1] = 0
    before, after = (twin.fold(scores[:n], values[:n], 1) for n in (1, 2))
    alpha = torch.exp(before[0] - after[0])
    assert close(after[2], alpha * before[2])
    factor = alpha * before[1] / after[1]
    assert close(twin.online_normalised(scores, values, 1), factor * twin.online_normalised(scores[:1], values[:1], 1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("form", [twin.online, twin.online_normalised])
def test_results_keep_the_dtype_and_its_precision(form, dtype):
    torch.manual_seed(0)
    scores, values = torch.randn(8, 96).to(dtype), torch.randn(96, 4).to(dtype)
    found, right = form(scores, values, 16), reference(scores.double(), values.double())
    assert found.dtype == dtype
    assert (found.double() - right).norm() / right.norm() < 8 * torch.finfo(dtype).eps


@checked
@given(st.lists(st.one_of(st.floats(-99, 99), st.just(-INF)), min_size=12, max_size=12))
@example(list(stepper.SCORES))
@example([-INF] * 12)
@example([-INF] * 4 + list(stepper.SCORES[4:]))
def test_stepper_does_the_same_arithmetic(scores):
    row, values = exact(scores), exact(stepper.VALUES)
    steps = stepper.steps(scores)
    assert len(steps) == 4 and close(exact(stepper.whole(scores)), reference(row, values))
    for count, found in enumerate(steps):
        seen = count * stepper.BLOCK
        m, l, o = twin.fold(row[:seen], values[:seen], stepper.BLOCK)
        assert found["m"] == m.item() and close(exact([found["l"], *found["o"]]), torch.cat([l, o]))
        assert close(exact(found["mean"]), twin.online_normalised(row[:seen], values[:seen], stepper.BLOCK))


@checked
@given(st.lists(st.floats(-99, 99), min_size=12, max_size=12))
def test_stepper_shows_the_factor_of_each_form(scores):
    for before, after in pairwise(stepper.steps(scores)):
        assert after["factor"] == math.exp(before["m"] - after["m"]) and after["old"] == before["m"]
        assert after["scale"] == pytest.approx(after["factor"] * before["l"] / after["l"], rel=1e-12)
