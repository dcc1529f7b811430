#!/bin/sh
# Replaces certificates and restarts the distribution, once for each operation:
#   rotate-certificates STATE UNIT SECONDS CERTIFICATES REMOVALS [COMMAND ARGUMENT...]
# STATE is a folder of the operation's own. CERTIFICATES and REMOVALS are files, one a line; a removal may be a pattern. COMMAND moves
# certificates away while UNIT is stopped; without one, UNIT restarts and is given others. It succeeds when UNIT runs and each of
# the certificates has another content than before, which may take SECONDS.
#
# It can be killed at any line and run again. From the stop on, whatever ends it starts UNIT, and so does systemd when the machine boots.
set -eu
# RKE2 and k3s may be in /opt, which is in the PATH of no service.
PATH=$PATH:/usr/local/bin:/opt/rke2/bin:/opt/bin

state=$1 unit=$2 seconds=$3 certificates=$4 removals=$5
shift 5
newline='
'

die() {
    printf '%s\n' "$*" >&2
    exit 1
}

# keep NAME keeps that a step is done, also if the power is cut now.
keep() {
    : >"$state/$1"
    sync
}

# hashes prints the hash and the name of each certificate that there is.
hashes() (
    set -f
    IFS=$newline
    for file in $certificates; do
        [ ! -f "$file" ] || sha256sum "$file" || true # it may be replaced just now
    done
)

# named prints the names of hashes in one line.
named() {
    sed 's/^[^ ]*  //' | tr '\n' ' '
}

remove() (
    IFS=$newline
    for file in $removals; do
        rm -f "$file"
    done
)

if [ -e "$state/done" ]; then
    echo "The certificates were replaced before"
    exit 0
fi
# What earlier operations have left is of no use.
for other in "${state%/*}"/*; do
    [ "$other" = "$state" ] || rm -rf "$other"
done
mkdir -p "$state"
if [ ! -e "$state/begun" ]; then
    hashes >"$state/before"
    [ -s "$state/before" ] || [ -z "$certificates" ] || die "There are no certificates to replace; looked for" \
        "$(printf '%s\n' "$certificates" | tr '\n' ' ')"
    keep begun
fi

started=
trap '[ -n "$started" ] || systemctl --no-block start "$unit" || true' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
if [ -e "$state/replaced" ]; then
    # It was interrupted after that. The distribution may have been started since, by the machine, and may not.
    echo "The certificates were moved away before"
    systemctl reset-failed "$unit" 2>/dev/null || true
    systemctl --no-block start "$unit"
elif [ "$#" -gt 0 ]; then
    systemctl stop "$unit"
    "$@"
    remove
    keep replaced
    systemctl reset-failed "$unit" 2>/dev/null || true
    systemctl --no-block start "$unit"
else
    systemctl reset-failed "$unit" 2>/dev/null || true
    systemctl --no-block restart "$unit"
fi
started=yes

waited=0
while :; do
    running=
    ! systemctl is-active --quiet "$unit" || running=yes
    hashes >"$state/after"
    same=$(grep -Fxf "$state/before" "$state/after" || true)
    missing=$(($(wc -l <"$state/before") - $(wc -l <"$state/after")))
    if [ -n "$running" ] && [ -z "$same" ] && [ "$missing" -le 0 ]; then
        break
    fi
    if [ "$waited" -ge "$seconds" ]; then
        # The next attempt moves them away again.
        [ -z "$same" ] || rm -f "$state/replaced"
        [ -z "$same" ] || die "These certificates are still the same as before: $(printf '%s\n' "$same" | named)"
        [ -n "$running" ] || die "$unit is not running $seconds s after it was started with new certificates; see journalctl -u $unit"
        echo "$missing certificates that there were before are not there any more"
        break
    fi
    sleep 1
    waited=$((waited + 1))
done
keep "done"
named <"$state/after" | sed 's/^/Replaced: /'
