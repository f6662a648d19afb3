# What the command says to those who call it wrongly, and that it says so with status 2, or 1 for a wrong program.
set(relu ${examples}/matmul_relu.tile)
set(shape --bind M=64,N=64,K=64)
set(attention ${examples}/attention.tile)
set(heads --bind B=1,Sq=16,Sk=16,H=4,G=2,D=64,E=64)

cli_case(NAME no_command ARGS --json EXIT 2 STDERR "subcommand is required" "kachel --help")
cli_case(NAME unknown_command ARGS paint EXIT 2 STDERR "no command `paint`. there is: run, tune")
cli_case(NAME help_on ARGS help tune EXIT 0 STDOUT "Usage: .*tune .OPTIONS. FILE")
cli_case(NAME unknown_option ARGS run ${relu} ${shape} --fast EXIT 2 STDERR "no option `--fast` here")
cli_case(NAME unknown_option_value ARGS explain ${relu} ${shape} --bogus x EXIT 2 STDERR "no option `--bogus` here")
cli_case(NAME unknown_letter ARGS explain ${relu} ${shape} -x EXIT 2 STDERR "no option `-x` here")
cli_case(NAME value_like_an_option ARGS run ${relu} ${shape} --store -foo --repeat x EXIT 2 STDERR "--repeat" "!no option")
cli_case(NAME option_of_another ARGS explain ${relu} ${shape} --repeat 3 EXIT 2 STDERR "no option `--repeat` here")
cli_case(NAME no_file ARGS run EXIT 2 STDERR "FILE is required")
cli_case(NAME file_absent ARGS run ${programs}/absent.tile ${shape} EXIT 2
         STDERR "cannot read .*absent.tile: No such file")
cli_case(NAME file_is_folder ARGS check ${programs} EXIT 2 STDERR "cannot read .*Is a directory")
cli_case(NAME list_takes_one_word ARGS run --bind M=64 ${relu} EXIT 2 STDERR "add for example --bind K=512,N=512")
cli_case(NAME list_repeated ARGS run ${relu} -b M=64 -b N=64 --policy cached_only -b K=64 --device cpu EXIT 5
         STDERR "kachel: ")
cli_case(NAME kernel_unknown ARGS run ${relu} ${shape} --kernel matmul EXIT 2
         STDERR "no kernel `matmul` in the file. there is: matmul_relu")
cli_case(NAME kernel_ambiguous ARGS run ${programs}/two_kernels.tile --bind N=8 EXIT 2
         STDERR "holds 2 kernels. choose one with --kernel: twice, halve")
cli_case(NAME dim_missing ARGS run ${relu} --bind M=64 EXIT 2
         STDERR "not every dimension is bound. add for example --bind K=512,N=512")
cli_case(NAME dim_unknown ARGS run ${relu} ${shape},Q=1 EXIT 2 STDERR "no dimension `Q`. it has: M, K, N")
cli_case(NAME dim_not_a_number ARGS run ${relu} --bind M=64,N=many,K=64 EXIT 2 STDERR "`N=many`.*wants an integer")
cli_case(NAME dim_negative ARGS run ${relu} --bind M=-1,N=64,K=64 EXIT 2 STDERR "dimension `M` cannot be -1")
cli_case(NAME dim_twice ARGS run ${relu} ${shape},M=65 EXIT 2 STDERR "`M` is given twice")
cli_case(NAME dim_alone ARGS run ${relu} --bind M=64 N=64 EXIT 2 STDERR "`N=64` stands alone")
cli_case(NAME dim_no_value ARGS run ${relu} --bind M= EXIT 2 STDERR "`M=` is not NAME=VALUE")
cli_case(NAME dim_huge ARGS run ${relu} --bind M=4000000000,N=4000000000,K=4000000000 EXIT 2
         STDERR "tensor `A` of shape .4000000000, 4000000000. is too large")
cli_case(NAME trials_none ARGS tune ${relu} ${shape} --trials 0 EXIT 2 STDERR "--trials: Value 0 not in range")
cli_case(NAME type_refused ARGS run ${relu} ${shape} --type T=i8 EXIT 2
         STDERR "`T` cannot be `i8`. it is one of: f16, bf16")
cli_case(NAME type_unknown ARGS run ${relu} ${shape} --type U=f16 EXIT 2 STDERR "no type symbol `U`. it has: T")
cli_case(NAME const_missing ARGS run ${attention} ${heads} --scalar scale=0.1 EXIT 2
         STDERR "needs `const causal: bool`. give --const causal=VALUE")
cli_case(NAME const_wrong ARGS run ${attention} ${heads} --const causal=maybe EXIT 2 STDERR "wants true or false")
cli_case(NAME const_unknown ARGS run ${relu} ${shape} --const causal=true EXIT 2
         STDERR "no compile-time parameter, so `causal` means nothing")
cli_case(NAME scalar_missing ARGS run ${attention} ${heads} --const causal=true EXIT 2
         STDERR "needs the scalar `scale: f32`. give --scalar scale=VALUE")
cli_case(NAME scalar_wrong ARGS run ${attention} ${heads} --const causal=true --scalar scale=big EXIT 2
         STDERR "`scale=big`.*wants a number")
cli_case(NAME scalar_unknown ARGS run ${relu} ${shape} --scalar scale=1 EXIT 2 STDERR "no scalar parameter `scale`")
cli_case(NAME range_unknown ARGS run ${relu} ${shape} --range Z=0:1 EXIT 2 STDERR "no tensor `Z`. it has: A, B, C")
cli_case(NAME range_malformed ARGS run ${relu} ${shape} --range A=1 EXIT 2 STDERR "not NAME=LOW:HIGH")
cli_case(NAME range_reversed ARGS run ${relu} ${shape} --range A=2:1 EXIT 2 STDERR "starts at 2, above its end 1")
cli_case(NAME device_malformed ARGS run ${relu} ${shape} --device gpu EXIT 2 STDERR "write cpu, cuda or cuda:0")
cli_case(NAME device_absent ARGS run ${relu} ${shape} --device cuda:4000 EXIT 3
         STDERR "no device `cuda:4000` here. there is: .*cpu")
cli_case(NAME policy_unknown ARGS run ${relu} ${shape} --policy sometimes EXIT 2 STDERR "sometimes not in")
cli_case(NAME repeat_negative ARGS run ${relu} ${shape} --repeat -3 EXIT 2 STDERR "--repeat")
cli_case(NAME what_unknown ARGS explain ${relu} ${shape} --what sass EXIT 2 STDERR "sass not in")
cli_case(NAME store_both ARGS devices --store x --no-store EXIT 2 STDERR "excludes")
if(TARGET kachel_redis)
  cli_case(NAME remote_malformed ARGS devices --remote cache.example EXIT 2 STDERR "--remote.*an address is redis://")
  cli_case(NAME remote_tls ARGS devices --remote "rediss://cache.example?ca=/nowhere" EXIT 2
         STDERR "ca=/nowhere: No such file|built without OpenSSL")
else()
  cli_case(NAME remote_unbuilt ARGS devices --remote redis://h EXIT 2 STDERR "built without hiredis. install libhiredis-dev")
endif()
cli_case(NAME config_malformed ARGS run ${relu} ${shape} --device cpu --config BM EXIT 2 STDERR "kachel: .*BM")
cli_case(NAME config_unknown ARGS run ${relu} ${shape} --device cpu --config BM=7,BN=64,BK=64,stages=3 EXIT 2
         STDERR "7 is not a value of the tunable `BM`. use one of 64, 128")
cli_case(NAME where_violated ARGS run ${attention} --device cpu --bind B=1,Sq=16,Sk=16,H=3,G=2,D=64,E=64
         --const causal=true --scalar scale=0.1 EXIT 2 STDERR "H % G")
cli_case(NAME cached_only_miss ARGS run ${relu} ${shape} --device cpu --policy cached_only EXIT 5 STDERR "kachel: ")
cli_case(NAME program_wrong ARGS check ${programs}/missing_transpose.tile EXIT 1
         STDERR "missing_transpose.tile:[0-9]+:[0-9]+: error" "\\^" "Bs\\^T" STDOUT "!ok")
cli_case(NAME program_wrong_run ARGS run ${programs}/missing_transpose.tile ${shape} EXIT 1 STDERR "error")
cli_case(NAME program_wrong_among_good ARGS check ${relu} ${programs}/missing_transpose.tile ${programs}/two_kernels.tile
         EXIT 1 STDOUT "matmul_relu.tile: ok: matmul_relu" "two_kernels.tile: ok: twice halve" STDERR "error")
cli_case(NAME target_unknown ARGS explain ${relu} ${shape} --target sm_90 EXIT 2 STDERR "\"sm_90\" is no target. write sm_80")
cli_case(NAME target_takes_one_word ARGS explain --target sm_90 ${relu} ${shape} EXIT 2 STDERR "\"sm_90\" is no target. write sm_80")
cli_case(NAME target_old ARGS compile ${relu} ${shape} --target sm_75 EXIT 3 STDERR "sm_80 is the oldest target")
cli_case(NAME target_and_device ARGS compile ${relu} ${shape} --target sm_80 --device cpu EXIT 2 STDERR "leave out --device")
cli_case(NAME compile_nowhere ARGS compile ${relu} ${shape} --target sm_80 --no-store EXIT 2 STDERR "leave out --no-store")
