/* A profile made by hand, as suites read it: of processors that run the fixtures' small SD 1.5. */
#ifndef DP_TESTS_PROFILE_TEXT_H
#define DP_TESTS_PROFILE_TEXT_H

#define PROFILE_HEAD                                                                                           \
  "{\"format\": \"diffpipe-profile\", \"version\": 1, \"device\": \"CPU-core\", \"processor\": \"by hand\",\n"  \
  "\"cores\": 2, \"threads\": 1, \"workers\": 2, \"implementation\": \"cpu\", \"precision\": \"fp32\",\n"       \
  "\"gemm\": \"none\", \"made\": \"2026-01-01T00:00:00Z\",\n"                                                  \
  "\"optimizer_s\": 1e-6, \"optimizer_s_per_parameter\": 1e-9, \"optimizer_busy_factor\": 1.5,\n"               \
  "\"loss_s\": 2e-6, \"loss_s_per_byte\": 1e-10, \"instruction_s\": 1e-5, \"handover_s\": 4e-5,\n"              \
  "\"step_s\": 1e-4, \"repeat_error\": 0.03, \"held_out_error\": 0.12, \"held_out\": 7,\n"
#define PROFILE_POINTS                                                        \
  "\"copies\": [{\"bytes\": 1000, \"alone_s\": 1e-6, \"busy_s\": 2e-6},\n"      \
  "{\"bytes\": 100000, \"alone_s\": 1e-5, \"busy_s\": 4e-5}],\n"                \
  "\"sums\": [{\"bytes\": 1000, \"alone_s\": 3e-6, \"busy_s\": 3e-6}],\n"
#define PROFILE_OP(key, pass, alone, busy)                                                                          \
  "{\"op\": \"" key "\", \"direction\": \"" pass "\", \"matrix_flops\": 1e6, \"flops\": 0, \"bytes\": 1000, "      \
  "\"alone_s\": " alone ", \"busy_s\": " busy ", \"runs\": 3}"
#define PROFILE_LAW(kind, class, pass, overhead, flop, byte)                                                         \
  "{" kind "\"class\": \"" class "\", \"direction\": \"" pass "\", \"overhead_s\": " overhead                         \
  ", \"s_per_matrix_flop\": " flop ", \"s_per_flop\": 0, \"s_per_byte\": " byte                                       \
  ", \"busy_factor\": 2, \"largest_matrix_flops\": 1e7, \"largest_flops\": 1e7, \"largest_bytes\": 1e7, "             \
  "\"error\": 0.1, \"points\": 5}"

#endif
