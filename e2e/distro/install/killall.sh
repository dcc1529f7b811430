#!/bin/sh
# Ends @PROGRAM@ and everything it started: pods, their mounts, network devices, rules and control groups.
[ "$(id -u)" -eq 0 ] || exec sudo --preserve-env=PREFIX_DATA_DIR "$0" "$@"
data=${PREFIX_DATA_DIR:-/var/lib/rancher/@PROGRAM@}

for unit in /etc/systemd/system/@PROGRAM@*.service /usr/local/lib/systemd/system/@PROGRAM@*.service; do
    [ ! -s "$unit" ] || systemctl stop "${unit##*/}"
done

# Otherwise the next kubelet would start the control plane of RKE2 at once.
for component in etcd kube-apiserver kube-controller-manager kube-scheduler; do
    rm -f "$data/agent/pod-manifests/$component.yaml"
done

# family PID... prints the processes and all their descendants.
family() {
    for pid in "$@"; do
        echo "$pid"
        # shellcheck disable=SC2046
        family $(ps -e -o ppid= -o pid= | awk -v p="$pid" '$1 == p { print $2 }')
    done
}

shims() {
    ps -e -o pid= -o args= | awk '$2 ~ "/data/[0-9a-f]+/bin/containerd-shim" { print $1 }'
}

# A shim ends once its containers have; one that is about to start a container may be missed the first time.
for _ in 1 2 3 4 5; do
    pids=$(shims)
    [ -n "$pids" ] || break
    # shellcheck disable=SC2046,SC2086
    kill -9 $(family $pids) 2>/dev/null
    sleep 0.2
done

# unmount PREFIX unmounts everything below, the latest mount first.
unmount() {
    awk '{ print $2 }' /proc/self/mounts | grep "^$1" | sort -r | while read -r mount; do
        umount -f "$mount" 2>/dev/null || umount -l "$mount"
    done
}
unmount /run/k3s
unmount /var/lib/kubelet/pods
unmount /var/lib/kubelet/plugins
unmount /run/netns/cni-
unmount "$data/agent/containerd/"
rm -rf /run/k3s /var/lib/cni/ /var/run/netns/cni-*

for netns in $(ip netns list 2>/dev/null | awk '/^cni-/ { print $1 }'); do
    ip netns delete "$netns"
done
ip -o link show | awk -F '[ @]+' '/master cni0/ { print $2 }' | while read -r device; do
    ip link delete "$device" 2>/dev/null
done
ip link delete cni0 2>/dev/null

for tool in iptables ip6tables; do
    command -v "$tool-save" >/dev/null 2>&1 || continue
    "$tool-save" 2>/dev/null | grep -v -e KUBE- -e CNI- -e '@PROGRAM@ pods leave the cluster' | "$tool-restore" 2>/dev/null
done
command -v nft >/dev/null 2>&1 && { nft delete table ip kube-proxy; nft delete table ip6 kube-proxy; } 2>/dev/null

for _ in 1 2 3 4 5 6 7 8 9 10; do
    find /sys/fs/cgroup -depth -type d \( -path '*/kubepods*' -o -path '*/k8s.io/*' -o -name k8s.io \) -exec rmdir {} + 2>/dev/null
    [ -n "$(find /sys/fs/cgroup -type d -name 'kubepods*' 2>/dev/null)" ] || break
    sleep 0.2
done
exit 0
