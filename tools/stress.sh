#!/usr/bin/env bash
# Runs the tests several times with two busy loops beside them, and prints a table: stress.sh <times> <folder for the logs>
set -euo pipefail
times=$1 folder=$2
mkdir -p "$folder"

hogs=()
# The loops end by their process ids, whatever happens to this script.
finish() {
    kill "${hogs[@]}" 2>/dev/null || true
}
trap finish EXIT
for _ in 1 2; do
    (while :; do :; done) &
    hogs+=($!)
done

failed=0 table=""
for run in $(seq "$times"); do
    log=$folder/$run.log begin=$SECONDS result=ok
    GOFLAGS="${GOFLAGS:-} -count=1" make --no-print-directory test >"$log" 2>&1 || { result=FAILED failed=$((failed + 1)); }
    packages=$(awk '$1 == "FAIL" && NF > 1 { printf " %s", $2 }' "$log")
    table+=$(printf '%3s  %-6s  %5s s %s' "$run" "$result" $((SECONDS - begin)) "$packages")$'\n'
    printf '%s' "$table" | tail -n 1
done
printf '\nrun  result    time  packages that failed\n%s\nThe logs are in %s\n' "$table" "$folder"
[ "$failed" -eq 0 ]
