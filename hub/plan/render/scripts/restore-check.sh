#!/bin/sh
# Checks what the restore of a snapshot needs, and changes nothing: FILE SIZE DATA_DIR SHA256 NAME. FILE is empty for a snapshot in a
# bucket, which has the NAME. SIZE is 0 and SHA256 empty where they are not known.
set -eu
file=$1 size=$2 data=$3 wanted=$4 name=$5 content="no checksum of it is known"

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
while [ ! -d "$data" ]; do
    data=${data%/*}
    [ -n "$data" ] || data=/
done
free=$(df -Pk "$data" | awk 'NR == 2 { print $4 }')
need=$((size * factor / 1024 + 65536))
[ "$free" -ge "$need" ] || fail "$data has $free KiB free, the restore needs about $need"
echo "checked: $size bytes, $content, $free KiB free in $data"
