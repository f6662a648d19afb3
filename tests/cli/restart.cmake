# Tuning outlives the process: the second one compiles, lowers and measures nothing, and opens no compiler.
include(${CMAKE_CURRENT_LIST_DIR}/harness.cmake)
fresh_folder()
set(program ${SOURCE}/tests/cli/programs/two_configurations.tile --device cpu --threads 2 --scalar a=0.5)
set(launch ${program} --bind N=5000 --json --stats)

kachel(tune ${launch} --budget 5)
judge(0 "" "" "from_store=OFF|false;stats tunings=^1$;stats measurements=^[1-9];stats compiles=^[1-9];winner=^[0-9]")
string(JSON winner GET "${out}" winner)
string(JSON configuration GET "${out}" candidates ${winner} configuration)
foreach(candidate 0 1)  # pruned: measured until it was plainly slower
  string(JSON state GET "${out}" candidates ${candidate} state)
  if(NOT state MATCHES "^(measured|pruned)$")
    message(SEND_ERROR "candidate ${candidate} is ${state}")
  endif()
endforeach()

set(idle "stats compiles=^0$;stats measurements=^0$;stats lowerings=^0$;stats llvm_opened=OFF|false")
kachel(run ${launch} --policy cached_only --repeat 2 --check)
judge(0 "" "" "${idle};configuration=^${configuration}$;stats store_hits=^[1-9];check mismatches=^0$")
kachel(tune ${launch})
judge(0 "" "" "${idle};from_store=ON|true;winner=^${winner}$")

# Another size has a key of its own: it is not in the store, and its tuning finds every binary compiled.
kachel(run ${program} --bind N=777 --policy cached_only)
judge(5 "" "kachel: " "")
kachel(tune ${program} --bind N=777 --json --stats --budget 5)
judge(0 "" "" "stats compiles=^0$;stats measurements=^[1-9];from_store=OFF|false")

# The table for people names the winner and where it came from.
kachel(tune ${program} --bind N=5000)
judge(0 "configuration +state +time;\\* +BN=[0-9]+ +measured;winner  ${configuration};the store: nothing was measured"
      "" "")
