#!/bin/sh
# Needs a GPU: configurations that fault or run for minutes, made by faulting_nvrtc.c.
#   faulting.sh kachel shim folder source
set -u
kachel=$1 shim=$2 folder=$3 program=$4/tests/cli/programs/two_configurations.tile
launch="$program --device cuda --bind N=100000 --scalar a=0.5 --json --stats"

fail() {
  echo "FAILED: $1" && cat "$folder/out" "$folder/err"
  exit 1
}
skip() {
  echo "SKIPPED: $1"
  exit 0
}
# command(expected status, arguments...)
command() {
  expected=$1 && shift
  echo "\$ kachel $*"
  # shellcheck disable=SC2086
  "$kachel" "$@" >"$folder/out" 2>"$folder/err"
  status=$?
  [ "$status" = "$expected" ] || fail "exit status $status, expected $expected"
}
says() {
  tr -d ' \n' <"$folder/out" | grep -q -- "$1" || fail "it does not say $1"
}

rm -rf "$folder" && mkdir -p "$folder"
nvrtc=${KACHEL_NVRTC:-/usr/local/cuda/lib64}
[ -d "$nvrtc" ] && nvrtc=$(ls "$nvrtc"/libnvrtc.so.[0-9]* 2>/dev/null | head -n 1)
[ -f "$nvrtc" ] || skip "no NVRTC; KACHEL_NVRTC says where it is"
"$kachel" devices | grep -q cuda || skip "no GPU"
export REAL_NVRTC="$nvrtc" KACHEL_NVRTC="$shim"
export FAULT_IN='* 256)'  # of BN = 256

# In the host's process the device is lost with it, and nothing is decided.
export KACHEL_CACHE="$folder/host" KACHEL_WORKER=
command 4 tune $launch --budget 5
grep -q "device" "$folder/err" || fail "it does not say that the device is lost"
"$kachel" cache ls >"$folder/out" 2>"$folder/err"
grep -q "^plan" "$folder/out" || fail "its binaries are not there"
grep -q "^tuning\|^sample" "$folder/out" && fail "something was decided"

# In a worker it costs the worker; the host goes on, and others know of it.
for harm in fault hang; do
  state=crashed && [ $harm = hang ] && state=timedout
  export KACHEL_CACHE="$folder/$harm" KACHEL_WORKER=kachel-tune-worker
  [ $harm = hang ] && export HANG=1
  began=$(date +%s)
  command 0 tune $launch --budget 10
  echo "$harm: $(($(date +%s) - began)) s"
  says '"workers_lost":1,' && says '"winner":0,' && says "\"configuration\":\"BN=256\",\"state\":\"$state\""
  KACHEL_NVRTC=$nvrtc command 0 run $launch --policy blocking --repeat 2 --check
  says '"mismatches":0' && says '"measurements":0,' && says '"compiles":0,'
done
