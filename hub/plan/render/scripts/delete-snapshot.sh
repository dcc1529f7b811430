#!/bin/sh
# Deletes a snapshot of etcd unless it is gone, and checks that it is listed no longer:
#   delete-snapshot.sh RUNTIME NAME LOCATION EMPTY
# LOCATION is the URL with which the distribution lists the file NAME. A snapshot and its copy in a bucket have the same name, and the
# command of the distribution deletes what it finds of it in both: only the one at LOCATION is to go. EMPTY is the path of a folder that is
# created and removed here. Bucket, folder and key of S3 are those of the machine's configuration.
set -eu
# RKE2 and k3s may be in /opt, which is in the PATH of no service.
PATH=$PATH:/usr/local/bin:/opt/rke2/bin:/opt/bin
runtime=$1 name=$2 location=$3 empty=$4

fail() {
    echo "$*" >&2
    exit 1
}
[ -n "$name" ] || fail "no snapshot is named"
s3=--etcd-s3=false
case $location in
s3://*) s3=--etcd-s3 ;;
esac
list=$(mktemp)
trap 'rm -f "$list"' EXIT

# snapshots runs a command for snapshots, which asks the server at the URL in SNAPSHOT_SERVER, or the default one.
snapshots() {
    verb=$1
    shift
    "$runtime" etcd-snapshot "$verb" ${SNAPSHOT_SERVER:+"--etcd-server=$SNAPSHOT_SERVER"} "$@"
}

listed() {
    snapshots list "$s3" >"$list" || fail "listing snapshots failed"
    grep -q '^Name .*Location' "$list" || fail "$runtime etcd-snapshot list does not print the locations of snapshots"
    grep -qF " $location " "$list"
}

if listed; then
    if [ "$s3" = --etcd-s3 ] && awk -v name="$name" '$1 == name && $2 ~ /^file:/ { n++ } END { exit !n }' "$list"; then
        # The file of the same name is on this machine. The command is not to find it, and looks into an empty folder.
        mkdir -p "$empty"
        snapshots delete "$s3" --etcd-snapshot-dir="$empty" "$name" || echo "deleting $location failed" >&2
    else
        snapshots delete "$s3" "$name" || echo "deleting $location failed" >&2
    fi
elif [ -f "${location#file://}" ]; then
    fail "${location#file://} is there and not listed: it is not in the folder of snapshots of this machine. Delete it there"
else
    echo "snapshot $location was deleted before"
fi
if [ -d "$empty" ]; then
    # The cluster lists no snapshot of this machine now. It lists them again after each deletion, also of what is not there.
    snapshots delete --etcd-s3=false "$name.none"
    rmdir "$empty"
fi
if listed; then
    fail "snapshot $location is still listed: the log of $runtime says why"
fi
echo "snapshot $location is deleted"
