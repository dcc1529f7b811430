#!/usr/bin/env bash
# Builds hub, agents, installer and chart of an earlier commit into bin/previous, for the scenario that upgrades from them and goes back:
# previous.sh COMMIT VERSION. They say that they are VERSION. What is there of that commit already is not built again.
set -euo pipefail
base=$1 version=$2
cd "$(dirname "${BASH_SOURCE[0]}")/.."

commit=$(git rev-parse --verify --quiet "$base^{commit}") || {
    echo "PREVIOUS=$base: there is no such commit; give a tag or a hash, and fetch all commits of a shallow clone" >&2
    exit 2
}
folder=$PWD/bin/previous
[ "$(cat "$folder/built" 2>/dev/null)" != "$commit $version" ] || exit 0

rm -rf "$folder"
mkdir -p "$folder"
tree=$folder/tree
finish() {
    git worktree remove --force "$tree" 2>/dev/null || true
}
trap finish EXIT
git worktree prune
git worktree add --quiet --detach "$tree" "$commit"
make --no-print-directory -C "$tree" hub agent installer chart VERSION="$version"
mv "$tree"/bin/* "$folder"
echo "$commit $version" >"$folder/built"
