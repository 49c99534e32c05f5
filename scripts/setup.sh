#!/usr/bin/env bash
# Installs what diffpipe is built with, where it is missing, on Debian and Ubuntu. On another system it prints what is
# needed and stops. Shared by quickstart.sh and check.sh.
#
# usage: scripts/setup.sh [build|check]     (check: what the tests need too)
set -euo pipefail

what=${1:-build}
packages=(build-essential autoconf automake pkg-config libjansson-dev zlib1g-dev libtomlplusplus-dev libopenblas-dev
  libopenmpi-dev libpng-dev libjpeg-dev gnuplot-nox fonts-dejavu-core)
if [ "$what" = check ]; then
  packages+=(check clang iproute2 procps valgrind graphviz help2man jq tidy)
fi

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  cat >&2 <<'EOF'
diffpipe: this is not Debian or Ubuntu; please install by hand:
  a C11 and a C++17 compiler, make, autoconf >= 2.69, automake >= 1.16, pkg-config, jansson, zlib, toml++;
  optional: OpenBLAS, OpenMPI, libpng, libjpeg, gnuplot, CUDA Toolkit 13 with cuDNN and NCCL;
  for the tests: Check, clang with libFuzzer, iproute2, procps, valgrind, graphviz, help2man, tidy; for scripts/tables.sh: jq.
Then: ./autogen.sh && ./configure && make
EOF
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [ "$status" = "install ok installed" ] || missing+=("$package")
done
# Where clang's fuzzer runtime is a package of its own it is asked for; elsewhere clang brings it.
has_fuzzer() { command -v clang >/dev/null && compgen -G "$(clang -print-resource-dir)/lib/*/libclang_rt.fuzzer*" >/dev/null; }
if [ "$what" = check ] && ! has_fuzzer; then missing+=(libclang-rt-dev); fi
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "diffpipe: please install as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "diffpipe: installing ${missing[*]}" >&2
"${as_root[@]}" apt-get update -qq
wanted=()
for package in "${missing[@]}"; do
  [ "$package" = libclang-rt-dev ] && ! apt-cache show "$package" >/dev/null 2>&1 || wanted+=("$package")
done
if [ ${#wanted[@]} -gt 0 ]; then
  # variables do not pass sudo by themselves
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${wanted[@]}" >&2
fi
if [ "$what" = check ] && ! has_fuzzer; then
  echo "diffpipe: clang has no libFuzzer runtime (libclang_rt.fuzzer); please install it by hand" >&2
  exit 1
fi
