#!/bin/sh
# Builds a release of the test distribution into ${DROVER_CACHE:-$HOME/.cache/drover}/distro/<version>, a link to a folder
# whose name tells the content of what it was built from. What is there already is not built again.
#
#	build.sh [version|folder]   default v1.36.3+k3s1; any other version has the same content, and its components say that
#	                            they are that version. One such as v1.36.3+rke2r1 is a release of the flavour of RKE2.
#	                            Of a folder, the last part is the version, and a link is made there too
#
# The last line, on standard output, is the folder.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
version=${1:-v1.36.3+k3s1}
link=
case "$version" in
    */*)
        link=${version%/}
        version=${link##*/}
        ;;
esac
case "$version" in
    *+rke2*) flavour=rke2 ;;
    *) flavour=k3s ;;
esac
arch=amd64
root=${DROVER_CACHE:-$HOME/.cache/drover}/distro
work=$root/.build
runc=1.5.2

say() {
    printf '%s distro: %s\n' "$(date +%T)" "$*" >&2
}

# content FILE... prints a hash of the names and contents of the files and of the compiler's version.
content() {
    { go version; printf '%s\n' "$@"; cat "$@"; } | sha256sum | cut -c 1-16
}

# need PACKAGE FILE installs a Debian package unless the file is there.
need() {
    [ ! -e "$2" ] || return 0
    say "installing $1"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$1" >&2 ||
        { apt-get update -q >&2 && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$1" >&2; }
}

# compile OUTPUT FLAGS... PACKAGE compiles one program without a C compiler, with no flag that would keep it from sharing compiled packages with
# the hub, which holds most of Kubernetes, too.
compile() {
    out=$1
    shift
    say "compiling ${out##*/}"
    CGO_ENABLED=0 GOARCH=$arch go build -o "$out" "$@"
}

# build_runtime compiles what runs below Kubernetes.
build_runtime() {
    if [ "$(cat "$work/runtime.stamp" 2>/dev/null)" = "$1" ]; then
        say "containerd, runc and the CNI plugins are up to date"
        return 0
    fi
    need libseccomp-dev /usr/include/seccomp.h
    need gcc /usr/bin/gcc
    rm -f "$work/runtime.stamp"
    cd "$here/runtime"
    tags=no_btrfs,no_aufs,no_devmapper,no_zfs,netgo,osusergo
    containerd=github.com/containerd/containerd/v2
    flags="-s -w -X $containerd/version.Version=$(go list -m -f '{{.Version}}' $containerd)"
    for program in containerd containerd-shim-runc-v2 ctr; do
        compile "$work/$program" -tags $tags -ldflags "$flags" $containerd/cmd/$program
    done
    for plugin in main/bridge main/loopback ipam/host-local meta/portmap; do
        compile "$work/${plugin#*/}" -ldflags "-s -w" github.com/containernetworking/plugins/plugins/$plugin
    done
    say "compiling runc"
    CGO_ENABLED=1 go build -trimpath -tags seccomp,netgo,osusergo -ldflags "-s -w -extldflags -static -X main.version=$runc" \
        -o "$work/runc" github.com/opencontainers/runc
    printf '%s' "$1" >"$work/runtime.stamp"
}

# build_kubernetes compiles Kubernetes, once for all versions that differ only in what comes after the plus.
build_kubernetes() {
    cd "$here"
    core=${version%%+*}
    minor=${core#v1.}
    minor=${minor%%.*}
    flags="-s -w"
    for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        flags="$flags -X $package.gitVersion=$core -X $package.gitMajor=1 -X $package.gitMinor=$minor -X $package.gitTreeState=clean"
    done
    if [ "$(cat "$work/kubernetes.stamp" 2>/dev/null)" = "$core $1" ]; then
        say "Kubernetes $core is up to date"
    else
        rm -f "$work/kubernetes.stamp"
        compile "$work/k3s-node" -ldflags "$flags" ./cmd/k3s-node
        compile "$work/hello" -ldflags "-s -w" ./cmd/hello
        compile "$work/pause" -ldflags "-s -w" ./cmd/pause
        compile "$work/bundle" ./cmd/bundle
        cd "$work"
        say "compressing the programs"
        ./bundle payload payload k3s-node containerd containerd-shim-runc-v2 ctr runc bridge host-local loopback portmap
        ./bundle images images.tar docker.io/rancher/mirrored-pause:3.6=pause docker.io/drover/hello:1=hello
        # Static pods have their programs from the node.
        ./bundle images rke2-images.tar docker.io/rancher/mirrored-pause:3.6=pause docker.io/drover/hello:1=hello \
            "docker.io/rancher/hardened-kubernetes:$core=pause=0:0" "docker.io/rancher/hardened-etcd:$core=pause=0:0"
        printf '%s %s' "$core" "$1" >"$work/kubernetes.stamp"
        cd "$here"
    fi
    compile "$work/$flavour-head" -ldflags "-s -w -X github.com/drover-dev/drover/e2e/distro/internal/flavour.built=$version" ./cmd/k3s
}

# killall prints the script that ends everything of the distribution.
killall() {
    sed -e "s/@PROGRAM@/$flavour/g" -e "s/PREFIX_/$(printf %s "$flavour" | tr '[:lower:]' '[:upper:]')_/g" "$here/install/killall.sh"
}

# bundle_k3s and bundle_rke2 put into a folder what a release of theirs consists of.
bundle_k3s() {
    cat "$work/k3s-head" "$work/payload" >"$1/k3s"
    chmod 0755 "$1/k3s"
    cp "$work/images.tar" "$1/k3s-airgap-images-$arch.tar"
    killall >"$work/killall.sh"
    sed -e "/^@KILLALL@\$/{r $work/killall.sh" -e 'd;}' "$here/install/install.sh" >"$1/install.sh"
    chmod 0755 "$1/install.sh"
    cd "$1"
    sha256sum k3s "k3s-airgap-images-$arch.tar" >"sha256sum-$arch.txt"
}

bundle_rke2() {
    tree=$work/rke2
    rm -rf "$tree"
    mkdir -p "$tree/bin" "$tree/lib/systemd/system" "$tree/share/rke2"
    cat "$work/rke2-head" "$work/payload" >"$tree/bin/rke2"
    killall >"$tree/bin/rke2-killall.sh"
    cp "$here/install/rke2/uninstall.sh" "$tree/bin/rke2-uninstall.sh"
    chmod 0755 "$tree"/bin/*
    for role in server agent; do
        [ $role = server ] && other=agent || other=server
        sed -e "s/@ROLE@/$role/g" -e "s/@OTHER@/$other/g" "$here/install/rke2/unit" >"$tree/lib/systemd/system/rke2-$role.service"
        echo HOME=/root >"$tree/lib/systemd/system/rke2-$role.env"
    done
    printf '%s\n' vm.panic_on_oom=0 vm.overcommit_memory=1 kernel.panic=10 kernel.panic_on_oops=1 >"$tree/share/rke2/rke2-cis-sysctl.conf"
    tar -C "$tree" --owner=0 --group=0 -cf - bin lib share | gzip -1 >"$1/rke2.linux-$arch.tar.gz"
    rm -rf "$tree"
    cp "$work/rke2-images.tar" "$1/rke2-images.linux-$arch.tar"
    install -m 0755 "$here/install/rke2/install.sh" "$1/install.sh"
    cd "$1"
    sha256sum "rke2.linux-$arch.tar.gz" "rke2-images.linux-$arch.tar" >"sha256sum-$arch.txt"
}

bundle() {
    say "putting the release together"
    "bundle_$flavour" "$1"
    chmod 0755 "$1"
}

command -v go >/dev/null || { say "go is missing"; exit 1; }
cd "$here"
mkdir -p "$work"
exec 9>"$root/.lock"
flock 9

# shellcheck disable=SC2046 # names without spaces
inputs=$(content go.mod go.sum runtime/go.mod runtime/go.sum build.sh $(find cmd internal install -type f ! -name '*_test.go' | LC_ALL=C sort))
name=$version-$inputs
if [ ! -d "$root/$name" ]; then
    build_runtime "$(content "$here/runtime/go.mod" "$here/runtime/go.sum" "$here/build.sh")"
    build_kubernetes "$inputs"
    rm -rf "$root/$name.tmp"
    mkdir "$root/$name.tmp"
    bundle "$root/$name.tmp"
    mv "$root/$name.tmp" "$root/$name"
fi
ln -sfn "$name" "$root/$version"
for old in "$root/$version"-*; do
    [ "$old" = "$root/$name" ] || rm -rf "$old"
done
if [ -n "$link" ] && [ "$link" != "$root/$version" ]; then
    ln -sfn "$root/$version" "$link"
fi
say "$version is in $root/$version"
printf '%s\n' "$root/$version"
