# Needs a GPU: with fewer steps of k than stages, with none, with a single tile and with no tile at all nobody waits for ever.
# A wait of 20 s traps, since waits are bounded here, and the launch fails.
include(${CMAKE_CURRENT_LIST_DIR}/harness.cmake)
fresh_folder()
set(ENV{KACHEL_BOUNDED_WAITS} 1)
foreach(dims "M=0,N=64,K=64" "M=64,N=0,K=64" "M=100,N=60,K=0" "M=1,N=1,K=1" "M=128,N=128,K=64" "M=130,N=258,K=130" "M=600,N=4100,K=65")
  foreach(config "BM=128,BN=128,BK=64,stages=8,cluster=1,cluster_columns=1" "BM=64,BN=64,BK=32,stages=6,cluster=1,cluster_columns=1"
          "BM=128,BN=256,BK=64,stages=4,cluster=1,cluster_columns=1" "BM=128,BN=256,BK=64,stages=4,cluster=2,cluster_columns=1" "BM=128,BN=80,BK=64,stages=8,cluster=8,cluster_columns=2")
    kachel(run ${SOURCE}/examples/matmul.tile --kernel matmul --device cuda --type T=f16,O=f32 --const tf32=false,fast=false
           --bind ${dims} --config ${config} --repeat 3)
    if(err MATCHES "there is no device")
      message("SKIPPED: ${err}")
      return()
    endif()
    if(NOT exit STREQUAL "0" OR NOT out MATCHES "launch")
      message(FATAL_ERROR "${dims} ${config}: exit ${exit}\n${out}${err}")
    endif()
  endforeach()
endforeach()
