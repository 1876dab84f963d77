"""What a kernel's name says of it, on names that an H200 gave and on others that PyTorch launches."""
import json

import pytest

from harness import record
from harness.kernel_names import category, short

MEASURED = {kernel["name"]: kernel["category"] for file in record.RESULTS.rglob("*.json")
            for result in json.loads(file.read_text(encoding="utf-8")).get("results", ())
            for kernel in result.get("kernels", ())}
CLAMP = "at::native::(anonymous namespace)::launch_clamp_scalar(at::TensorIteratorBase&, c10::Scalar, c10::Scalar)::{lambda()#1}"
ADD = "at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::Half>, std::array<char*, 3ul> >(int)"
KNOWN = [
    ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_cga1x1x1_kernel0_0", "attention"),
    ("fmha_cutlassF_f16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::half_t>::Params)", "attention"),
    ("void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4> >()", "attention"),
    ("triton_tem_fused_flex_attention_0", "attention"),
    ("nvjet_sm90_hsh_256x128_64x4_1x2_h_bz_coopA_NNT", "matmul"),
    ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x3_tn", "matmul"),
    ("triton_tem_fused_mm_0", "matmul"),
    ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>, 4> >()", "reduction"),
    ("void (anonymous namespace)::softmax_warp_forward<c10::Half, c10::Half, float, 10, false, false>(int)", "reduction"),
    ("void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float, float, float>(int)", "reduction"),
    ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>(int)", "reduction"),
    ("triton_red_fused__softmax_copy_0", "reduction"),
    ("triton_per_fused_native_layer_norm_1", "reduction"),
    ("Memcpy DtoD (Device -> Device)", "copy"),
    ("Memcpy HtoD (Pageable -> Device)", "copy"),
    ("void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(int)::{lambda()#3}>()", "copy"),
    ("triton_poi_fused_clone_0", "copy"),
    ("triton_poi_fused_clone_add_0", "pointwise"),
    ("triton_poi_fused_native_layer_norm_flash_attention_2", "pointwise"),
    ("void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<normal_and_transform>()", "pointwise"),
    (f"void {ADD}", "pointwise"),
    ("spin_kernel(long)", "other"),
]


@pytest.mark.parametrize(("name", "expected"), KNOWN)
def test_kernel_names_category_of_a_known_kernel(name, expected):
    assert category(name) == expected


def test_kernel_names_category_of_every_measured_kernel_is_the_recorded_one():
    assert len(MEASURED) >= 25
    kernels = {name: label for name, label in MEASURED.items() if not name.startswith("Memset")}
    assert {name: category(name) for name in kernels} == kernels


@pytest.mark.parametrize(("part", "expected"), [
    ("gpu_kernel_impl_nocast<at::native::CUDAFunctor_add<c10::Half>", "elementwise_kernel<128, 4> · CUDAFunctor_add"),
    ("<8, at::native::GeluCUDAKernelImpl", "vectorized_elementwise_kernel<8> · GeluCUDAKernelImpl"),
    ("MulFunctor<float> >, std::array", "vectorized_elementwise_kernel<8> · MulFunctor"),
    ("at::native::Copy<c10::Half", "multi_tensor_apply_kernel · Copy"),
    ("BinaryOpListAlphaFunctor", "multi_tensor_apply_kernel · BinaryOpListAlphaFunctor"),
    ("triton_poi_fused_add_gelu_mul_0", "triton_poi_fused_add_gelu_mul_0"),
    ("nvjet_sm90_hsh_256x128_64x4_1x2_h_bz_coopA_NNT", "nvjet_sm90_hsh_256x128_64x4_1x2_h_bz_coopA_NNT"),
])
def test_kernel_names_short_of_a_measured_kernel(part, expected):
    name = next(name for name in MEASURED if part in name)
    assert short(name) == expected


@pytest.mark.parametrize(("name", "expected"), [
    ("void (anonymous namespace)::softmax_warp_forward<c10::Half, c10::Half, float, 10, false, false>(int)", "softmax_warp_forward"),
    ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>, 4> >()", "reduce_kernel<512, 1>"),
    (f"void at::native::vectorized_elementwise_kernel<8, {CLAMP}, std::array<char*, 2ul> >(int)",
     "vectorized_elementwise_kernel<8> · launch_clamp_scalar"),
    ("Memcpy DtoD (Device -> Device)", "Memcpy DtoD (Device -> Device)"),
    ("::", "::"), ("", ""), ("<script>", "<script>"),
])
def test_kernel_names_short_of_other_names(name, expected):
    assert short(name) == expected
