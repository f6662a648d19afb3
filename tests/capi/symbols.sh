#!/bin/sh
# symbols.sh NM LIBRARY HEADER ABI.md: the library exports what the header declares, under the one version that it has, and
# nothing else; ABI.md lists every one of them.
set -eu
nm=$1 library=$2 header=$3 abi=$4

# compare HEADER: silent if it declares just what the library exports.
compare() {
  exported=$("$nm" -D --defined-only "$library" | awk '$2 != "A" { print $3 }' | sort)
  expected=$(grep -o 'kachel_[a-z0-9_]*(' "$1" | tr -d '(' | sort -u | sed "s/\$/@@$version/" | sort)
  [ "$exported" = "$expected" ] && return 0
  for name in $exported; do printf '%s\n' "$expected" | grep -qx "$name" || echo "exported, not declared: $name"; done
  for name in $expected; do printf '%s\n' "$exported" | grep -qx "$name" || echo "declared, not exported: $name"; done
  return 1
}

version=$("$nm" -D --defined-only "$library" | awk '$2 == "A" { print $3 }')
status=0
compare "$header" || status=1
for name in $(grep -o 'kachel_[a-z0-9_]*(' "$header" | tr -d '(' | sort -u); do
  grep -q "^| \`$name\` " "$abi" || { echo "ABI.md does not list $name"; status=1; }
done

# That a difference would be seen, on either side.
other=$(mktemp)
trap 'rm -f "$other"' EXIT
{ cat "$header"; echo 'KACHEL_API void kachel_no_such_function(void);'; } > "$other"
if compare "$other" > /dev/null; then echo "a missing function goes unnoticed"; status=1; fi
first=$(grep -o 'kachel_[a-z0-9_]*(' "$header" | head -n 1)
grep -vF "$first" "$header" > "$other"
if compare "$other" > /dev/null; then echo "a stray symbol goes unnoticed"; status=1; fi
exit $status
