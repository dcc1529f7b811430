#!/bin/sh
# Removes RKE2 and its data from this machine.
[ "$(id -u)" -eq 0 ] || { echo "${0##*/}: must be run as root" >&2; exit 1; }
prefix=/usr/local
data=${RKE2_DATA_DIR:-/var/lib/rancher/rke2}
"$prefix/bin/rke2-killall.sh"
for role in server agent; do
    systemctl disable --quiet "rke2-$role" 2>/dev/null
    systemctl reset-failed "rke2-$role" 2>/dev/null
    rm -f "$prefix/lib/systemd/system/rke2-$role.service" "$prefix/lib/systemd/system/rke2-$role.env"
    rm -f "/etc/systemd/system/rke2-$role.service"
done
systemctl daemon-reload
# A folder that is a mount of its own is emptied and stays.
rm -rf /etc/rancher/rke2 /etc/rancher/node /run/k3s "$data" /var/lib/kubelet /var/log/pods /var/log/containers 2>/dev/null
rm -rf "$prefix/share/rke2"
rmdir /etc/rancher 2>/dev/null
rm -f "$prefix/bin/rke2" "$prefix/bin/rke2-killall.sh" "$prefix/bin/rke2-uninstall.sh"
exit 0
