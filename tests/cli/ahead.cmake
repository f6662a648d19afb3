# A store that was filled by `compile` serves a process as a system store: nothing is compiled there.
include(${CMAKE_CURRENT_LIST_DIR}/harness.cmake)
fresh_folder()
set(program ${SOURCE}/tests/cli/programs/two_configurations.tile --bind N=5000 --scalar a=0.5)

kachel(compile ${program} --device cpu --threads 2 --most 1 --store ${FOLDER}/shipped)
judge(0 "1 compiled, 0 there before, 0 cannot be built" "" "")
kachel(compile ${program} --device cpu --threads 2 --store ${FOLDER}/shipped --json)
judge(0 "" "" "0 compiled=^1$;0 present=^1$;0 refused=^0$")

set(ENV{KACHEL_SYSTEM_CACHE} ${FOLDER}/shipped)
kachel(run ${program} --device cpu --threads 2 --policy off --repeat 2 --check --json --stats)
judge(0 "" "" "stats compiles=^0$;stats llvm_opened=OFF|false;stats store_hits=^[1-9];check mismatches=^0$")

# For GPUs that are not there: what would run is shown without any compiler, and each architecture has its own binaries.
kachel(explain ${SOURCE}/examples/matmul_relu.tile --bind M=512,N=512,K=512 --target sm_90a)
judge(0 "device         sm_90a, not there;wgmma" "" "")
kachel(explain ${SOURCE}/examples/matmul_relu.tile --bind M=512,N=512,K=512 --target sm_80)
judge(0 "mma.m16n8k16;asynchronous copies into" "" "")
kachel(compile ${SOURCE}/examples/matmul_relu.tile --bind M=512,N=512,K=512 --target sm_80,sm_90a --most 2 --store
       ${FOLDER}/gpus --json)
if(exit EQUAL 3)
  message("no NVRTC here: ${err}")
else()
  judge(0 "" "" "0 architecture=^sm_80$;0 compiled=^2$;1 architecture=^sm_90a$;1 compiled=^2$")
  kachel(cache ls --store ${FOLDER}/gpus)
  judge(0 "for sm_80;for sm_90a" "" "")
endif()

# Decisions travel as text.
kachel(tune ${program} --device cpu --threads 2 --store ${FOLDER}/tuned --budget 1)
judge(0 "" "" "")
kachel(cache tunings --store ${FOLDER}/tuned)
judge(0 "\"kachel_tunings\": 1;\"kernel\": \"axpy\"" "" "")
file(WRITE ${FOLDER}/tunings.json "${out}")
kachel(cache tunings --take ${FOLDER}/tunings.json --store ${FOLDER}/told)
judge(0 "imported [2-9] entries" "" "")
kachel(tune ${program} --device cpu --threads 2 --store ${FOLDER}/told --json --stats)
judge(0 "" "" "from_store=ON|true;stats measurements=^0$")
kachel(cache tunings --take ${SOURCE}/README.md --store ${FOLDER}/told)
judge(2 "" "not an export of tunings" "")
