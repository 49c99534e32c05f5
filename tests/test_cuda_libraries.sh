#!/usr/bin/env bash
# The libraries of CUDA are loaded when a device is first used: each is there with every function that is called, the
# program starts without them, and one that is missing or too old is named in one line.
set -uo pipefail
. "${SRCDIR:?the source tree}/tests/lib.sh" || exit 1
program=${BUILDDIR:?the build folder}/tests/cuda_libraries
[ -x "$program" ] || { echo "this build has no CUDA executor"; exit 77; }
read -ra cc <<<"${CC:-cc}"

loads() { "$program" >"$scratch/versions" && grep -q '^cuBLASLt ' "$scratch/versions" && grep -q '^cuDNN ' "$scratch/versions"; }
one 'all libraries and functions' loads

starts() {
  LD_DEBUG=files "$diffpipe" inspect "$top/scenarios/models/sd15_unet.json" >/dev/null 2>"$scratch/files"
  grep -q libjansson "$scratch/files" && ! grep -E 'libcublasLt|libcudnn|libnccl' "$scratch/files"
}
one 'the program starts without them' starts

# lacks FILE CODE PATTERN: with a library of that code in the place of FILE, the error is one line of that pattern. A
# library that is loaded already is the one that a file of its name is.
lacks() {
  local status=0
  echo "$2" >"$scratch/stub.c"
  "${cc[@]}" -shared -fPIC -Wl,-soname,"$1" -o "$scratch/$1" "$scratch/stub.c" || return 1
  LD_PRELOAD=$scratch/$1 "$program" >"$scratch/out" 2>"$scratch/err" || status=$?
  [ "$status" -eq 1 ] && [ ! -s "$scratch/out" ] && [ "$(wc -l <"$scratch/err")" -eq 1 ] && grep -qE -e "$3" "$scratch/err" ||
    { cat "$scratch/err"; echo "exit status $status, no line like: $3"; return 1; }
}
name() { grep -aoE "$1\.so\.[0-9]+" "$program" | head -n 1; }
cublaslt=$(name libcublasLt) cudnn=$(name libcudnn)
one 'another library of that name' lacks "$cublaslt" 'int nothing;' \
  "^cuda_libraries: cuBLASLt \($cublaslt\) has no cublasLtGetVersion, needed: "
one 'an old one' lacks "$cudnn" '#include <stddef.h>
size_t cudnnGetVersion(void) { return 90102; }
const char *cudnnGetErrorString(int status) { return status ? "a" : "b"; }' \
  "^cuda_libraries: cuDNN 9\.1\.2 \($cudnn\) has no cudnnCreate, needed: one as new as "
one 'none that can be loaded' lacks none.so '#include <stddef.h>
void *dlopen(const char *file, int mode) { return file && mode ? NULL : NULL; }
char *dlerror(void) { return "there is none"; }' "^cuda_libraries: cuBLASLt cannot be loaded: there is none, needed: $cublaslt, "
finish
