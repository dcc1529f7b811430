#!/bin/sh
# Removes the system-agent that system-agent-install.sh installed: service, binary, configuration, identity and data. What plans
# have installed on the machine, such as RKE2 or k3s, is not removed.
set -eu

SERVICE=rancher-system-agent
hex='[0-9a-f]'
half=$hex$hex$hex$hex$hex$hex
# Programs of plans of the hub, and of local plans.
RUNS="system-agent-$half$half-*.service"
LOCAL_RUNS="system-agent-$half-$half$half-*.service"

usage() {
	cat <<'USAGE'
Usage: system-agent-uninstall.sh

Removes the system-agent from this machine. The directories are those of the installation; these variables override them:
  CATTLE_AGENT_CONFIG_DIR   /etc/rancher/agent
  CATTLE_AGENT_VAR_DIR      /var/lib/rancher/agent, or /etc/rancher/agent/var
  CATTLE_AGENT_BIN_PREFIX   /usr/local, /opt/rancher-system-agent or /usr
  CATTLE_AGENT_UNIT_DIR     /etc/systemd/system
  CATTLE_AGENT_PACKAGE_MARKER  /usr/lib/rancher-system-agent/packaged; what a package of the agent has installed stays while it exists
USAGE
}

info() { printf '[INFO]  %s\n' "$*"; }
fail() {
	printf '[ERROR] %s\n' "$*" >&2
	exit 1
}

# installed NAME prints the value that the installation recorded for NAME.
installed() { [ ! -r "$env_file" ] || sed -n "s/^$1=\"\{0,1\}\([^\"]*\)\"\{0,1\}\$/\1/p" "$env_file" | tail -n 1; }

# find_folders sets the directories: those of the caller, those that were recorded, or those from the unit and the configuration of a
# rancher-system-agent.
find_folders() {
	env_file=$unit_dir/$SERVICE.env unit_file=$unit_dir/$SERVICE.service
	config_dir=${CATTLE_AGENT_CONFIG_DIR:-$(installed CATTLE_AGENT_CONFIG_DIR)}
	config_dir=${config_dir:-/etc/rancher/agent}
	var_dir=${CATTLE_AGENT_VAR_DIR:-$(installed CATTLE_AGENT_VAR_DIR)}
	config=$config_dir/config.yaml
	[ -n "$var_dir" ] || [ ! -r "$config" ] ||
		var_dir=$(sed -n 's|^connectionInfoFile:[[:space:]]*"\{0,1\}\(/.*\)/rancher2_connection_info\.json"\{0,1\}[[:space:]]*$|\1|p' "$config" | tail -n 1)
	if [ -z "$var_dir" ]; then
		var_dir=/var/lib/rancher/agent
		[ -d "$var_dir" ] || [ ! -d /etc/rancher/agent/var ] || var_dir=/etc/rancher/agent/var
	fi
	# Of another directory than that of data, which the operator has configured.
	cache_dir=
	[ ! -r "$config" ] ||
		cache_dir=$(sed -n 's|^imageCacheDirectory:[[:space:]]*"\{0,1\}\(/[^"]*[^"/[:space:]]\)/*"\{0,1\}[[:space:]]*$|\1|p' "$config" | tail -n 1)
	prefix=${CATTLE_AGENT_BIN_PREFIX:-$(installed CATTLE_AGENT_BIN_PREFIX)}
	[ -n "$prefix" ] || [ ! -r "$unit_file" ] || prefix=$(sed -n 's|^ExecStart=\(/.*\)/bin/[a-z-]*system-agent .*|\1|p' "$unit_file" | tail -n 1)
	for found in /usr/local /opt/rancher-system-agent /usr; do
		[ -n "$prefix" ] || [ ! -e "$found/bin/rancher-system-agent" ] || prefix=$found
	done
	prefix=${prefix:-/usr/local}
	# What a package has installed, the package manager removes.
	marker=${CATTLE_AGENT_PACKAGE_MARKER:-/usr/lib/rancher-system-agent/packaged} packaged=''
	[ ! -e "$marker" ] || packaged=$(sed -n 's|^program=||p' "$marker" | tail -n 1)
	[ ! -e "$marker" ] || packaged=${packaged:-/usr/bin/rancher-system-agent}
}

# check_dir DIR fails for a directory close to the root, or of the system.
check_dir() {
	case $1 in
	*/../* | */.. | *//*) fail "Refusing to remove $1: the path must not contain .. or //" ;;
	/etc/*/?* | /usr/*/?* | /var/*/?* | /home/*/?*) ;;
	/etc/* | /usr/* | /var/* | /home/*) fail "Refusing to remove $1: it does not belong to the agent" ;;
	/*/?*) ;;
	*) fail "Refusing to remove $1: it is not two levels deep" ;;
	esac
}

# remove_dir DIR removes a directory of the agent.
remove_dir() {
	check_dir "$1"
	[ -d "$1" ] || return 0
	rm -rf -- "$1" || fail "Cannot remove $1"
	info "Removed $1"
}

# remove_own DIR NAME... removes a directory of the agent. One that is not named after the agent, such as /mnt/data, may hold files of
# others: only the NAMEs, which the agent and its install script have written, are removed from it, and the directory if nothing is left.
remove_own() {
	case $1 in */agent | */agent/var | */rancher-system-agent) remove_dir "$1" && return 0 ;; esac
	folder=$1
	shift
	check_dir "$folder"
	[ -d "$folder" ] || return 0
	for name in "$@"; do
		rm -rf -- "${folder:?}/$name" || fail "Cannot remove $folder/$name"
	done
	if rmdir -- "$folder" 2>/dev/null; then
		info "Removed $folder"
	else
		info "Removed the files of the agent in $folder; left in place: everything else in it"
	fi
}

remove_file() {
	[ -e "$1" ] || [ -L "$1" ] || return 0
	if rm -f -- "$1"; then
		info "Removed $1"
	else
		# For example programs in a read-only /usr; everything else is removed first.
		left="$left $1"
	fi
}

# say_left lists what plans may have installed and this script does not remove.
say_left() {
	[ -z "$packaged" ] || info "The package drover-agent is still installed; remove it with the package manager"
	for path in /etc/default/$SERVICE /etc/sysconfig/$SERVICE /etc/rancher/rke2 /etc/rancher/k3s /var/lib/rancher/rke2 /var/lib/rancher/k3s; do
		[ ! -e "$path" ] || info "Left in place: $path"
	done
	for script in rke2-uninstall.sh k3s-uninstall.sh k3s-agent-uninstall.sh; do
		! command -v "$script" >/dev/null 2>&1 || info "Kubernetes is still installed; $script removes it"
	done
	info "The hub still has this machine until its Machine is deleted there"
}

main() {
	case ${1:-} in
	-h | --help) usage && exit 0 ;;
	?*) fail "Argument $1 is unexpected; see --help" ;;
	esac
	[ "$(id -u)" = 0 ] || fail "This script must be run as root"
	unit_dir=${CATTLE_AGENT_UNIT_DIR:-/etc/systemd/system}
	left=
	find_folders

	if command -v systemctl >/dev/null 2>&1; then
		if [ -e "$unit_dir/$SERVICE.service" ] || [ -n "$packaged" ]; then
			systemctl stop "$SERVICE" </dev/null || fail "Cannot stop the service $SERVICE"
			systemctl disable "$SERVICE" >/dev/null 2>&1 </dev/null || :
		fi
		# Programs of plans that outlive the agent: their run directories are removed now.
		systemctl stop "$RUNS" "$LOCAL_RUNS" >/dev/null 2>&1 </dev/null || :
		systemctl reset-failed "$SERVICE" >/dev/null 2>&1 </dev/null || :
		# An upgrade of the agent that has not been committed yet.
		[ ! -e "$unit_dir/$SERVICE-rollback.timer" ] || systemctl stop "$SERVICE-rollback.timer" >/dev/null 2>&1 </dev/null || :
	fi
	for unit in timers.target.wants/$SERVICE-rollback.timer $SERVICE-rollback.timer $SERVICE-rollback.service; do
		remove_file "$unit_dir/$unit"
	done
	remove_file "$unit_dir/$SERVICE.service"
	[ ! -L "$unit_dir/system-agent.service" ] || remove_file "$unit_dir/system-agent.service"
	# Those with .new are of runs of the install script that were killed.
	remove_own "$var_dir" applied interlock state work rancher2_connection_info.json rancher2_connection_info.json.new
	# Inside of a transaction, the install script leaves to the agent to create this one.
	[ "$var_dir" != /etc/rancher/agent/var ] || remove_dir /var/lib/rancher/agent
	[ -z "$cache_dir" ] || remove_dir "$cache_dir/layers"
	remove_own "$config_dir" config.yaml config.yaml.before config.yaml.new cattle-id cattle-id.new machine-secret machine-secret.new \
		install-pending
	if [ "$prefix/bin" != "${packaged%/*}" ]; then
		remove_file "$prefix/bin/rancher-system-agent"
		remove_file "$prefix/bin/system-agent"
		remove_file "$prefix/bin/rancher-system-agent-uninstall.sh"
		remove_file "$prefix/bin/system-agent-uninstall.sh"
		remove_dir "$prefix/bin/system-agent-versions"
		# Of runs of the install script that were killed.
		for folder in "$prefix"/bin/.system-agent-install.*; do remove_dir "$folder"; done
	fi
	remove_file "$unit_dir/$SERVICE.service.d/10-directories.conf"
	rmdir "$unit_dir/$SERVICE.service.d" 2>/dev/null || :
	# Last, since it contains the directories if this script is interrupted and run again.
	remove_file "$unit_dir/$SERVICE.env"
	! command -v systemctl >/dev/null 2>&1 || systemctl daemon-reload </dev/null || :
	case $prefix in */rancher-system-agent) rmdir "$prefix/bin" "$prefix" 2>/dev/null || : ;; esac
	[ -z "$left" ] || fail "Cannot remove these files; in a transactional-update it may be possible:$left"
	say_left
}

main "$@"
