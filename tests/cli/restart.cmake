# Tuning outlives the process: the second one compiles, lowers and measures nothing, and opens no compiler.
include(${CMAKE_CURRENT_LIST_DIR}/harness.cmake)
fresh_folder()
set(launch ${EXAMPLES}/matmul_relu.tile --device cpu --threads 2 --bind M=96,N=64,K=64 --json --stats)

kachel(tune ${launch} --budget 20)
judge(0 "" "" "from_store=OFF|false;stats tunings=^1$;stats measurements=^[1-9];stats compiles=^[1-9];winner=^[0-9]")
string(JSON winner GET "${out}" winner)
string(JSON configuration GET "${out}" candidates ${winner} configuration)
string(JSON state GET "${out}" candidates ${winner} state)
if(NOT state STREQUAL "measured")
  message(SEND_ERROR "the winner is ${state}")
endif()

set(idle "stats compiles=^0$;stats measurements=^0$;stats lowerings=^0$;stats llvm_opened=OFF|false")
kachel(run ${launch} --policy cached_only --repeat 2)
judge(0 "" "" "${idle};configuration=^${configuration}$;stats store_hits=^[1-9]")
kachel(tune ${launch})
judge(0 "" "" "${idle};from_store=ON|true;winner=^${winner}$")

# Another shape with the same facts finds its binaries compiled and only measures.
kachel(tune ${EXAMPLES}/matmul_relu.tile --device cpu --threads 2 --bind M=70,N=50,K=64 --json --stats)
judge(0 "" "" "stats compiles=^0$;stats measurements=^[1-9];from_store=OFF|false")

# The table for people names the winner and where it came from.
kachel(tune ${EXAMPLES}/matmul_relu.tile --device cpu --threads 2 --bind M=96,N=64,K=64)
judge(0 "configuration +state +time;\\* +BM=[0-9]+.* measured;winner  ${configuration};the store: nothing was measured"
      "" "")
