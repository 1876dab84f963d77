"""The parts of the snippet on SDPA's backends that run without a GPU: on a CPU it has flash and math."""
import pytest

torch = pytest.importorskip("torch")

from torch.nn.functional import scaled_dot_product_attention as sdpa  # noqa: E402

from harness import snippet  # noqa: E402

backends = snippet.load("attention/backends")
SMALL = {"batch": 1, "heads": 4, "kv_heads": 4, "q_len": 16, "kv_len": 16, "d": 16, "device": "cpu"}


def small(**case):
    lengths = {key: value // 16 for key, value in case.items() if key in ("q_len", "kv_len")}
    return SMALL | case | {key: max(1, value) for key, value in lengths.items()} | {"heads": 4 if "kv_heads" not in case else 8}


@pytest.mark.parametrize("name", [
    "self-attention, fp16, d = 64", "boolean mask", "mask that requires grad", "d = 64, V with 128", "GQA, boolean mask",
    "1 KV head, enable_gqa left out", "128 queries, 256 keys, is_causal", "1 key", "dropout", "requires grad",
    "three dimensions", "d not last in memory"])
def test_ways_of_asking_agree(name):
    case = {"heads": 8, "kv_heads": 8} | small(**backends.CALLS[name])
    found = backends.examine(**case)
    assert list(found["ways"]) == ["choice", "operators", "forced"]
    assert len(set(found["ways"].values())) == 1, found
    assert found["cells"]["math"] == "yes"


@pytest.mark.parametrize(("case", "words"), [
    ({"layout": "folded"}, "All fused kernels requires query, key and value to be 4 dimensional"),
    ({"dropout_p": 0.1}, "Both fused kernels do not support non-zero dropout"),
    ({"kv_heads": 1}, "For dense input, both fused kernels require query, key and value to have the same num_heads"),
    ({"mask": "learned"}, "no reason given")])
def test_refusal_gives_the_reason_in_one_sentence(case, words):
    assert backends.force("flash", *backends.inputs(**SMALL | case)) == words


def test_reason_is_that_of_the_backend_asked():
    messages = ["Memory efficient kernel not used because: (Triggered internally at a.cpp:1.)",
                "Memory Efficient attention has been runtime disabled. (Triggered internally at a.cpp:2.)",
                "Flash attention kernel not used because:", "Flash attention has been runtime disabled.",
                "cuDNN attention kernel not used because:", "head_dim should be no more than 256 (Triggered internally at a.cpp:3.)"]
    error = "No available kernel. Aborting execution."
    assert backends.reason("cuDNN", messages, error) == "head_dim should be no more than 256"
    assert backends.reason("efficient", messages, error) == "Memory Efficient attention has been runtime disabled"
    assert backends.reason("cuDNN", messages[:4], error) == "no reason given"
    assert backends.reason("cuDNN", [], "cuDNN Frontend error: no plan\nand more") == "cuDNN Frontend error: no plan"


@pytest.mark.parametrize(("text", "first"), [
    ("cuDNN dropout probability resolution is limited to 1/16.Use a probability",
     "cuDNN dropout probability resolution is limited to 1/16"),
    ("Expected query, key and value to all be of dtype: {Half, BFloat16}. Got Query dtype: float",
     "Expected query, key and value to all be of dtype: {Half, BFloat16}"),
    ("to have the same num_heads and batch_size but got: Key sizes: [2]", "to have the same num_heads and batch_size")])
def test_sentence_leaves_shapes_out(text, first):
    assert backends.sentence(text) == first


@pytest.mark.parametrize(("names", "backend"), [
    (["cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16"], "cuDNN"),
    (["void pytorch_flash::flash_fwd_kernel<...>"], "flash"), (["void pytorch_flash::flash_fwd_splitkv_kernel<...>"], "flash"),
    (["fmha_cutlassF_f16_aligned_64x64_rf_sm80(PyTorchMemEffAttention...)"], "efficient"),
    (["nvjet_hsh_128x256", "void at::native::(anonymous namespace)::softmax_warp_forward<...>"], "math"),
    (["void (anonymous namespace)::cunn_SoftMaxForward<...>"], "math"), (["vectorized_elementwise_kernel"], "none")])
def test_kernel_names_tell_the_backend(names, backend):
    assert backends.by_kernels(names) == backend


@pytest.mark.parametrize("name", backends.PAIRS)
@pytest.mark.parametrize("d", [16, 13])
def test_remedy_gives_the_same_result(name, d):
    case, remedy = backends.PAIRS[name]
    kept = {key: case[key] for key in ("layout", "mask", "is_causal", "enable_gqa") if key in case}
    kv_heads = {32: 4, 8: 2, 1: 1}[case["kv_heads"]]
    qkv, options = backends.inputs(**SMALL | kept | {"kv_heads": kv_heads, "dtype": torch.float64, "d": d, "q_len": 7})
    torch.testing.assert_close(remedy(*qkv, **options), sdpa(*qkv, **options))


def test_compare_finds_the_fallback_and_its_remedy():
    case, remedy = backends.PAIRS["three dimensions"]
    found = backends.compare(remedy, **SMALL | {"layout": case["layout"], "is_causal": True})
    assert (found["asked"]["runs"], found["instead"]["runs"]) == ("math", "flash") and found["difference"] < 2e-3


def test_without_math_a_refusal_is_loud():
    found = backends.loud(*backends.inputs(**SMALL | {"layout": "folded"}))
    assert found["error"].startswith("RuntimeError: No available kernel")
    assert any("4 dimensional" in message for message in found["warnings"])
    assert backends.loud(*backends.inputs(**SMALL)) == {"error": "none", "warnings": []}


def test_rows_say_where_the_diagonal_starts_and_what_masked_rows_give():
    found = backends.rows("cpu")
    assert found["is_causal"]["math"] == found["is_causal"]["flash"] == [1, 2]
    assert found["one query, is_causal"]["math"] == [1] and found["causal_lower_right"]["math"] == [7, 8]
    assert {found[fill]["math"] for fill in ("False", "minus infinity")} == {"0"}
    assert found["least fp16 number"]["math"] == "mean of V" and found["by hand"] == "NaN"


def test_deterministic_mode_is_put_back():
    with backends.mode(True):
        assert torch.are_deterministic_algorithms_enabled()
    assert not torch.are_deterministic_algorithms_enabled()


def test_capture_holds_what_the_page_shows():
    small = {key: value for key, value in SMALL.items() if key != "device"}
    data = backends.capture("cpu", calls={"plain": small, "is_causal": small | {"is_causal": True}}, pairs={})
    assert list(data) == ["order", "loud", "example", "calls", "pairs", "rows"]
    assert list(data["order"]) == ["before", "after"] and data["example"]["default"] == {"runs": "flash"}
    assert list(data["calls"]) == ["plain", "is_causal"] and set(data["calls"]["plain"]["cells"]) == set(backends.BACKENDS)
