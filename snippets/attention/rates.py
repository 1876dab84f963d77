"""FLOP/s of attention by the papers' formula. Needs no torch: pages and their claims compute with it."""
from statistics import median


# --8<-- [start:flops]
def flops(batch, heads, seqlen, head_dim, *, causal=False, passes="fwd"):
    """FLOPs as FlashAttention-2, section 4.1, counts them: two products of 2 * N * N * d a head; a causal mask halves.

    A backward counts 2.5 times a forward: five products where the forward has two.
    """
    forward = 4 * batch * heads * seqlen**2 * head_dim / (2 if causal else 1)
    return forward * {"fwd": 1, "bwd": 2.5, "fwd+bwd": 3.5}[passes]
# --8<-- [end:flops]


def median_us(point, passes="fwd+bwd"):
    """Median time of a point of papers.py; both passes are added sample by sample."""
    forward, backward = point["forward"]["samples_us"], point["backward"]["samples_us"]
    both = [sum(pair) for pair in zip(forward, backward, strict=True)]
    return median({"fwd": forward, "bwd": backward, "fwd+bwd": both}[passes])


def tflops(point, passes="fwd+bwd", **shape):
    """TFLOP/s of a point of papers.py, its shape as `flops` takes it."""
    return flops(passes=passes, **shape) / median_us(point, passes) / 1e6


def transformer_shape(case, length):
    """The shape of papers.transformer: "d64 causal" at 4096 tokens has 4 sequences of 32 heads."""
    head_dim = int(case[1:].split()[0])
    return {"batch": round(16384 / length), "heads": 2048 // head_dim, "seqlen": length, "head_dim": head_dim,
            "causal": case.endswith("causal")}


def grouped_shape(case, length):
    """The shape of papers.grouped. Only query heads count: fewer key heads mean fewer bytes, not fewer FLOPs."""
    return {"batch": 1, "heads": 64, "seqlen": length, "head_dim": 128, "causal": case == "causal"}


def curve(lengths, case, way, passes, shape=transformer_shape):
    """[(length, TFLOP/s), ...] of one way over a case's {length: {way: point}}, where it was measured."""
    found = {int(length): ways[way] for length, ways in lengths.items() if "forward" in ways.get(way, {})}
    return [(length, tflops(point, passes, **shape(case, length))) for length, point in sorted(found.items())]
