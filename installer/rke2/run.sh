#!/bin/sh
# Installs RKE2 on a machine from the artefacts that lie beside this script, then starts or restarts it as the plan asks.
#
# From the plan: RESTART_STAMP, INSTALL_RKE2_TYPE or INSTALL_RKE2_EXEC (server or agent), INSTALL_RKE2_SKIP_START and
# INSTALL_RKE2_SKIP_ENABLE (true: install only), RKE2_DATA_DIR. Every other INSTALL_RKE2_* reaches the release's install
# script. RKE2_*, CONTAINERD_* and the proxy variables are kept for the unit in <prefix>/lib/systemd/system/<unit>.env, after those that
# the release has there.
# DRAIN_HASH is for the hub only.
set -eu

RUNTIME=rke2
ROOT=${INSTALLER_ROOT:-}
ARTEFACTS=${CATTLE_AGENT_EXECUTION_PWD:-$(cd "$(dirname "$0")" && pwd)}
# shellcheck source=../shell/lib.sh
. "$ARTEFACTS/lib.sh"

# find_prefix sets PREFIX to where the release's tarball is unpacked. /usr/local on a mount of its own may appear and disappear
# with the image of the operating system, which is why RKE2's own script avoids it too.
find_prefix() {
    PREFIX=${INSTALL_RKE2_TAR_PREFIX:-}
    [ -z "$PREFIX" ] || return 0
    PREFIX=$ROOT/usr/local
    if ! writable "$PREFIX" || { [ -z "$ROOT" ] && mountpoint -q /usr/local 2>/dev/null; }; then
        PREFIX=$ROOT/opt/rke2
    fi
}

# check_room stops where the unpacked release would not fit. The release's script unpacks over what is installed: on a full disk
# that leaves a part of a program, with which RKE2 does not start again.
check_room() {
    need=$(gzip -dc "$ARTEFACTS/$release" 2>/dev/null | wc -c)
    need=$((need / 1024))
    free=$(df -Pk "$PREFIX" 2>/dev/null | sed -n 's/^.* \([0-9]\{1,\}\) \{1,\}[0-9]\{1,\}% .*$/\1/p')
    if [ -n "$free" ] && [ "$free" -le "$need" ]; then
        die "$PREFIX has $free KiB free, and RKE2 needs $need KiB: free some space"
    fi
}

# write_environment FILE keeps the variables that the unit needs; values may hold secrets, so only root reads it. The release has
# unpacked a file of its own there, whose lines come first: systemd sets no HOME, without which RKE2 does not find credentials in the home
# directory of root, for registries and for S3. Its lines have no quotes, those of an earlier run of this script have.
write_environment() {
    mkdir -p "${1%/*}"
    rm -f "$1.new"
    (umask 077 && : >"$1.new") || die "cannot write $1"
    [ ! -f "$1" ] || sed -n '/^[A-Za-z_][A-Za-z0-9_]*=[^"]*$/p' "$1" >>"$1.new" || die "cannot write $1"
    names=$(env | sed -n 's/^\(RKE2_[A-Za-z0-9_]*\)=.*/\1/p
s/^\(CONTAINERD_[A-Za-z0-9_]*\)=.*/\1/p
s/^\([Nn][Oo]_[Pp][Rr][Oo][Xx][Yy]\)=.*/\1/p
s/^\([Hh][Tt][Tt][Pp][Ss]\{0,1\}_[Pp][Rr][Oo][Xx][Yy]\)=.*/\1/p' | sort -u)
    for name in $names; do
        eval "value=\${$name-}"
        # shellcheck disable=SC2154 # set by eval
        printf '%s="%s"\n' "$name" "$(printf '%s' "$value" | sed 's/[\\"]/\\&/g')" >>"$1.new"
    done
    mv -f "$1.new" "$1" || die "cannot write $1"
}

need_tools systemctl sha256sum mktemp tar gzip
find_arch
role=${INSTALL_RKE2_TYPE:-${INSTALL_RKE2_EXEC:-server}}
case "$role" in
    server) OTHER=rke2-agent ;;
    agent) OTHER=rke2-server ;;
    *) die "INSTALL_RKE2_TYPE or INSTALL_RKE2_EXEC must be server or agent, not $role" ;;
esac
UNIT=rke2-$role.service
stop_on_other_role "$OTHER" rke2-uninstall.sh

release=rke2.linux-$ARCH.tar.gz
[ -f "$ARTEFACTS/$release" ] || die "the image has no $release"
check_sum "$ARTEFACTS/$release" "$release"
find_prefix
writable "$PREFIX" || die "cannot write to $PREFIX: set INSTALL_RKE2_TAR_PREFIX to a folder that can be written"
images=${RKE2_DATA_DIR:-$ROOT/var/lib/rancher/rke2}/agent/images
place_images "*images*$ARCH.tar*" "$images"
check_room

# The release's script sees the tarball and its checksum only: image tarballs are in place already, and it would copy each
# of them twice.
staged=$(mktemp -d "$ARTEFACTS/.staged-XXXXXX") || die "cannot write to $ARTEFACTS"
trap 'rm -rf "$staged"' EXIT
ln -s "$ARTEFACTS/$release" "$ARTEFACTS/sha256sum-$ARCH.txt" "$staged/"
INSTALL_RKE2_ARTIFACT_PATH=$staged INSTALL_RKE2_METHOD=${INSTALL_RKE2_METHOD:-tar} INSTALL_RKE2_TYPE=$role \
    INSTALL_RKE2_TAR_PREFIX=$PREFIX INSTALL_RKE2_AGENT_IMAGES_DIR=$images run_release_installer "$@"
environment=$PREFIX/lib/systemd/system/rke2-$role.env
PROGRAMS=$PREFIX/bin
write_environment "$environment"
systemctl daemon-reload || die "systemd cannot read its units again"

if [ "${INSTALL_RKE2_SKIP_START:-}" = true ] || [ "${INSTALL_RKE2_SKIP_ENABLE:-}" = true ]; then
    make_durable "$environment"
    log "installed only, $UNIT is left as it is"
    exit 0
fi
apply_restart_stamp "$environment"
