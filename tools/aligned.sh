#!/usr/bin/env bash
# Fails if a module of this repository wants another version of a module than the product does: everything above that one would be compiled
# twice, and that is Kubernetes. aligned.sh <go.mod>...
set -euo pipefail

# required prints "module version" for each line of a go.mod that requires one. What has the version v0.0.0 is replaced.
required() {
    awk '$1 == "require" && NF > 2 { print $2, $3 } /^\t/ && $2 ~ /^v/ && $2 != "v0.0.0" { print $1, $2 }' "$1" | LC_ALL=C sort
}

failed=0
for file; do
    while read -r module ours theirs; do
        [ "$ours" != "$theirs" ] || continue
        echo "$file requires $module $theirs, go.mod $ours: raise the lower one with go get"
        failed=1
    done < <(LC_ALL=C join <(required go.mod) <(required "$file"))
done
exit "$failed"
