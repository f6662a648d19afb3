# What the command does when it is called rightly, on the CPU and in small shapes.
file(GLOB all_examples ${examples}/*.tile)
cli_case(NAME version ARGS --version EXIT 0 STDOUT "^${PROJECT_VERSION}\n$")
cli_case(NAME help ARGS --help EXIT 0 STDOUT "tune" "explain" "--store")
cli_case(NAME help_of_command ARGS run --help EXIT 0 STDOUT "--bind" "--check")
cli_case(NAME check_examples ARGS check ${all_examples} EXIT 0 STDOUT "attention.tile: ok: attention" STDERR "!error")
cli_case(NAME check_json ARGS check --json ${relu} ${programs}/missing_transpose.tile EXIT 1
         FIELDS "0 ok=ON|true" "0 kernels 0=matmul_relu" "1 ok=OFF|false" "1 message=Bs\\^T")
cli_case(NAME check_stdin ARGS check - INPUT ${relu} EXIT 0 STDOUT "-: ok: matmul_relu")
cli_case(NAME devices ARGS devices EXIT 0 STDOUT "device +name" "cpu ")
cli_case(NAME devices_json ARGS devices --json EXIT 0 FIELDS "0 device=^(cpu|cuda:0)$" "0 name=.")
foreach(what summary source tile loop)
  cli_case(NAME explain_${what} ARGS explain ${relu} ${shape} --device cpu --what ${what} EXIT 0 STDOUT "...")
endforeach()

# Which operands and tensors of odd rows a GPU would have made ahead, and that aligned ones stay.
foreach(case "normed;M=300,N=500,K=201;other forms    `w` made ahead, `x` made ahead. `a` made ahead, `w` made ahead, `x` made"
             "normed;M=300,N=500,K=256;other forms    `a` made ahead: "
             "triangle;L=301,D=501;other forms    `A` with its rows filled up, `X` with its rows filled up: "
             "triangle;L=304,D=504;!other forms")
  list(GET case 0 kernel)
  list(GET case 1 bound)
  list(GET case 2 wanted)
  string(MAKE_C_IDENTIFIER "${kernel}_${bound}" name)
  cli_case(NAME explain_forms_${name} ARGS explain --no-store ${programs}/odd_rows.tile --kernel ${kernel} --target sm_90a
           --bind ${bound} EXIT 0 STDOUT "${wanted}")
endforeach()

set(quick --device cpu --threads 2 --policy off --repeat 2 --check --json)
set(passed "check mismatches=^0$" "check elements=^[1-9]")
cli_case(NAME run_relu ARGS run ${relu} --bind M=100,N=72,K=80 ${quick} --stats EXIT 0
         FIELDS ${passed} "device=^cpu$" "launches=^2$" "stats measurements=^0$" "stats compiles=^[1-9]")
cli_case(NAME run_relu_bf16 ARGS run ${relu} --bind M=33,N=65,K=17 --type T=bf16 ${quick} EXIT 0
         FIELDS ${passed} "tensors 0 type=^bf16$")
# Said before anything is tuned.
cli_case(NAME check_program ARGS run ${examples}/decode.tile --kernel decode --bind B=1,H=4,G=2,S=64,D=64
         --device cpu --check --scalar scale=0.1 --json --stats EXIT 3 STDERR "`decode` is a program. check the kernels"
         "!compiling")
cli_case(NAME run_empty ARGS run ${relu} --bind M=0,N=64,K=64 ${quick} EXIT 0 FIELDS "check mismatches=^0$")
cli_case(NAME run_config ARGS run ${relu} --bind M=64,N=64,K=64 ${quick} --config BM=128,BN=64,BK=64,stages=4 EXIT 0
         FIELDS ${passed} "configuration=BM=128")
cli_case(NAME run_attention ARGS run ${attention} --bind B=1,Sq=40,Sk=56,H=2,G=1,D=64,E=48 --const causal=true
         --scalar scale=0.125 ${quick} EXIT 0 FIELDS ${passed})
cli_case(NAME run_text ARGS run ${relu} --bind M=64,N=64,K=64 --device cpu --policy off --repeat 3 --check --stats EXIT 0
         STDOUT "kernel  matmul_relu  M=64 K=64 N=64" "check   passed" "engine: " "store: " "opened: ")
cli_case(NAME run_stdin ARGS run - --bind M=16,N=16,K=16 ${quick} INPUT ${relu} EXIT 0 FIELDS ${passed})

# A difference ends the command with status 1 and is named, whichever way results are printed.
set(wrong "kachel: the result differs from the reference interpreter's: `C`: .3, 5. is [^ ]+, expected ")
set(shape_of_wrong --bind M=40,N=24,K=16 --device cpu --policy off --repeat 1)
cli_case(NAME run_wrong COMMAND kachel_cli_wrong ARGS run ${relu} ${shape_of_wrong} --check EXIT 1
         STDOUT "check   FAILED: 960 elements, 1 wrong" STDERR "${wrong}")
cli_case(NAME run_wrong_json COMMAND kachel_cli_wrong ARGS run ${relu} ${shape_of_wrong} --check --json EXIT 1
         STDERR "${wrong}" FIELDS "check mismatches=^1$" "check elements=^960$" "check first=^`C`: .3, 5. is ")
cli_case(NAME run_wrong_unchecked COMMAND kachel_cli_wrong ARGS run ${relu} ${shape_of_wrong} EXIT 0
         STDOUT "!FAILED" STDERR "!differs")
cli_case(NAME tune_sole ARGS tune ${CMAKE_CURRENT_SOURCE_DIR}/programs/four_times.tile --kernel once --bind N=1000
         --device cpu EXIT 0 STDOUT "the only configuration: there is nothing to measure")

cli_case(NAME tune_nothing ARGS tune ${CMAKE_CURRENT_SOURCE_DIR}/programs/four_times.tile --kernel four_times --bind N=1000
         --device cpu EXIT 0 STDOUT "nothing to choose: there are no tunables")

# A derived space of three to sixteen on the CPU, and a limit on what is measured.
set(derived ${PROJECT_SOURCE_DIR}/tests/programs)
set(tuning --device cpu --threads 2 --json --stats --budget 2)
cli_case(NAME tune_derived ARGS tune ${derived}/auto_softmax.tile --bind N=64,D=96 ${tuning} --trials 3 EXIT 0
         FIELDS "winner=^[0-2]" "candidates 3 state=^untried$" "candidates 3 configuration=^rows=" "stats tunings=^1$")
cli_case(NAME tune_derived_program ARGS tune ${derived}/auto_sum.tile --kernel sum_of --bind N=3000 ${tuning} --trials 2 EXIT 0
         FIELDS "winner=^[0-9]" "candidates 0 configuration=^parts=8$")
cli_case(NAME run_derived ARGS run ${derived}/auto_matmul.tile --bind M=40,N=72,K=50 --const tf32=false,fast=false ${quick}
         EXIT 0 FIELDS ${passed})
cli_case(NAME tune_trials ARGS tune ${relu} --bind M=32,N=32,K=32 --trials 1 ${tuning} EXIT 0
         FIELDS "candidates 0 state=^measured$" "candidates 1 state=^untried$" "candidates 11 state=^untried$")
