#!/bin/sh
# Makes etcd a cluster of this server alone with the data of a snapshot, and starts nothing: RUNTIME DATA_DIR FOLDER [ARGUMENT...]. The
# arguments are those of the distribution's command. FOLDER is where the snapshots are. What was there is kept beside it.
set -eu
# RKE2 and k3s may be in /opt, which is in the PATH of no service.
PATH=$PATH:/usr/local/bin:/opt/rke2/bin:/opt/bin
runtime=$1 data=$2 folder=$3
shift 3
case "$runtime" in
    rke2) unit=rke2-server.service ;;
    *) unit=$runtime.service ;;
esac
systemctl stop "$unit"

# Certificates and keys come from the snapshot. What is here may be newer, and would count more.
now=$(date +%s)
for dir in tls cred; do
    if [ -d "$data/server/$dir" ]; then
        mv "$data/server/$dir" "$data/server/$dir-old-$now"
    fi
    # shellcheck disable=SC2012 # names of our own
    ls -d "$data/server/$dir"-old-* 2>/dev/null | sort -r | tail -n +6 | while read -r old; do rm -rf "$old"; done
done
# The manifests that the distribution brings are those of its version, which may be another one now.
[ "$runtime" != rke2 ] || rm -f "$data"/server/manifests/rke2-*.yaml "$data"/agent/pod-manifests/*.yaml
rm -f "$data/server/db/reset-flag" "$data/server/db/etcd/tombstone"

# k3s and RKE2 put FOLDER before the path of an archive, also before a whole path (https://github.com/k3s-io/k3s/issues/14526; not before
# March 2026). So the folder of the archive is there, too, until it is restored. They unpack it beside where it is, and leave that there.
from='' link='' unpacked=''
for argument in "$@"; do
    case $argument in
    --cluster-reset-restore-path=/*/*.zip)
        from=${argument#*=}
        unpacked=${from%.zip}
        from=${from%/*}
        ;;
    --cluster-reset-restore-path=/*) ;;
    --cluster-reset-restore-path=*.zip) # it is downloaded to FOLDER
        from=$folder
        unpacked=${argument#*=}
        unpacked=$folder/${unpacked%.zip}
        ;;
    esac
done
[ ! -e "$unpacked" ] || unpacked='' # it was there before
tidy() {
    [ -z "$unpacked" ] || rm -f "$unpacked"
    # They keep all data that they move away. Only what can be started counts: an attempt that fails leaves some without a write-ahead log.
    # shellcheck disable=SC2012 # names of RKE2 and k3s
    ls -d "$data"/server/db/etcd-old-*/member/wal 2>/dev/null | sort -r | tail -n +6 |
        while read -r wal; do rm -rf "${wal%/member/wal}"; done || true
    [ -n "$link" ] || return 0
    rm -f "$link"
    (cd "$folder" && rmdir -p "$(dirname "${from#/}")") 2>/dev/null || true
}
trap tidy EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
if [ -n "$from" ]; then
    link=$folder$from
    (umask 077 && mkdir -p "${link%/*}")
    ln -sfn "$from" "$link"
fi
# They make only the folder that they have by default, and download to no other that is not there, as on a new machine.
[ -d "$folder" ] || (umask 077 && mkdir -p "$folder")
"$runtime" server --cluster-reset --etcd-disable-snapshots=false "$@"
