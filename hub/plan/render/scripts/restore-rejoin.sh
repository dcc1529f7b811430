#!/bin/sh
# Has a machine forget what it knows of the cluster before a restore, once for each restore: ID FOLDER RUNTIME DATA_DIR ROLE. What a server
# has is kept beside it. FOLDER is where what was done is recorded.
set -eu
id=$1 folder=$2 runtime=$3 data=$4 role=$5
done=$folder/restored
if [ "$(cat "$done" 2>/dev/null || true)" = "$id" ]; then
    echo "done before"
    exit 0
fi
case "$runtime" in
    rke2) units="rke2-server.service rke2-agent.service" ;;
    *) units="$runtime.service $runtime-agent.service" ;;
esac
for unit in $units; do
    if systemctl cat "$unit" >/dev/null 2>&1; then
        systemctl stop "$unit"
    fi
done
if [ "$role" = server ]; then
    now=$(date +%s)
    for dir in db/etcd tls cred; do
        if [ -d "$data/server/$dir" ]; then
            mv "$data/server/$dir" "$data/server/$dir-old-$now"
        fi
        # shellcheck disable=SC2012 # names of our own
        ls -d "$data/server/$dir"-old-* 2>/dev/null | sort -r | tail -n +6 | while read -r old; do rm -rf "$old"; done
    done
    rm -f "$data/server/db/reset-flag"
    [ "$runtime" != rke2 ] || rm -f "$data"/server/manifests/rke2-*.yaml "$data"/agent/pod-manifests/*.yaml
fi
mkdir -p "$folder"
printf '%s\n' "$id" >"$done.new"
mv -f "$done.new" "$done"
