#!/bin/sh
# Installs the test distribution on a machine in the way of k3s's install script. It downloads nothing.
#
#   INSTALL_K3S_EXEC           command and arguments: "server ..." or "agent ..."; without a command agent if K3S_URL is set
#   INSTALL_K3S_ARTIFACT_PATH  folder with k3s, its checksum file and archives of images; without it k3s must be in place
#   INSTALL_K3S_BIN_DIR        where programs go, /usr/local/bin
#   INSTALL_K3S_SYSTEMD_DIR    where the unit goes, /etc/systemd/system
#   INSTALL_K3S_NAME           the unit is called k3s-<name>
#   INSTALL_K3S_SKIP_ENABLE    true: neither enable nor start the unit
#   INSTALL_K3S_SKIP_START     true: do not start the unit
#   INSTALL_K3S_SYMLINK        skip: no links to k3s; force: replace what has the names of the links
#   K3S_*, CONTAINERD_*, proxy variables: kept for the unit
set -eu

say() { printf '[INFO]  %s\n' "$*"; }
die() { printf '[ERROR]  %s\n' "$*" >&2; exit 1; }

[ "$(id -u)" -eq 0 ] || die "only root can install k3s"
[ -d /run/systemd/system ] || die "this machine is not run by systemd"

# quote ARG... prints the arguments for a line of a unit file.
quote() {
    for arg in "$@"; do
        printf " '%s'" "$(printf '%s' "$arg" | sed -e "s/\\\\/\\\\\\\\/g" -e "s/'/\\\\'/g" -e 's/%/%%/g' -e 's/\$/$$/g')"
    done
}

# shellcheck disable=SC2086 # a command line, to be split
set -- ${INSTALL_K3S_EXEC:-} "$@"
case "${1:-}" in
    "" | -*)
        command=server
        [ -z "${K3S_URL:-}" ] || command=agent
        ;;
    server | agent)
        command=$1
        shift
        ;;
    *) die "INSTALL_K3S_EXEC must begin with server or agent, not with $1" ;;
esac
if [ -n "${INSTALL_K3S_NAME:-}" ]; then
    system=k3s-$INSTALL_K3S_NAME
elif [ "$command" = server ]; then
    system=k3s
else
    system=k3s-agent
fi
bin=${INSTALL_K3S_BIN_DIR:-/usr/local/bin}
units=${INSTALL_K3S_SYSTEMD_DIR:-/etc/systemd/system}
data=${K3S_DATA_DIR:-/var/lib/rancher/k3s}
service=$system.service
environment=$units/$service.env
if [ "$command" = agent ]; then
    uninstall=$bin/k3s-agent-uninstall.sh
else
    uninstall=$bin/k3s-uninstall.sh
fi
[ -z "${INSTALL_K3S_NAME:-}" ] || uninstall=$bin/$system-uninstall.sh

take_artefacts() {
    from=${INSTALL_K3S_ARTIFACT_PATH:-}
    [ -n "$from" ] || return 0
    say "Verifying $from/k3s"
    (cd "$from" && grep ' k3s$' sha256sum-amd64.txt | sha256sum -c --quiet -) || die "$from/k3s is damaged"
    mkdir -p "$bin" "$data/agent/images"
    install -m 0755 "$from/k3s" "$bin/.k3s.new"
    mv -f "$bin/.k3s.new" "$bin/k3s"
    for archive in "$from"/k3s-airgap-images-amd64.tar*; do
        [ ! -f "$archive" ] || install -m 0644 "$archive" "$data/agent/images/"
    done
}

make_links() {
    [ "${INSTALL_K3S_SYMLINK:-}" != skip ] || return 0
    for name in kubectl ctr; do
        [ "$(readlink "$bin/$name" 2>/dev/null)" != k3s ] || continue
        if [ "${INSTALL_K3S_SYMLINK:-}" != force ] && command -v "$name" >/dev/null 2>&1; then
            say "Skipping the link $bin/$name: $(command -v "$name") exists"
            continue
        fi
        say "Creating $bin/$name symlink to k3s"
        ln -sf k3s "$bin/$name"
    done
}

write_unit() {
    say "systemd: Creating environment file $environment"
    : >"$environment"
    chmod 0600 "$environment"
    env | grep '^K3S_' | grep -v '^K3S_CONFIG_FILE=$' >>"$environment" || true
    env | grep -E -i '^(NO|HTTP|HTTPS)_PROXY=' >>"$environment" || true
    env | grep '^CONTAINERD_' >>"$environment" || true

    say "systemd: Creating service file $units/$service"
    cat >"$units/$service" <<EOF
[Unit]
Description=Lightweight Kubernetes (test fixture)
Wants=network-online.target
After=network-online.target

[Install]
WantedBy=multi-user.target

[Service]
Type=notify
EnvironmentFile=-/etc/default/%N
EnvironmentFile=-/etc/sysconfig/%N
EnvironmentFile=-$environment
KillMode=process
Delegate=yes
User=root
LimitNOFILE=1048576
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
TimeoutStartSec=0
Restart=always
RestartSec=5s
ExecStartPre=-/sbin/modprobe br_netfilter
ExecStartPre=-/sbin/modprobe overlay
ExecStart=$bin/k3s $command$(quote "$@")
EOF
    chmod 0644 "$units/$service"
    systemctl daemon-reload
}

write_killall() {
    say "Creating killall script $bin/k3s-killall.sh"
    cat >"$bin/k3s-killall.sh" <<'EOF'
@KILLALL@
EOF
    chmod 0755 "$bin/k3s-killall.sh"
}

write_uninstall() {
    say "Creating uninstall script $uninstall"
    cat >"$uninstall" <<EOF
#!/bin/sh
# Removes k3s and its data from this machine.
[ "\$(id -u)" -eq 0 ] || exec sudo --preserve-env=K3S_DATA_DIR "\$0" "\$@"
data=\${K3S_DATA_DIR:-$data}
K3S_DATA_DIR=\$data $bin/k3s-killall.sh
systemctl disable --quiet $system 2>/dev/null
systemctl reset-failed $system 2>/dev/null
rm -f $units/$service $environment
systemctl daemon-reload
EOF
    cat >>"$uninstall" <<EOF

for unit in $units/k3s*.service; do
    [ ! -e "\$unit" ] || { echo "Other units of k3s are installed, their data stays"; rm -f $uninstall; exit 0; }
done
for name in kubectl ctr; do
    [ "\$(readlink "$bin/\$name")" != k3s ] || rm -f "$bin/\$name"
done
# A folder that is a mount of its own is emptied and stays.
rm -rf /etc/rancher/k3s /run/k3s /run/flannel "\$data" /var/lib/kubelet /var/log/pods /var/log/containers 2>/dev/null
rmdir /etc/rancher 2>/dev/null
rm -rf /etc/rancher/node
rm -f $bin/k3s $bin/k3s-killall.sh $uninstall
exit 0
EOF
    chmod 0755 "$uninstall"
}

take_artefacts
[ -x "$bin/k3s" ] || die "$bin/k3s is not there, and INSTALL_K3S_ARTIFACT_PATH names no folder to take it from"
make_links
write_killall
write_uninstall
systemctl disable --quiet "$system" 2>/dev/null || true
write_unit "$@"

[ "${INSTALL_K3S_SKIP_ENABLE:-}" != true ] || exit 0
say "systemd: Enabling $system unit"
systemctl enable --quiet "$system"
[ "${INSTALL_K3S_SKIP_START:-}" != true ] || exit 0
say "systemd: Starting $system"
systemctl restart "$system"
