#!/bin/sh
# Stops the distribution and its containers, also for the next start of the machine: RUNTIME DATA_DIR ETCD. With ETCD=leave, the data of
# etcd is of no use from now on: whenever the distribution starts again, it moves it away and joins without it.
set -u
runtime=$1 data=$2 etcd=$3
case "$runtime" in
    rke2) units="rke2-server.service rke2-agent.service" ;;
    *) units="$runtime.service $runtime-agent.service" ;;
esac

installed=
for unit in $units; do
    systemctl cat "$unit" >/dev/null 2>&1 || continue
    installed="$installed $unit"
    systemctl disable --quiet "$unit" || exit 1
done
killall=
for dir in /usr/local/bin /opt/rke2/bin /opt/bin; do
    if [ -x "$dir/$runtime-killall.sh" ]; then
        killall=$dir/$runtime-killall.sh
        break
    fi
done
[ -n "$killall" ] || killall=$(command -v "$runtime-killall.sh")
if [ -n "$killall" ]; then
    "$killall" || echo "$killall ended with $?" # what counts is checked below
fi
for unit in $installed; do
    systemctl stop "$unit" || exit 1
    systemctl reset-failed "$unit" 2>/dev/null
done
[ "$runtime" != rke2 ] || rm -f "$data"/agent/pod-manifests/*.yaml
if [ "$etcd" = leave ] && [ -d "$data/server/db/etcd" ]; then
    touch "$data/server/db/etcd/tombstone" || exit 1
fi
echo "stopped:$installed"
