#!/usr/bin/env bash
# Makes a release: release.sh VERSION [ARCHITECTURE...] builds everything from a clean checkout with the targets of the Makefile, and
# collects it in dist/. The same commit gives the same bytes. With RELEASE_KEY, a private key as for cosign, the checksums are signed.
set -euo pipefail
export LC_ALL=C
umask 022
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# What a release consists of, in this order. Each part is a function below that runs a target and copies what it makes to dist/.
parts=(programs packages images chart clusterctl scripts notes)

refuse() {
    echo "make release: $*" >&2
    exit 1
}

version=${1:-}
shift || true
arches=("$@")
[ $# -gt 0 ] || arches=(amd64 arm64)
host=$(go env GOARCH)

number='(0|[1-9][0-9]*)' name='(0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)'
[ -n "$version" ] || refuse "VERSION is missing, such as VERSION=v1.2.3"
[[ $version =~ ^v$number\.$number\.$number(-$name(\.$name)*)?$ ]] ||
    refuse "VERSION: must be a semantic version with v, such as v1.2.3 or v1.2.3-rc.1, got \"$version\""
[[ " ${arches[*]} " == *" $host "* ]] ||
    refuse "ARCHES: must include $host, since the hub of this machine lists the images, got \"${arches[*]}\""
[ -z "${RELEASE_KEY:-}" ] || [ -r "$RELEASE_KEY" ] || refuse "RELEASE_KEY: cannot read $RELEASE_KEY"
changes=$(git status --porcelain)
[ -z "$changes" ] || refuse "commit or remove these changes first:"$'\n'"$changes"
tagged=$(git rev-parse --quiet --verify "refs/tags/$version^{commit}" || true)
[ -z "$tagged" ] || [ "$tagged" = "$(git rev-parse HEAD)" ] || refuse "tag $version is of another commit: check that one out"
# The section of the version, without the links at the end of the file.
notes=$(awk -v heading="## [${version#v}]" '
    index($0, "## ") == 1 { inside = index($0, heading) == 1; next }
    inside && !/^\[[^]]*\]: / && (some = some || NF > 0)' CHANGELOG.md)
[ -n "$notes" ] || refuse "CHANGELOG.md has no section \"## [${version#v}]\" with text: name the section of what has changed so"

SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
# What Go reads from git differs with the kind of checkout.
export GOFLAGS=-buildvcs=false

build() {
    make --no-print-directory "$@" VERSION="$version" ARCHES="${arches[*]}"
}

# archive NAME FILE... puts files into dist/NAME.tar.gz, below a directory of that name, with the licenses of what the programs contain.
archive() {
    local name=$1 file programs=()
    shift
    mkdir "$temp/$name"
    cp LICENSE "$@" "$temp/$name"
    for file in "$@"; do
        [[ $file == *.sha256 ]] || programs+=("$file")
    done
    bin/build-images notices --output "$temp/$name/THIRD_PARTY_NOTICES" "${programs[@]}"
    tar --create --directory "$temp" --sort=name --format=ustar --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
        --mtime="@$SOURCE_DATE_EPOCH" "$name" | gzip --no-name >"dist/$name.tar.gz"
    rm -r "${temp:?}/$name"
}

programs() {
    local arch
    build cross bin/build-images
    for arch in "${arches[@]}"; do
        # A hub finds the agents that it hands out beside itself.
        archive "hub-$version-linux-$arch" "bin/linux-$arch/hub" bin/assets/system-agent-{amd64,arm64}{,.sha256}
        archive "system-agent-$version-linux-$arch" "bin/linux-$arch/system-agent"
        archive "installer-$version-linux-$arch" "bin/linux-$arch/installer"
    done
}

packages() {
    rm -rf bin/packages # those of other versions
    build packages
    cp bin/packages/*.deb bin/packages/*.rpm bin/packages/*.spdx.json dist
}

images() {
    build images IMAGES_FLAGS="--bundle dist/drover-images-$version.tar --sbom dist \
        --digests dist/drover-images-$version.digests.txt"
    "bin/linux-$host/hub" images list >"dist/drover-images-$version.txt"
    # What has built the images lists the archives of programs as well.
    bin/build-images sbom --version "$version" dist/*"-$version-linux-"*.tar.gz
}

chart() {
    rm -rf bin/chart # those of other versions
    build chart
    cp bin/chart/*.tgz dist
}

clusterctl() {
    rm -rf bin/clusterctl-bundle # those of other versions
    build clusterctl-bundle
    cp bin/clusterctl-bundle/*.tar.gz dist
}

scripts() {
    compose packaging/install/system-agent-install.sh packaging/install/parts >dist/system-agent-install.sh
    cp packaging/install/system-agent-uninstall.sh dist
}

# compose SCRIPT PARTS prints a script with a file of the directory PARTS in place of each line that names one, as a hub serves it.
compose() {
    awk -v parts="$2" '
        $1 != "@include" { print; next }
        {
            file = parts "/" $2
            while ((got = (getline line < file)) > 0) print line
            if (got < 0) { print "make release: cannot read " file >"/dev/stderr"; exit 1 }
            close(file)
        }' "$1"
}

notes() {
    printf '%s\n' "$notes" >"dist/release-notes-$version.md"
}

# A release that is not complete leaves no dist/.
temp=$(mktemp -d) complete=
finish() {
    rm -rf "$temp"
    [ -n "$complete" ] || rm -rf dist
}
trap finish EXIT
rm -rf dist
mkdir dist
for i in "${!parts[@]}"; do
    echo "=== release $version for ${arches[*]}, $((i + 1)) of ${#parts[@]}: ${parts[i]} ($SECONDS s)"
    "${parts[i]}"
done
sums=$(cd dist && sha256sum -- *)
printf '%s\n' "$sums" >dist/sha256sums.txt
[ -z "${RELEASE_KEY:-}" ] || bin/build-images sign-blob --key "$RELEASE_KEY" dist/sha256sums.txt
complete=yes
echo "=== release $version is in dist/ after $SECONDS s"
cat dist/sha256sums.txt
