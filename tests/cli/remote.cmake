# Stores that share a Redis server, which tests/redis/with_server.sh runs beside this: what one has made the others find,
# and when the server hangs or dies nobody is the worse for it.
include(${CMAKE_CURRENT_LIST_DIR}/harness.cmake)
fresh_folder()
set(program ${SOURCE}/tests/cli/programs/two_configurations.tile --device cpu --threads 2 --scalar a=0.5)
set(launch ${program} --bind N=5000 --json --stats)
set(patient "?connect_ms=2000&command_ms=2000")  # on a machine that has much else to do
set(remote unix://$ENV{REDIS_SOCKET}${patient})
set(idle "stats compiles=^0$;stats measurements=^0$;stats lowerings=^0$;stats llvm_opened=OFF|false")

kachel(tune ${launch} --budget 3 --store ${FOLDER}/first --remote ${remote})
judge(0 "" "" "stats tunings=^1$;stats compiles=^[1-9];stats remote_puts=^[1-9];stats remote_hits=^0$;stats remote_errors=^0$")
must(redis-cli -s $ENV{REDIS_SOCKET} --no-raw keys kachel:1:*)
judge_text("the server's keys" "${out}" "kachel:1:[0-9a-f]+\"")

# Another machine, by another way: it compiles and measures nothing, keeps what it has found, and needs the server no more.
set(ENV{KACHEL_REMOTE} redis://127.0.0.1:$ENV{REDIS_PORT}/0${patient})
kachel(run ${launch} --policy cached_only --repeat 2 --check --store ${FOLDER}/second)
judge(0 "" "" "${idle};stats remote_hits=^2$;stats remote_puts=^0$;check mismatches=^0$")
kachel(run ${program} --bind N=5000 --policy cached_only --repeat 0 --no-store --stats)
judge(0 "remote: 2 hits, 0 misses, 0 given, 0 errors" "" "")
unset(ENV{KACHEL_REMOTE})
kachel(run ${launch} --policy cached_only --repeat 0 --store ${FOLDER}/second)
judge(0 "" "" "${idle};stats remote_hits=^0$")

# With a key, what has no MAC is made anew, and replaced.
file(WRITE ${FOLDER}/key "the key of our machines\n")
file(CHMOD ${FOLDER}/key PERMISSIONS OWNER_READ OWNER_WRITE)
set(ENV{KACHEL_STORE_KEY_FILE} ${FOLDER}/key)
kachel(run ${launch} --policy off --repeat 0 --no-store --remote ${remote})
judge(0 "" "without a MAC are refused" "stats compiles=^1$;stats remote_hits=^0$;stats store_refused_macs=^[1-9]")
kachel(run ${launch} --policy off --repeat 0 --no-store --remote ${remote})
judge(0 "" "without a MAC are refused" "${idle};stats remote_hits=^1$;stats store_refused_macs=^[1-9]")  # the tuning's are left
unset(ENV{KACHEL_STORE_KEY_FILE})

# Entries that are damaged there.
must(redis-cli -s $ENV{REDIS_SOCKET} --raw keys kachel:1:*)
string(REGEX MATCHALL "kachel:1:[0-9a-f]+" names "${out}")
foreach(name IN LISTS names)
  must(redis-cli -s $ENV{REDIS_SOCKET} setrange ${name} 50 "!!!!")
endforeach()
kachel(run ${launch} --policy cached_only --no-store --remote ${remote})
judge(5 "" "is damaged" "")
kachel(run ${launch} --policy off --repeat 0 --check --no-store --remote ${remote})
judge(0 "" "is damaged" "stats compiles=^1$;stats store_damaged=^[1-9];stats remote_puts=^1$;check mismatches=^0$")

# It hangs, and goes on.
must(kill -STOP $ENV{REDIS_PID})
kachel(run ${launch} --policy off --repeat 0 --check --no-store --remote unix://$ENV{REDIS_SOCKET})
judge(0 "" "remote store: a get failed: .*no answer within 200 ms" "stats compiles=^1$;stats remote_errors=^[1-9];check mismatches=^0$")
must(kill -CONT $ENV{REDIS_PID})
kachel(run ${launch} --policy off --repeat 0 --no-store --remote ${remote})
judge(0 "" "!remote store" "stats compiles=^0$;stats remote_hits=^1$")

# It dies while a tuning uses it, and is gone after that.
must(sh -c "(sleep 0.2 && kill -KILL $ENV{REDIS_PID}) & exec \"$@\"" sh
     ${KACHEL} tune ${program} --bind N=777 --json --stats --budget 3 --store ${FOLDER}/third --remote ${remote})
judge(0 "" "" "stats tunings=^1$")
kachel(run ${launch} --policy off --repeat 0 --check --store ${FOLDER}/third --remote ${remote})
judge(0 "" "remote store: a get failed: unix://.*the next one is tried in 1 s" "check mismatches=^0$;stats remote_errors=^[1-9]")
