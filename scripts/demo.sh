#!/usr/bin/env bash
# Sets up, builds the command, and shows what Kachel does with one kernel: tune, check, launch, restart.
# shellcheck source=scripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
device=cpu size=512
if [ -e /dev/nvidiactl ]; then
  provide_nvrtc
  [ -z "${KACHEL_NVRTC-}" ] || device=cuda size=4096
fi

say "Building (build/dev, $JOBS jobs)"
cmake --preset dev >/dev/null
cmake --build --preset dev -j "$JOBS" --target kachel_cli

kachel=build/dev/bin/kachel program=examples/matmul_relu.tile
shape=M=$size,N=$size,K=$size
store=$(mktemp -d)
trap 'rm -rf "$store"' EXIT
export KACHEL_CACHE=$store

# Shows a command the way a user would type it, then runs it.
try() {
  printf '\n$ kachel %s\n' "$*"
  "$kachel" "$@"
}

say "The devices of this machine"
try devices

say "The program: plain text, handed to the library at run time ($program)"
cat "$program"

say "First use: every configuration that the program lists is compiled, checked and measured; the best is kept in a store"
try tune "$program" --device "$device" --bind "$shape" --stats

say "Is the result right? A launch is compared, element by element, with the reference interpreter"
try run "$program" --device "$device" --bind M=200,N=300,K=123 --policy off --check --stats
echo "(Another shape, yet nothing was compiled: dimensions are run-time values, one binary serves them all.)"

say "After a restart: a new process finds binary and tuning in the store, and compiles and measures nothing"
try run "$program" --device "$device" --bind "$shape" --policy cached_only --repeat 50 --stats

say "What is in the store now"
try cache stat
