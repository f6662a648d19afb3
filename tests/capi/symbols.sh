#!/bin/sh
# symbols.sh NM LIBRARY HEADER ABI.md: the library exports what the header declares, under one version, and nothing else;
# ABI.md lists every one of them.
set -eu
nm=$1 library=$2 header=$3 abi=$4
exported=$("$nm" -D --defined-only "$library" | awk '$2 != "A" { print $3 }' | sort)
declared=$(grep -o 'kachel_[a-z0-9_]*(' "$header" | tr -d '(' | sort -u)
expected=$(printf '%s\n' "$declared" | sed 's/$/@@KACHEL_0/' | sort)
status=0
if [ "$exported" != "$expected" ]; then
  echo "exported and declared symbols differ:"
  printf '%s\n' "$exported" > /tmp/kachel-exported.$$
  printf '%s\n' "$expected" | diff - /tmp/kachel-exported.$$ || true
  rm -f /tmp/kachel-exported.$$
  status=1
fi
for name in $declared; do
  grep -q "\`$name\`" "$abi" || { echo "ABI.md does not list $name"; status=1; }
done
# The check itself can fail: a name that is not there must be noticed.
if printf '%s\n' "$exported" | grep -q '^kachel_no_such_function'; then status=1; fi
exit $status
