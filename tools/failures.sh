#!/usr/bin/env bash
# Prints what the tests that failed have printed, without that of all the others: failures.sh <output of go test, with or without -v>
set -euo pipefail
awk '
    /^=== (RUN|NAME|CONT|PAUSE) / { test = $3; failed = 0; next }
    /^ok / || /^PASS$/ { test = ""; delete lines; next }
    /^ *--- FAIL: / { print lines[$3] $0; delete lines[$3]; test = $3; failed = 1; next }
    /^ *--- / { delete lines[$3]; test = ""; failed = 0; next }
    /^FAIL/ || /^panic: / || /^make.*Error/ { print; next }
    failed && /^ +[a-z_]+\.go:[0-9]+: / { print; next }
    { lines[test] = lines[test] $0 "\n" }
' "$1"
