#!/bin/sh
# Installs k3s on a machine from the artefacts that lie beside this script, then starts or restarts it as the plan asks.
#
# From the plan: RESTART_STAMP, INSTALL_K3S_EXEC (server or agent, with arguments), INSTALL_K3S_SKIP_START and
# INSTALL_K3S_SKIP_ENABLE (true: install only), K3S_DATA_DIR. Every other INSTALL_K3S_* reaches the release's install
# script, which also keeps K3S_*, CONTAINERD_* and the proxy variables for the unit, in
# /etc/systemd/system/<unit>.service.env. DRAIN_HASH is for the hub only.
set -eu

RUNTIME=k3s
ROOT=${INSTALLER_ROOT:-}
ARTEFACTS=${CATTLE_AGENT_EXECUTION_PWD:-$(cd "$(dirname "$0")" && pwd)}
# shellcheck source=../shell/lib.sh
. "$ARTEFACTS/lib.sh"

# find_unit EXEC... sets UNIT and OTHER from the command that k3s is to run as.
find_unit() {
    role=${1:-}
    case "$role" in
        "" | -*)
            role=server
            [ -z "${K3S_URL:-}" ] || role=agent
            ;;
    esac
    UNIT=k3s.service
    OTHER=k3s-agent
    case "$role" in
        server) ;;
        agent)
            UNIT=k3s-agent.service
            OTHER=k3s
            ;;
        *) die "INSTALL_K3S_EXEC must begin with server or agent, not with $role" ;;
    esac
    if [ -n "${INSTALL_K3S_NAME:-}" ]; then
        UNIT=k3s-$INSTALL_K3S_NAME.service
        OTHER=
    fi
}

need_tools systemctl sha256sum mktemp
find_arch
# shellcheck disable=SC2086 # a command line, to be split
find_unit ${INSTALL_K3S_EXEC:-} "$@"
[ -z "$OTHER" ] || stop_on_other_role "$OTHER" "$OTHER-uninstall.sh"

bin_dir=${INSTALL_K3S_BIN_DIR:-}
if [ -z "$bin_dir" ]; then
    bin_dir=$ROOT/usr/local/bin
    writable "$bin_dir" || bin_dir=$ROOT/opt/bin
fi
writable "$bin_dir" || die "cannot write to $bin_dir: set INSTALL_K3S_BIN_DIR to a folder that can be written"
[ -f "$ARTEFACTS/k3s" ] || die "the image has no k3s"
check_sum "$ARTEFACTS/k3s" k3s "k3s-$ARCH"
place "$ARTEFACTS/k3s" "$bin_dir/k3s" 0755
place_images "*images*$ARCH.tar*" "${K3S_DATA_DIR:-$ROOT/var/lib/rancher/k3s}/agent/images"

# The release's script is told to leave the unit alone: it disables the unit first and never enables it again then.
was_enabled=false
! systemctl is-enabled --quiet "$UNIT" 2>/dev/null || was_enabled=true
INSTALL_K3S_BIN_DIR=$bin_dir INSTALL_K3S_SKIP_DOWNLOAD=true INSTALL_K3S_SKIP_ENABLE=true INSTALL_K3S_SKIP_START=true \
    INSTALL_K3S_SKIP_SELINUX_RPM=true INSTALL_K3S_SELINUX_WARN=true run_release_installer "$@"
systemctl daemon-reload || die "systemd cannot read its units again"
environment=${INSTALL_K3S_SYSTEMD_DIR:-$ROOT/etc/systemd/system}/$UNIT.env
PROGRAMS=$bin_dir

if [ "${INSTALL_K3S_SKIP_START:-}" = true ] || [ "${INSTALL_K3S_SKIP_ENABLE:-}" = true ]; then
    [ "$was_enabled" = false ] || systemctl enable --quiet "$UNIT" || die "cannot enable $UNIT"
    make_durable "$environment"
    log "installed only, $UNIT is left as it is"
    exit 0
fi
apply_restart_stamp "$environment"
