#!/bin/sh
# Runs a command once in each attempt at a plan:
#   idempotent.sh KEY HASH_OF_VALUE HASH_OF_COMMAND COMMAND FOLDER [ARGUMENT...]
# An attempt is kept in FOLDER/idempotence only when the command has succeeded: one that was cut off in its middle runs again.
set -eu

key=$1 value=$2 hash=$3 command=$4 folder=$5
shift 5
state=$folder/idempotence/$key/$hash/$value
attempt=${CATTLE_AGENT_ATTEMPT_NUMBER:-}

if [ -n "$attempt" ] && [ "$(cat "$state/last-attempt" 2>/dev/null || true)" = "$attempt" ]; then
    echo "$key was done in attempt $attempt already"
    exit 0
fi
"$command" "$@"
mkdir -p "$state"
printf '%s\n' "$attempt" >"$state/last-attempt.new"
mv -f "$state/last-attempt.new" "$state/last-attempt"
