#!/usr/bin/env bash
# Runs every fuzz target of the repository for <time> each, one after the other, and prints a line for each: fuzz.sh <time> [folder...]
# Folders restrict it to the targets below them. Targets are found by name, in every Go module, so that no package can be forgotten.
set -euo pipefail
cd "$(dirname "$0")/.."
time=$1
shift
[ $# -gt 0 ] || set -- .
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0 count=0

# If the fuzz time ends in the middle of an input, go test may call that a failure (golang.org/issue/75804). A real one leaves its input.
only_late() {
    grep -q '^ *context deadline exceeded$' "$log" && ! grep -qE 'Failing input|panic:|_test\.go:' "$log"
}

# module_of prints the folder of the Go module that a file belongs to.
module_of() {
    local dir
    dir=$(dirname "$1")
    while [ ! -f "$dir/go.mod" ]; do dir=$(dirname "$dir"); done
    echo "$dir"
}

while IFS=: read -r file target; do
    module=$(module_of "$file")
    package=./$(realpath --relative-to="$module" "$(dirname "$file")")
    count=$((count + 1))
    if go -C "$module" test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1x "$package" >"$log" 2>&1 || only_late; then
        echo "ok    $(dirname "$file") $target: $(grep -oE 'execs: [0-9]+' "$log" | tail -n 1)"
    else
        echo "FAIL  $(dirname "$file") $target"
        cat "$log"
        failed=$((failed + 1))
    fi
done < <(git grep -hoHE --untracked '^func Fuzz[A-Za-z0-9]+' -- "${@/%//*_test.go}" | sed 's/func //' | sort)
echo "fuzzed $count targets for $time each, $failed failed"
[ "$count" -gt 0 ] && [ "$failed" -eq 0 ]
