#!/usr/bin/env bash
# Compares the benchmarks of this tree with those of another commit, in one run: compare.sh <commit> <runs> [package...]
# Without packages, all packages that have benchmarks in both. The runs of both alternate, so that a machine that is slower for a while
# is slower for both. Prints benchstat's table; results and the output of failed runs stay in bin/compare.
set -euo pipefail
base=$1 runs=$2
shift 2
go=${GO:-go}
benchstat=golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da

commit=$(git rev-parse --verify --quiet "$base^{commit}") || {
    echo "BASE=$base: there is no such commit; give a branch, a tag or a hash" >&2
    exit 2
}
case $runs in
'' | *[!0-9]* | 0)
    echo "RUNS=$runs: must be a number from 1 on; 6 or more let benchstat say whether a difference is chance" >&2
    exit 2
    ;;
esac

folder=$PWD/bin/compare
rm -rf "$folder"
mkdir -p "$folder"
finish() {
    git worktree remove --force "$folder/tree" 2>/dev/null || true
}
trap finish EXIT
git worktree prune
git worktree add --quiet --detach "$folder/tree" "$commit"

if [ $# -eq 0 ]; then
    mapfile -t packages < <(git grep -l 'func Benchmark' -- '*_test.go' ':!e2e/distro' ':!e2e/conformance' | xargs -n 1 dirname | sort -u)
else
    packages=("$@")
fi

failed=0
for package in "${packages[@]}"; do
    package=${package#./}
    if ! git -C "$folder/tree" grep -q 'func Benchmark' -- "$package/*_test.go"; then
        echo "$package: no benchmarks at $base, left out"
        continue
    fi
    name=${package//\//-}
    # Built once: what alternates is only the running.
    if ! "$go" test -c -o "$folder/$name.new" "./$package" || ! "$go" -C "$folder/tree" test -c -o "$folder/$name.old" "./$package"; then
        echo "$package: the tests do not build, left out" >&2
        failed=1
        continue
    fi
    for run in $(seq "$runs"); do
        printf '%s: run %s of %s\n' "$package" "$run" "$runs"
        for side in old new; do
            tree=$PWD
            [ "$side" = new ] || tree=$folder/tree
            if ! (cd "$tree/$package" && "$folder/$name.$side" -test.run '^$' -test.bench . -test.benchmem -test.timeout 30m) \
                >"$folder/last" 2>&1; then
                mv "$folder/last" "$folder/$name-$side.failed"
                echo "$package: the benchmarks of $side fail: see $folder/$name-$side.failed" >&2
                failed=1
                break 2
            fi
            cat "$folder/last" >>"$folder/$side.txt"
        done
    done
    rm -f "$folder/$name.old" "$folder/$name.new" "$folder/last"
done

[ -s "$folder/new.txt" ] || {
    echo "there is nothing to compare" >&2
    exit 1
}
"$go" run "$benchstat" "$base=$folder/old.txt" "this tree=$folder/new.txt"
[ "$failed" -eq 0 ]
