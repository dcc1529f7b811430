#!/bin/sh
# Checks what the restore of a snapshot needs, and changes nothing: FILE SIZE DATA_DIR SHA256 NAME [RUNTIME ARGUMENT...]. FILE is empty for
# a snapshot in a bucket, which has the NAME. SIZE is 0 and SHA256 empty where they are not known. With a RUNTIME, its server on this
# machine lists the bucket of the ARGUMENTs. Endpoint and keys are those of the machine's configuration.
set -eu
# RKE2 and k3s may be in /opt, which is in the PATH of no service.
PATH=$PATH:/usr/local/bin:/opt/rke2/bin:/opt/bin
file=$1 size=$2 data=$3 wanted=$4 name=$5 content="no checksum of it is known"
shift 5

fail() {
    echo "$*" >&2
    exit 1
}

if [ -n "$file" ]; then
    [ -f "$file" ] || fail "the snapshot $file does not exist on this machine"
    found=$(wc -c <"$file" | tr -d ' ')
    [ "$found" -gt 0 ] || fail "the snapshot $file is empty"
    if [ "$size" -gt 0 ] && [ "$found" -ne "$size" ]; then
        fail "the snapshot $file has $found bytes instead of $size: it is not the one that was listed, or damaged"
    fi
    size=$found
    if [ -n "$wanted" ]; then
        hash=$(sha256sum <"$file")
        hash=${hash%% *}
        [ "$hash" = "$wanted" ] || fail "the snapshot $file is damaged: its SHA-256 is $hash, and was $wanted when it was saved. Restore" \
            "another snapshot, or the same one from the bucket or from another machine"
        content="its SHA-256 is the one of when it was saved"
    fi
fi
# RKE2 and k3s rename the folder, which fails where a disk is mounted. A link to another disk can be renamed.
etcd=$data/server/db/etcd
if [ ! -L "$etcd" ] && mountpoint -q "$etcd" 2>/dev/null; then
    fail "$etcd is a mount point, so that a restore cannot move what is there away: mount the disk at $data/server/db instead"
fi
case "${file:-$name}" in
    *.zip) factor=8 ;; # it is unpacked first
    *) factor=2 ;;
esac
# What is restored is written below server/db, which may have a disk of its own.
disk=$data/server/db
while [ ! -d "$disk" ]; do
    disk=${disk%/*}
    [ -n "$disk" ] || disk=/
done
free=$(df -Pk "$disk" | awk 'NR == 2 { print $4 }')
need=$((size * factor / 1024 + 65536))
[ "$free" -ge "$need" ] || fail "$disk has $free KiB free, the restore needs about $need"

# Only what shows that the bucket cannot be read, or does not have the snapshot, is a failure: a cluster that is down can be restored too.
if [ $# -gt 0 ]; then
    runtime=$1
    shift
    # A server keeps its clients of buckets, and looks for the bucket only when it makes one: with another timeout it makes another.
    limit=$((30000 + $(date +%s) % 1000))ms
    # The server is at the URL in SNAPSHOT_SERVER, or the default one.
    if list=$(timeout 90 "$runtime" etcd-snapshot list ${SNAPSHOT_SERVER:+"--etcd-server=$SNAPSHOT_SERVER"} "$@" \
        --etcd-s3-timeout="$limit" 2>&1); then
        printf '%s\n' "$list" |
            awk -v name="$name" '/^Name .*Location/ { table = 1 } $1 == name && $2 ~ /^s3:/ { n++ } END { exit table && !n }' ||
            fail "the snapshot $name is not in the bucket: restore another one"
        content="the bucket can be read"
    else
        why=$(printf '%s\n' "$list" |
            grep -Eo '(failed to test for existence of bucket|bucket [^ ]+ does not exist|failed to get (IAM )?credentials).*' | tail -n 1)
        [ -z "$why" ] || fail "the bucket cannot be read: ${why%\"}"
        content="the bucket was not checked: no server on this machine has listed it"
    fi
elif [ -z "$file" ]; then
    content="the bucket was not checked: the settings of S3 on this machine are not those of the Cluster"
fi
echo "checked: $size bytes, $content, $free KiB free in $disk"
