#!/usr/bin/env bash
# Fuzzes every target below some folders, one after the other, and prints a line for each: fuzz.sh <time> <folder>...
set -euo pipefail
time=$1
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0 count=0

# When the time is over in the middle of an input, go test may call that a failure (golang.org/issue/75804). A real one leaves its input.
only_late() {
    grep -q '^ *context deadline exceeded$' "$log" && ! grep -qE 'Failing input|panic:|_test\.go:' "$log"
}

while IFS=: read -r file target; do
    package=./$(dirname "$file")
    count=$((count + 1))
    if go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1x "$package" >"$log" 2>&1 || only_late; then
        echo "ok    $package $target: $(grep -oE 'execs: [0-9]+' "$log" | tail -n 1)"
    else
        echo "FAIL  $package $target"
        cat "$log"
        failed=$((failed + 1))
    fi
done < <(grep -rhoHE --include='*_test.go' '^func Fuzz[A-Za-z0-9]+' "$@" | sed -E 's|^\./||; s/func //' | sort)
echo "fuzzed $count targets for $time each, $failed failed"
[ "$count" -gt 0 ] && [ "$failed" -eq 0 ]
