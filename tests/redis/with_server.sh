#!/bin/sh
# with_server.sh COMMAND...: runs it beside a Redis server of its own, which lives in a folder that goes with it, and
# says in REDIS_SOCKET, REDIS_PORT and REDIS_PID where that is. 77 where no server is installed: a test that is skipped.
set -eu
server=$(command -v redis-server || command -v redis-check-rdb || true) # one binary, which goes by its name
if [ -z "$server" ] || ! command -v redis-cli > /dev/null; then
  echo "SKIPPED: no Redis server is installed (Debian: redis-tools)"
  exit 77
fi
folder=$(mktemp -d "${TMPDIR:-/tmp}/kachel-redis-XXXXXX")
REDIS_PID=
trap '[ -z "$REDIS_PID" ] || kill -KILL "$REDIS_PID" 2> /dev/null || true; rm -rf "$folder"' EXIT
trap 'exit 143' TERM INT HUP
ln -s "$server" "$folder/redis-server"
REDIS_SOCKET=$folder/socket
for attempt in 1 2 3 4 5 6 7 8; do
  REDIS_PORT=$((20000 + ($$ + attempt * 2711) % 20000))
  "$folder/redis-server" --bind 127.0.0.1 --port "$REDIS_PORT" --unixsocket "$REDIS_SOCKET" --unixsocketperm 700 \
    --dir "$folder" --save "" --appendonly no --daemonize no > "$folder/log" 2>&1 &
  REDIS_PID=$!
  tries=0
  while kill -0 "$REDIS_PID" 2> /dev/null && [ "$tries" -lt 200 ]; do
    if [ "$(redis-cli -s "$REDIS_SOCKET" ping 2> /dev/null || true)" = PONG ]; then break 2; fi
    tries=$((tries + 1))
    sleep 0.05
  done
  kill -KILL "$REDIS_PID" 2> /dev/null || true
  wait "$REDIS_PID" 2> /dev/null || true # the port was taken, perhaps
  REDIS_PID=
done
if [ -z "$REDIS_PID" ]; then
  echo "the Redis server did not come up:"
  tail -n 5 "$folder/log"
  exit 1
fi
export REDIS_SOCKET REDIS_PORT REDIS_PID
status=0
"$@" || status=$?
exit "$status"
