/* Classes of kernels: a table of real names, and what is wrong with rules. */
#include <check.h>
#include <string.h>

#include "profiler/classes.h"
#include "tests/suite.h"

static const struct {
  prof_class class;
  const char *name;
} rows[] = {
    /* an H200 with CUDA 13 and cuDNN 9 */
    {PROF_GEMM, "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT"},
    {PROF_GEMM, "nvjet_sm90_tss_128x128_64x6_1x1_h_bz_splitK_NTT"},
    {PROF_GEMM, "_ZN7cutlass7Kernel2I50cutlass_75_tensorop_s1688gemm_bf16_64x64_nt_align1EEvNT_6ParamsE"},
    {PROF_GEMM,
     "_ZN8cublasLt19splitKreduce_kernelILi32ELi16EiffffLb0EfffLb1ELb0ELb0ELb0EEEvNS_18cublasSplitKParamsIT4_EE"},
    {PROF_CONVOLUTION, "cudnn_generated_fort_native_sm90_convBwdFilter_knob_2_128x128x64_5_0"},
    {PROF_CONVOLUTION,
     "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_warpgroupsize1x1x1_g1_"
     "execute_segment_k_off_kernel__5x_cudnn"},
    {PROF_CONVOLUTION,
     "sm90_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize256x128x64_warpgroupsize2x1x1_g1_"
     "execute_kernel__5x_cudnn"},
    {PROF_CONVOLUTION,
     "sm90_xmma_wgrad_indexed_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_warpgroupsize1x1x1_"
     "g1_execute_kernel__5x_cudnn"},
    {PROF_CONVOLUTION,
     "_ZN5cudnn19engines_precompiled16nchwToNhwcKernelI13__nv_bfloat16S2_fLb0ELb1EL21cudnnKernelDataType_t0EEEvNS0_"
     "18nchw2nhwc_params_tIT1_EE"},
    {PROF_CONVOLUTION, "_Z20nhwcAddPaddingKernelI13__nv_bfloat16S0_fLb1EL21cudnnKernelDataType_t0EEviiiiiiiiPKT_PT0_"},
    {PROF_CONVOLUTION,
     "_ZN17cutlass__5x_cudnn6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS1_"
     "11threadblock22ImplicitGemmMultistageE"},
    {PROF_CONVOLUTION,
     "_ZN21cask_plugin__5x_cudnn14xmma__5x_cudnn28init_device_workspace_kernelIN14xmma__5x_cudnn13implicit_"
     "gemm5fpropE"},
    {PROF_ATTENTION,
     "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64_1x4x1_cga1x1x1_kernel0_0"},
    {PROF_ATTENTION,
     "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0"},
    {PROF_ATTENTION, "_ZN5cudnn6fusion9matmul_dqILb1ELi64EEEvPKvS3_PvjjjjjjjjjjjjjjbS4_S4_bS4_S4_"},
    {PROF_ATTENTION, "_ZN5cudnn6fusion28compute_dot_do_o_specializedILb1ELi64EEEvPKvS3_PvS4_jjjj"},
    /* our own */
    {PROF_OPTIMIZER,
     "_ZN4kern39_GLOBAL__N__c084c1d9_7_flat_cu_8149357112adamw_kernelIf13__nv_bfloat16Li4EEEvlNS0_9adamw_jobIT_T0_EE"},
    {PROF_OPTIMIZER, "_ZN4kern39_GLOBAL__N__c084c1d9_7_flat_cu_8149357114squares_kernelIfLi4EEEvlPKT_Pd"},
    {PROF_NORM,
     "_ZN4kern44_GLOBAL__N__b4e993c7_11_row_norm_cu_af007b8f14both_gradientsI13__nv_bfloat16Li256ELi4ELb0EEEv"},
    {PROF_NORM,
     "_ZN4kern46_GLOBAL__N__c4a2de7d_13_group_norm_cu_5956605d5applyI13__nv_bfloat16Li8ELb1EEEvNS_5sweepEiPKT_S6_S6_"
     "PKfPS4_"},
    {PROF_CONVOLUTION,
     "_ZN4kern47_GLOBAL__N__d4a737dd_14_conv_gather_cu_3801c57914gather_columnsI5uint4Lb0EEEvNS0_6gatherEliPKT_PS4_"},
    {PROF_ELEMENTWISE,
     "_ZN4kern13stream_kernelINS_46_GLOBAL__N__3fd0665f_13_activation_cu_a87576d617gated_forward_jobI13__nv_"
     "bfloat16Li8ENS1_4geluEEEEEvlT_"},
    {PROF_ELEMENTWISE,
     "_ZN4kern13stream_kernelINS_39_GLOBAL__N__c084c1d9_7_flat_cu_8149357111convert_jobI13__nv_bfloat16fLi4EEEEEvlT_"},
    {PROF_ELEMENTWISE,
     "_ZN4kern39_GLOBAL__N__f9d14cc0_7_bias_cu_c424eb5a9sum_slabsI13__nv_bfloat16fLi8EEEvllllibPKT_PfPT0_"},
    {PROF_ELEMENTWISE, "_ZN4kern15add_column_sumsIfEEvllbPKfPT_S4_"},
    /* PyTorch */
    {PROF_ELEMENTWISE,
     "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, "
     "3ul> >(int)"},
    {PROF_ELEMENTWISE,
     "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_"},
    {PROF_ELEMENTWISE,
     "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float, float, "
     "float> > >"},
    {PROF_ELEMENTWISE,
     "void at::native::(anonymous namespace)::CatArrayBatchedCopy_contig<at::native::(anonymous "
     "namespace)::OpaqueType<2u>, unsigned int, 4, 64, 64>"},
    {PROF_NORM,
     "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float, "
     "c10::BFloat16 const*)"},
    {PROF_NORM,
     "void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float>(long, float, float const*, float*, "
     "float*)"},
    {PROF_NORM,
     "void (anonymous namespace)::softmax_warp_forward<float, float, float, 8, true, false>(float*, float const*, int, "
     "int, int)"},
    {PROF_OPTIMIZER,
     "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
     "namespace)::FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, "
     "4> >"},
    {PROF_OPTIMIZER,
     "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
     "namespace)::TensorListMetadata<1>, at::native::(anonymous namespace)::LpNormFunctor<float>>"},
    {PROF_ATTENTION,
     "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, "
     "cutlass::bfloat16_t> >"},
    {PROF_ATTENTION,
     "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t, "
     "cutlass::arch::Sm80>)"},
    {PROF_ATTENTION,
     "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2>>>>"},
    {PROF_GEMM,
     "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_"
     "cublas"},
    {PROF_GEMM, "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"},
    {PROF_GEMM, "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, false>"},
    {PROF_GEMM, "triton_tem_fused_addmm_3"},
    {PROF_ELEMENTWISE, "triton_poi_fused_add_mul_silu_12"},
    {PROF_ELEMENTWISE, "triton_red_fused_mean_pow_0"},
    {PROF_NORM, "triton_per_fused_native_layer_norm_5"},
    {PROF_OPTIMIZER, "triton_for_fused_0"},
    {PROF_ELEMENTWISE, "void hadamard_mul_kernel::elementwise<float>(float*)"},
    /* NCCL */
    {PROF_NCCL, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"},
    {PROF_NCCL, "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"},
    {PROF_NCCL, "_Z44ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL24ncclDevKernelArgsStorageILm4096EE"},
    {PROF_OTHER, "my_own_thing"},
    {PROF_OTHER, ""},
};

START_TEST(real_names) {
  prof_rules rules;
  dp_error error = DP_ERROR_INIT;
  ck_assert_msg(prof_rules_read(NULL, &rules, &error) == DP_OK, "%s", error.text);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const prof_class found = prof_rules_class(&rules, rows[i].name);
    ck_assert_msg(found == rows[i].class, "%s is %s and not %s", rows[i].name, prof_class_names[found],
                  prof_class_names[rows[i].class]);
  }
  prof_rules_free(&rules);
}
END_TEST

#define HEAD "format = \"diffpipe-kernels\"\nversion = 1\n"

START_TEST(first_rule_wins) {
  static const char text[] = HEAD
      "[[rule]]\nclass = \"norm\"\nany = [\"Aa\", \"bb\"]\nwithout = [\"c\"]\n"
      "[[rule]]\nclass = \"gemm\"\nany = [\"a\"]\n";
  prof_rules rules;
  dp_error error = DP_ERROR_INIT;
  ck_assert_int_eq(prof_rules_parse(text, sizeof text - 1, "r", &rules, &error), DP_OK);
  ck_assert_int_eq(prof_rules_class(&rules, "xaAx"), PROF_NORM);
  ck_assert_int_eq(prof_rules_class(&rules, "aBBa"), PROF_NORM);
  ck_assert_int_eq(prof_rules_class(&rules, "aaC"), PROF_GEMM);
  ck_assert_int_eq(prof_rules_class(&rules, "bbc"), PROF_OTHER);
  const unsigned char classes[2] = {PROF_OTHER, PROF_NORM};
  ck_assert_int_eq(prof_record_class(&(prof_record){.kind = PROF_KERNEL, .name = 1}, classes), PROF_NORM);
  ck_assert_int_eq(prof_record_class(&(prof_record){.kind = PROF_COPY, .name = 1}, classes), PROF_COPIES);
  ck_assert_int_eq(prof_record_class(&(prof_record){.kind = PROF_GRAPH}, classes), PROF_OTHER);
  prof_rules_free(&rules);
}
END_TEST

START_TEST(wrong_rules) {
  static const char *const cases[][2] = {
      {"format = \"diffpipe-links\"\nversion = 1\n", "r:1: "},
      {HEAD "[[rule]]\nclass = \"norms\"\nany = [\"a\"]\n", "r:4: "},
      {HEAD "[[rule]]\nclass = \"norm\"\nany = \"a\"\n", "r:5: any: found a string, allowed: a list of texts"},
      {HEAD "[[rule]]\nclass = \"norm\"\nany = []\n", "r:5: any: found an empty list"},
      {HEAD "[[rule]]\nclass = \"norm\"\nany = [\"\"]\n", "r:5: any: found "},
      {HEAD "[[rule]]\nclass = \"norm\"\nsome = [\"a\"]\n", "r:5: "},
      {HEAD "rule = 3\n", "r:3: rule: found an integer, allowed: [[rule]]"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    prof_rules rules;
    dp_error error = DP_ERROR_INIT;
    ck_assert_int_eq(prof_rules_parse(cases[i][0], strlen(cases[i][0]), "r", &rules, &error), DP_BAD_INPUT);
    ck_assert_msg(strncmp(error.text, cases[i][1], strlen(cases[i][1])) == 0, "%s", error.text);
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {real_names, first_rule_wins, wrong_rules};
  return suite_run("profiler_classes", tests, sizeof tests / sizeof tests[0], NULL, NULL, 0);
}
