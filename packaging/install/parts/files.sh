# What is put in place, and how.

# for_each_file COMMAND calls COMMAND MODE STAGED TARGET for every file of the installation.
for_each_file() {
	"$1" 0755 "$work/system-agent" "$bin_dir/system-agent"
	"$1" 0755 "$work/uninstall.sh" "$bin_dir/system-agent-uninstall.sh"
	"$1" 0600 "$work/config.yaml" "$config_dir/config.yaml"
	[ -z "$connection" ] || "$1" 0600 "$connection" "$connection_file"
	"$1" 0600 "$work/env" "$unit_dir/$SERVICE.env"
	"$1" 0644 "$work/unit" "$unit_dir/$SERVICE.service"
}

changed=
compare() { same "$2" "$3" || changed=true; }

# put MODE STAGED TARGET replaces TARGET whole. The temporary file is beside it, since a rename works in one file system only.
put() {
	if ! same "$2" "$3"; then
		rm -f "$3.new"
		if ! cp "$2" "$3.new" || ! chmod "$1" "$3.new" || ! mv -f "$3.new" "$3"; then
			fail "The file $3 cannot be written"
		fi
	fi
	chmod "$1" "$3" && chown 0:0 "$3"
	! have restorecon || restorecon -F "$3" >/dev/null 2>&1 </dev/null || :
}

# put_names puts files under the names that other tools know: the agent's is a script that runs it. They are no links, since the script of
# rancher-system-agent writes to these names, and would write through a link into what the unit of this agent starts.
put_names() {
	printf '#!/bin/sh\nexec %s/system-agent "$@"\n' "$bin_dir" >"$work/named-agent"
	put_name "$work/named-agent" "$bin_dir/rancher-system-agent"
	put_name "$work/uninstall.sh" "$bin_dir/rancher-system-agent-uninstall.sh"
}

# put_name STAGED TARGET replaces what is there, a link of an earlier installation as well.
put_name() {
	[ ! -L "$2" ] || rm -f "$2" || fail "The link $2 cannot be removed"
	put 0755 "$1" "$2"
}

# announce_restart says since when a restart is announced and, for an agent that knows, which process stands behind that: one that was
# killed cannot take its word back.
announce_restart() {
	LC_ALL=C date '+%a %b %e %H:%M:%S %Z %Y'
	printf 'pid=%s start=%s boot=%s\n' "$$" "$(sed 's/.*) //' "/proc/$$/stat" | cut -d ' ' -f 20)" "$(cat /proc/sys/kernel/random/boot_id)"
}

# hold_agent asks a running agent to begin no further plan, and waits for the one that it is applying.
hold_agent() {
	make_dir 0700 "$interlock_dir" || fail "The folder $interlock_dir cannot be made"
	systemctl is-active --quiet "$SERVICE" </dev/null || return 0
	announce_restart >"$interlock_dir/restart-pending"
	waited=0
	while [ -e "$interlock_dir/applyinator-active" ]; do
		if [ "$waited" -ge 300 ]; then
			[ -n "$keeps_journal" ] || fail "The running agent has been applying a plan for 5 minutes; run this again later"
			info "The running agent still applies its plan, and goes on with it after the restart"
			return 0
		fi
		[ "$waited" != 0 ] || info "Waiting up to 5 minutes for the running agent to finish its plan"
		sleep 5
		waited=$((waited + 5))
	done
}

# sync_disk comes before the service starts: a machine whose power is cut then must not come up with half an agent.
sync_disk() { sync || fail "The installed files cannot be synced to the disk"; }

put_in_place() {
	write_config >"$work/config.yaml"
	write_env >"$work/env"
	"$work/system-agent" validate-config "$work/config.yaml" >"$work/validate" 2>&1 </dev/null ||
		fail "The configuration cannot be used: $(one_line <"$work/validate"); nothing was installed"
	unit_template | sed -e "s|@BIN_DIR@|$bin_dir|g" -e "s|@UNIT_DIR@|$unit_dir|g" >"$work/unit"
	for_each_file compare
	if [ -z "$changed" ] && systemctl is-active --quiet "$SERVICE" </dev/null; then
		put_names
		info "The agent is installed and running, nothing changed"
		return 0
	fi
	for folder in "$config_dir" "$var_dir"; do
		if ! make_dir 0700 "$folder" || ! chmod 0700 "$folder"; then fail "The folder $folder cannot be made"; fi
	done
	make_dir 0755 "$unit_dir" || fail "The folder $unit_dir cannot be made"
	# Whoever has announced a restart: with the one to come it is over.
	interlock=$interlock_dir
	[ -z "$changed" ] || hold_agent
	finished=true
	[ -z "$odd_config" ] || cp "$odd_config" "$odd_config.before" || fail "The file $odd_config.before cannot be written"
	for_each_file put
	put_names
	if [ -n "$transaction" ]; then
		systemctl enable "$SERVICE" >/dev/null 2>&1 </dev/null || fail "The service $SERVICE cannot be enabled"
		sync_disk
		info "The agent is installed; it starts when the machine boots into this transaction"
		return 0
	fi
	systemctl daemon-reload </dev/null || fail "systemctl daemon-reload failed"
	systemctl enable "$SERVICE" >/dev/null 2>&1 </dev/null || fail "The service $SERVICE cannot be enabled"
	sync_disk
	info "Starting the service $SERVICE"
	systemctl restart "$SERVICE" </dev/null || fail "The service $SERVICE does not start; journalctl -u $SERVICE tells why"
	info "The agent is running; journalctl -u $SERVICE -f shows what it does"
}
