#!/bin/sh
# Checks what the restore of a snapshot needs, and changes nothing: FILE SIZE DATA_DIR. FILE is empty for a snapshot in a bucket, SIZE 0
# where it is not known.
set -eu
file=$1 size=$2 data=$3

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
fi
case "$file" in
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
echo "checked: $size bytes, $free KiB free in $data"
