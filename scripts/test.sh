#!/usr/bin/env bash
# Sets up, builds everything with warnings as errors, and runs every quick test. docs/testing.md has the other tiers.
# shellcheck source=scripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
provide_nvrtc

say "Configuring and building (build/dev, $JOBS jobs)"
cmake --preset dev
cmake --build --preset dev -j "$JOBS"

say "Testing"
[ -n "${KACHEL_NVRTC-}" ] || echo "No NVRTC: tests that compile for CUDA are skipped."
[ -e /dev/nvidiactl ] || echo "No NVIDIA GPU: tests that run on one are not among those below; CUDA is tested up to the binary."
ctest --preset dev -j "$JOBS"
