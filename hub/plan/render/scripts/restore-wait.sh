#!/bin/sh
# Starts the distribution unless it runs, also when the machine starts, and waits until it is ready: UNIT SECONDS.
set -u
unit=$1 left=$2
systemctl enable --quiet "$unit" || exit 1
systemctl --no-block start "$unit" || exit 1
while [ "$(systemctl is-active "$unit")" != active ]; do
    if [ "$left" -le 0 ]; then
        echo "$unit is not ready: see journalctl -u $unit" >&2
        exit 1
    fi
    sleep 1
    left=$((left - 1))
done
echo "$unit is ready"
