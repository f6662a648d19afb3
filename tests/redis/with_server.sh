#!/bin/sh
# with_server.sh [--tls] COMMAND...: runs it beside a Redis server of its own, which lives in a folder that goes with it,
# and says in REDIS_SOCKET, REDIS_PORT and REDIS_PID where that is. 77 where no server is installed: a test that is
# skipped. With --tls the server also speaks TLS at REDIS_TLS_PORT, on 127.0.0.1 and 127.0.0.2, and REDIS_FILES is a
# folder with certificates: ca.crt has signed server.crt (for localhost and 127.0.0.1) and client.crt, and has nothing
# to do with other.crt.
set -eu
tls=
if [ "$1" = --tls ]; then
  tls=yes
  shift
fi
server=$(command -v redis-server || command -v redis-check-rdb || true) # one binary, which goes by its name
if [ -z "$server" ] || ! command -v redis-cli > /dev/null; then
  echo "SKIPPED: no Redis server is installed (Debian: redis-tools)"
  exit 77
fi
if [ -n "$tls" ] && ! command -v openssl > /dev/null; then
  echo "SKIPPED: there is no openssl command to make certificates with (Debian: openssl)"
  exit 77
fi
folder=$(mktemp -d "${TMPDIR:-/tmp}/kachel-redis-XXXXXX")
REDIS_PID=
trap '[ -z "$REDIS_PID" ] || kill -KILL "$REDIS_PID" 2> /dev/null || true; rm -rf "$folder"' EXIT
trap 'exit 143' TERM INT HUP
ln -s "$server" "$folder/redis-server"
REDIS_SOCKET=$folder/socket
REDIS_FILES=$folder

authority() { # NAME
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "/CN=$1" \
    -keyout "$folder/$1.key" -out "$folder/$1.crt" 2> "$folder/openssl.log"
}
certificate() { # NAME EXTENSIONS
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$1" \
    -keyout "$folder/$1.key" -out "$folder/$1.csr" 2> "$folder/openssl.log"
  printf '%s\n' "$2" > "$folder/$1.ext"
  openssl x509 -req -in "$folder/$1.csr" -CA "$folder/ca.crt" -CAkey "$folder/ca.key" -CAcreateserial -days 2 \
    -extfile "$folder/$1.ext" -out "$folder/$1.crt" 2> "$folder/openssl.log"
}
if [ -n "$tls" ]; then
  if ! { authority ca && authority other && certificate client "extendedKeyUsage=clientAuth" &&
    certificate server "subjectAltName=DNS:localhost,IP:127.0.0.1"; }; then
    echo "openssl made no certificates:"
    cat "$folder/openssl.log"
    exit 1
  fi
fi
for attempt in 1 2 3 4 5 6 7 8; do
  REDIS_PORT=$((20000 + ($$ + attempt * 2711) % 20000))
  REDIS_TLS_PORT=$((REDIS_PORT + 20000))
  encrypted=
  [ -z "$tls" ] || encrypted="--tls-port $REDIS_TLS_PORT --tls-cert-file $folder/server.crt --tls-key-file \
    $folder/server.key --tls-ca-cert-file $folder/ca.crt --tls-auth-clients optional"
  # shellcheck disable=SC2086  # words of their own
  "$folder/redis-server" $encrypted --bind 127.0.0.1 127.0.0.2 --port "$REDIS_PORT" \
    --unixsocket "$REDIS_SOCKET" --unixsocketperm 700 --dir "$folder" --save "" --appendonly no --daemonize no > "$folder/log" 2>&1 &
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
  if grep -q "Bad directive" "$folder/log" && grep -q ">>> 'tls-" "$folder/log"; then
    echo "SKIPPED: this Redis server was built without TLS"
    exit 77
  fi
done
if [ -z "$REDIS_PID" ]; then
  echo "the Redis server did not come up:"
  tail -n 5 "$folder/log"
  exit 1
fi
export REDIS_SOCKET REDIS_PORT REDIS_PID REDIS_TLS_PORT REDIS_FILES
status=0
"$@" || status=$?
exit "$status"
