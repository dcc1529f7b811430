#!/bin/sh
# Checks what the distribution ends without when it starts with its configuration, before it is restarted:
#   sh -c SCRIPT check-host STAMP KERNEL USER PROC
# STAMP is the file with the RESTART_STAMP of the last start; with the same one the configuration is that of now, and nothing is checked.
# KERNEL is "true" where it wants parameters of the kernel, which are below PROC, and USER where it wants user and group etcd. Nothing is
# changed.
set -eu
stamp=$1 kernel=$2 user=$3 proc=$4
faults=

fault() { faults=$faults${faults:+; }$1; }

[ "$(cat "$stamp" 2>/dev/null || true)" != "$RESTART_STAMP" ] || exit 0
if [ "$kernel" = true ]; then
    for wanted in vm.overcommit_memory=1 vm.panic_on_oom=0 kernel.panic=10 kernel.panic_on_oops=1; do
        name=${wanted%=*}
        value=$(cat "$proc/$(printf '%s' "$name" | tr . /)" 2>/dev/null || true)
        [ "$value" = "${wanted#*=}" ] || fault "sysctl $wanted is needed, and it is ${value:-not known}"
    done
fi
if [ "$user" = true ] && command -v getent >/dev/null; then
    getent passwd etcd >/dev/null || fault 'there is no user etcd'
    getent group etcd >/dev/null || fault 'there is no group etcd'
fi
if [ -n "$faults" ]; then
    printf '%s\n' "The machine is not prepared for its configuration: $faults" >&2
    exit 1
fi
