#!/bin/sh
# Saves a snapshot of etcd and checks its file:
#   save-snapshot.sh RUNTIME FOLDER NAME BUCKET [ARGUMENT...]
# The file ends with the SHA-256 of what is before it, and begins as a bbolt database does. One that is not whole is deleted, so that nobody
# restores it. The last line about each file has the SHA-256 of all of it, for whoever restores it. FOLDER is where the snapshots are, NAME
# is how the file's name begins. BUCKET is "true" where it has to be in a bucket, too: saving does not fail where the upload does. It is
# "later" where the machine does not have the settings of the bucket yet.
set -eu
# RKE2 and k3s may be in /opt, which is in the PATH of no service.
PATH=$PATH:/usr/local/bin:/opt/rke2/bin:/opt/bin

runtime=$1 folder=$2 name=$3 bucket=$4
shift 4

# snapshots runs a command for snapshots, which asks the server at the URL in SNAPSHOT_SERVER, or the default one.
snapshots() {
    verb=$1
    shift
    "$runtime" etcd-snapshot "$verb" ${SNAPSHOT_SERVER:+"--etcd-server=$SNAPSHOT_SERVER"} "$@"
}

earlier=$(mktemp)
said=$(mktemp)
trap 'rm -f "$earlier" "$said"' EXIT
ls "$folder" >"$earlier" 2>/dev/null || true
# A server saves one snapshot at a time, and refuses another one while it saves and uploads one on its schedule. Most releases have the
# reason in the server's log only, under the ID of the error.
left=6
until snapshots save "$@" >"$said" 2>&1; do
    cat "$said" >&2
    left=$((left - 1))
    grep -qE 'etcd-snapshot error ID|already in progress' "$said" || exit 1
    [ "$left" -gt 0 ] || exit 1
    sleep 20
done
cat "$said"
case " $* " in
*" --etcd-snapshot-dir "*)
    # The cluster lists the files of this folder now, instead of those that it has listed of this machine. It lists those of the folder of
    # the configuration after each deletion, also of what is not there.
    snapshots delete --etcd-s3=false "$name.none" >&2 || true
    ;;
esac

refuse() {
    echo "snapshot $1 is damaged: $2; it is deleted" >&2
    snapshots delete "${1##*/}" >&2 || true
    rm -f "$1" # the command looks into the folder of the configuration
    exit 1
}

check() {
    size=$(wc -c <"$1")
    case $1 in
    *.zip)
        [ "$(head -c 4 "$1" | od -An -v -tx1 | tr -d ' \n')" = 504b0304 ] || refuse "$1" "it is no zip archive"
        if ! command -v unzip >/dev/null; then
            echo "snapshot $1: $size bytes; the program unzip is missing, so that its content was not checked"
            checksum "$1"
            return
        fi
        unzip -tq "$1" >/dev/null || refuse "$1" "the archive is not whole"
        ;;
    *)
        [ $((size % 512)) -eq 32 ] || refuse "$1" "its end is missing"
        hash=$(head -c $((size - 32)) "$1" | sha256sum)
        [ "${hash%% *}" = "$(tail -c 32 "$1" | od -An -v -tx1 | tr -d ' \n')" ] || refuse "$1" "its hash is another one"
        [ "$(od -An -v -tx1 -j16 -N4 "$1" | tr -d ' \n')" = edda0ced ] || refuse "$1" "it is no etcd database"
        ;;
    esac
    echo "snapshot $1: $size bytes, checked"
    checksum "$1"
}

checksum() {
    hash=$(sha256sum <"$1")
    echo "sha256 ${hash%% *} $1"
}

found=
for file in "$folder/$name"-*; do
    case $file in *.part | *.tmp) continue ;; esac
    if [ -f "$file" ] && ! grep -qxF "${file##*/}" "$earlier"; then
        check "$file"
        if [ "$bucket" = true ] && ! snapshots list | grep -F "${file##*/} " | grep -qF s3://; then
            echo "snapshot $file was not uploaded to the bucket; its ETCDSnapshot says why" >&2
            exit 1
        fi
        if [ "$bucket" = later ]; then
            echo "snapshot $file is not in the bucket: this machine does not have the settings of spec.rkeConfig.etcd.s3 yet." \
                "Save another one when hub status shows no change that waits" >&2
            exit 1
        fi
        found=true
    fi
done
if [ -z "$found" ]; then
    echo "etcd-snapshot save has ended well, and there is no new file $folder/$name-*" >&2
    exit 1
fi
