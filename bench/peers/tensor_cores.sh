#!/usr/bin/env bash
# bench/peers/tensor_cores.sh CUTLASS: descriptors of wgmma, swizzled boxes and who holds which number of a product, compared with CUTLASS's (the folder
# that has include/cute: its repository, or pip's nvidia-cutlass). Needs nvcc and no GPU: all of it is arithmetic on the host.
set -euo pipefail
cutlass=$(cd "${1:?usage: bench/peers/tensor_cores.sh CUTLASS}" && pwd)
[ -d "$cutlass/include/cute" ] || { echo "$cutlass has no include/cute" >&2; exit 2; }
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nvcc -std=c++17 -arch=sm_90a -I. -isystem "$cutlass/include" bench/peers/tensor_cores.cu -o "$work/tensor_cores"
"$work/tensor_cores" | grep -v cast_smem_ptr_to_uint # which says that a host has no shared memory
