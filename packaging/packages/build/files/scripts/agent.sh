config=@ROOT@/etc/rancher/agent/config.yaml

# managed reports whether the service is the one of this package. The unit of an agent that system-agent-install.sh has installed is in /etc
# and takes precedence: that agent stays as it is until the script is run again.
managed() { [ ! -f "@ROOT@/etc/systemd/system/$unit" ]; }

report_unmanaged() {
	echo "$package: this system runs the agent of system-agent-install.sh; run \"/usr/bin/rancher-system-agent join\" to replace it" >&2
}

# start starts the agent of a machine that is registered. One that runs already is that of a package which this one replaces.
start() {
	[ -s "$config" ] || return 0
	if active; then
		unless_applying act restart
		return 0
	fi
	act start || echo "$package: $unit did not start; see journalctl -u $unit" >&2
}

# hand_over lets the running agent make way for the installed one: at a reload it finishes its plan and executes the new binary. An agent that
# cannot do that is restarted.
hand_over() {
	active || return 0
	! act reload || return 0
	unless_applying systemctl --no-block try-restart "$unit"
}

# unless_applying runs a command that restarts the agent, unless it is applying a plan.
unless_applying() {
	interlock=$(sed -n 's/^interlockDirectory:[[:space:]]*"\{0,1\}\(\/[^"]*\)"\{0,1\}[[:space:]]*$/\1/p' "$config" 2>/dev/null) || :
	interlock=${interlock:-@ROOT@/var/lib/rancher/agent/interlock}
	# First the announcement, then the look: of two that come at the same moment, at least one sees the other.
	[ ! -d "$interlock" ] || : >"$interlock/restart-pending"
	if [ -e "$interlock/applyinator-active" ]; then
		echo "$package: the agent is applying a plan; run \"systemctl restart $unit\" afterwards to run the new version" >&2
	else
		"$@" || :
	fi
	rm -f "$interlock/restart-pending"
}
