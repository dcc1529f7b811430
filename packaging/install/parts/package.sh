# A package of the agent (deb, rpm) owns its program and unit. This script then writes the configuration alone.

# find_package sets packaged to the program of the package, if there is one.
find_package() {
	marker=${CATTLE_AGENT_PACKAGE_MARKER:-/usr/lib/rancher-system-agent/packaged} packaged='' script_prefix=$prefix
	[ -e "$marker" ] || return 0
	packaged=$(sed -n 's|^program=\(/.*/bin/.*\)$|\1|p' "$marker" | tail -n 1)
	[ -x "${packaged:-/nonexistent}" ] || fail "$marker does not name the agent of a package; reinstall the package drover-agent"
	case ${CATTLE_AGENT_BIN_PREFIX:-${packaged%/bin/*}} in
	"${packaged%/bin/*}") ;;
	*) fail "CATTLE_AGENT_BIN_PREFIX is $CATTLE_AGENT_BIN_PREFIX, but the package drover-agent installed $packaged; remove the variable or the package" ;;
	esac
	prefix=${packaged%/bin/*}
	# The unit of an earlier installation by this script takes precedence over that of the package.
	[ -f "$unit_file" ] || keeps_journal=true
}

# unit_settings prints a drop-in for the package's unit, if the directories are not those that it names.
unit_settings() {
	[ "$config_dir $unit_dir" != "/etc/rancher/agent /etc/systemd/system" ] || return 0
	printf '[Unit]\nConditionPathExists=\nConditionPathExists=%s\n[Service]\nEnvironmentFile=-%s\n' "$config_dir/config.yaml" "$env_file"
}

# remove_unpackaged removes unit and programs of an earlier installation by this script, for which those of the package step in.
remove_unpackaged() {
	[ -f "$unit_file" ] || return 0
	# The links of the enabled unit name the file.
	systemctl disable "$SERVICE" >/dev/null 2>&1 </dev/null || :
	rm -f "$unit_file" || fail "Cannot remove $unit_file"
	[ "$script_prefix" != "$prefix" ] || return 0
	for name in system-agent rancher-system-agent system-agent-uninstall.sh rancher-system-agent-uninstall.sh; do
		rm -f "$script_prefix/bin/$name" || info "Cannot remove $script_prefix/bin/$name"
	done
}
