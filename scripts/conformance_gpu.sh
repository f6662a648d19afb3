#!/usr/bin/env bash
# Generated programs on a GPU, by several processes at once: scripts/conformance_gpu.sh FIRST [PROCESSES] [PROGRAMS] [SECONDS]
# Process i takes PROGRAMS seeds from FIRST + 1000 i on (default: 16 processes, 250 programs, 300 seconds). Programs that
# fail are named with what went wrong; each runs alone by `conformance --device cuda --no-examples --programs 1 --seed N`.
# CONFORMANCE names the binary (default: that of build/dev). Needs no build tools, so that it can run on another machine.
set -u
first=${1:?a seed to begin with}
processes=${2:-16} programs=${3:-250} seconds=${4:-300}
binary=${CONFORMANCE:-$(dirname "$0")/../build/dev/tests/conformance/conformance}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for ((i = 0; i < processes; ++i)); do
  seed=$((first + 1000 * i))
  timeout -k 5 "$seconds" "$binary" --device cuda --no-examples --programs "$programs" --seed "$seed" \
    >"$folder/$seed" 2>&1 &
done
wait
failed=0
for ((i = 0; i < processes; ++i)); do
  seed=$((first + 1000 * i))
  last=$(tail -n 1 "$folder/$seed")
  [[ $last == *" 0 failed"* ]] && continue
  failed=1
  grep -a FAILED "$folder/$seed" | head -n 5
  echo "seeds from $seed on: ${last:-ended early or took more than $seconds s}"
done
[ $failed = 0 ] && echo "$((processes * programs)) programs, no failure"
exit $failed
