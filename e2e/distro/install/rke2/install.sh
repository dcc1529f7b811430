#!/bin/sh
# Installs the test distribution on a machine in the way of RKE2's install script. It downloads nothing, and starts nothing.
#
#   INSTALL_RKE2_ARTIFACT_PATH     folder with rke2.linux-amd64.tar.gz, its checksum file, and an archive of images
#   INSTALL_RKE2_TYPE              server or agent; INSTALL_RKE2_EXEC is the same. Both units are installed whatever it is
#   INSTALL_RKE2_METHOD            tar, which is all that there is
#   INSTALL_RKE2_TAR_PREFIX        where the archive is unpacked, /usr/local
#   INSTALL_RKE2_AGENT_IMAGES_DIR  where the archive of images goes
#   INSTALL_RKE2_SKIP_RELOAD       anything: systemd does not read its units again
set -eu

say() { printf '[INFO]  %s\n' "$*"; }
die() { printf '[ERROR]  %s\n' "$*" >&2; exit 1; }

[ "$(id -u)" -eq 0 ] || die "You need to be root to perform this install"
from=${INSTALL_RKE2_ARTIFACT_PATH:-}
[ -n "$from" ] || die "INSTALL_RKE2_ARTIFACT_PATH names no folder to install from"
[ "${INSTALL_RKE2_METHOD:-tar}" = tar ] || die "there is no package of the test distribution: INSTALL_RKE2_METHOD must be tar"
case "${INSTALL_RKE2_TYPE:-${INSTALL_RKE2_EXEC:-server}}" in
    server | agent) ;;
    *) die "INSTALL_RKE2_TYPE must be server or agent" ;;
esac
prefix=${INSTALL_RKE2_TAR_PREFIX:-/usr/local}
images=${INSTALL_RKE2_AGENT_IMAGES_DIR:-/var/lib/rancher/rke2/agent/images}
release=rke2.linux-amd64.tar.gz

say "verifying tarball"
(cd "$from" && grep " $release\$" sha256sum-amd64.txt | sha256sum -c --quiet -) || die "$from/$release is damaged"
say "unpacking tarball file to $prefix"
mkdir -p "$prefix"
tar -xzf "$from/$release" -C "$prefix"
if [ "$prefix" != /usr/local ]; then
    say "updating tarball contents to reflect install path"
    sed -i "s|/usr/local|$prefix|" "$prefix"/lib/systemd/system/rke2-*.service "$prefix/bin/rke2-uninstall.sh"
    say "moving systemd units to /etc/systemd/system"
    mv -f "$prefix"/lib/systemd/system/rke2-*.service /etc/systemd/system/
fi
for archive in "$from"/rke2-images.linux-amd64.tar*; do
    [ -f "$archive" ] || continue
    say "installing airgap tarball to $images"
    mkdir -p "$images"
    cp "$archive" "$images/"
done
[ -n "${INSTALL_RKE2_SKIP_RELOAD:-}" ] || systemctl daemon-reload
