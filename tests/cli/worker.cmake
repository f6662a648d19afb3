# Tunings in the real worker, on the CPU: found by its name, told by the environment, on a kernel whose integers say what
# is read. The store is the command's; what the worker made is found in it.
include(${CMAKE_CURRENT_LIST_DIR}/harness.cmake)
fresh_folder()
set(name kachel-tune-worker)
set(program ${SOURCE}/tests/cli/programs/two_configurations.tile --device cpu --threads 2 --scalar a=0.5)
set(launch ${program} --bind N=200 --json --stats)

set(ENV{KACHEL_WORKER} ${name})
kachel(tune ${launch} --budget 10)
judge(0 "" "" "stats tunings=^1$;stats workers=^1$;stats workers_lost=^0$;stats measurements=^[1-9];stats compiles=^2$;stats llvm_opened=OFF|false")
unset(ENV{KACHEL_WORKER})
kachel(run ${launch} --policy cached_only --repeat 2 --check)
judge(0 "" "" "stats workers=^0$;stats compiles=^0$;stats measurements=^0$;check mismatches=^0$")

# Indices are copied: others would reach beyond their tensor.
set(ENV{KACHEL_WORKER} ${BUILD}/bin/${name})
kachel(tune ${EXAMPLES}/moe_gather.tile --device cpu --threads 2 --bind tokens=40,slots=70,N=64,K=64,E=3
       --range index=0:39 --range used=0:70 --json --stats --budget 2)
judge(0 "" "" "stats tunings=^1$;stats workers=^1$;stats workers_lost=^0$")

# One that is not there is said once, and this process does it.
set(ENV{KACHEL_WORKER} /nonexistent/worker)
kachel(tune ${program} --bind N=100 --json --stats --budget 2)
judge(0 "" "warning: configurations are tried in this process: /nonexistent/worker cannot be run"
      "stats workers=^0$;stats measurements=^[1-9]")

# Started by hand it says what it is for.
foreach(arguments "" "nonsense" "3;4")
  execute_process(COMMAND ${BUILD}/bin/${name} ${arguments} RESULT_VARIABLE exit OUTPUT_VARIABLE out ERROR_VARIABLE err)
  judge(2 "" "is started by Kachel itself" "")
endforeach()
execute_process(COMMAND ${BUILD}/bin/${name} 0 INPUT_FILE ${CMAKE_CURRENT_LIST_FILE} RESULT_VARIABLE exit OUTPUT_VARIABLE out
                ERROR_VARIABLE err)
judge(1 "" "is no engine" "")
