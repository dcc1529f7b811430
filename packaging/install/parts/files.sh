# Puts files in place.

# for_each_file COMMAND calls COMMAND MODE STAGED TARGET for every file of the installation.
for_each_file() {
	if [ -z "$packaged" ]; then
		"$1" 0755 "$work/system-agent" "$bin_dir/system-agent"
		"$1" 0755 "$work/uninstall.sh" "$bin_dir/system-agent-uninstall.sh"
	fi
	"$1" 0600 "$work/config.yaml" "$config_dir/config.yaml"
	[ -z "$connection" ] || "$1" 0600 "$connection" "$connection_file"
	"$1" 0600 "$work/env" "$unit_dir/$SERVICE.env"
	if [ -z "$packaged" ]; then
		"$1" 0644 "$work/unit" "$unit_dir/$SERVICE.service"
	elif [ -s "$work/drop-in" ]; then
		"$1" 0644 "$work/drop-in" "$drop_in"
	fi
}

changed=
compare() { same "$2" "$3" || changed=true; }

# stage MODE STAGED TARGET copies STAGED to TARGET.new, since a rename works within one file system only, unless TARGET is the same.
new_files=
stage() {
	new_files="$new_files $3.new"
	rm -f "$3.new"
	if ! same "$2" "$3" && ! { cp "$2" "$3.new" && chmod "$1" "$3.new"; }; then fail "Cannot write $3"; fi
}

# put MODE STAGED TARGET replaces TARGET atomically.
put() {
	case "$new_files " in *" $3.new "*) ;; *) stage "$@" ;; esac
	[ ! -e "$3.new" ] || mv -f "$3.new" "$3" || fail "Cannot write $3"
	chmod "$1" "$3" && chown 0:0 "$3"
	label "$3"
}

# put_names writes files with the names that other tools use: the agent's is a script that runs it. They are not links, since the script of
# rancher-system-agent writes to these names, and would write through a link into the binary that the unit of this agent starts.
put_names() {
	[ -z "$packaged" ] || return 0
	printf '#!/bin/sh\nexec %s/system-agent "$@"\n' "$bin_dir" >"$work/named-agent"
	put_name "$work/named-agent" "$bin_dir/rancher-system-agent"
	put_name "$work/uninstall.sh" "$bin_dir/rancher-system-agent-uninstall.sh"
}

# put_name STAGED TARGET replaces TARGET, also if it is a link of an earlier installation.
put_name() {
	[ ! -L "$2" ] || rm -f "$2" || fail "Cannot remove the link $2"
	put 0755 "$1" "$2"
}

# announce_restart prints the time of the announcement and, for agents that support it, the process that makes it: a killed process cannot
# remove its announcement.
announce_restart() {
	LC_ALL=C date '+%a %b %e %H:%M:%S %Z %Y'
	printf 'pid=%s start=%s boot=%s\n' "$$" "$(sed 's/.*) //' "/proc/$$/stat" | cut -d ' ' -f 20)" "$(cat /proc/sys/kernel/random/boot_id)"
}

# hold_agent asks a running agent to start no further plan, and waits for the current one.
hold_agent() {
	make_dir 0700 "$interlock_dir" || fail "Cannot create $interlock_dir"
	systemctl is-active --quiet "$SERVICE" </dev/null || return 0
	announce_restart >"$interlock_dir/restart-pending"
	waited=0
	while [ -e "$interlock_dir/applyinator-active" ]; do
		if [ "$waited" -ge 300 ]; then
			[ -n "$keeps_journal" ] || fail "The running agent has been applying a plan for 5 minutes; run this script again later"
			info "The running agent is still applying its plan, and continues with it after the restart"
			return 0
		fi
		[ "$waited" != 0 ] || info "Waiting up to 5 minutes for the running agent to finish its plan"
		sleep 5
		waited=$((waited + 5))
	done
}

# sync_disk runs before files are replaced and before the service starts: after a power cut at that moment, the machine must not boot with
# half an agent. Only the agent's file systems are synced: one whose server is gone would hold up this script forever. A version of sync
# that cannot do that syncs all.
sync_disk() {
	sync -f "$bin_dir" "$config_dir" "$unit_dir" "${connection_file%/*}" 2>/dev/null || sync ||
		fail "Cannot sync the installed files to disk"
}

# enable_service fails where the unit is masked, or where another program has a unit with the name of the alias, system-agent.service.
enable_service() {
	systemctl enable "$SERVICE" >"$work/enable" 2>&1 </dev/null ||
		fail "Cannot enable the service $SERVICE: $(one_line <"$work/enable")"
}

put_in_place() {
	write_config >"$work/config.yaml"
	write_env >"$work/env"
	CATTLE_LOGLEVEL=$level "$work/system-agent" validate-config "$work/config.yaml" >"$work/validate" 2>&1 </dev/null ||
		fail "The configuration is invalid: $(one_line <"$work/validate"); nothing was installed"
	unit_template | sed -e "s|@BIN_DIR@|$bin_dir|g" -e "s|@UNIT_DIR@|$unit_dir|g" >"$work/unit"
	unit_settings >"$work/drop-in"
	drop_in=$unit_dir/$SERVICE.service.d/10-directories.conf
	for_each_file compare
	[ -z "$packaged" ] || [ ! -f "$unit_file" ] || changed=true
	# An earlier run has written files, and was interrupted before the restart. The running agent may be another one than the unit's.
	pending=$config_dir/install-pending
	[ ! -e "$pending" ] || changed=true keeps_journal=''
	if [ -z "$changed" ] && systemctl is-active --quiet "$SERVICE" </dev/null; then
		put_names
		info "The agent is installed and running, nothing changed"
		return 0
	fi
	for folder in "$config_dir" "$var_dir"; do
		mode=0700
		# A directory that is not named after the agent may be used by others, too. They must not replace what root reads and runs from it.
		case $folder in */agent | */agent/var) ;; *) [ ! -d "$folder" ] || mode=u+rwx,go-w ;; esac
		if ! make_dir 0700 "$folder" || ! chmod "$mode" "$folder"; then fail "Cannot create $folder"; fi
	done
	make_dir 0755 "$unit_dir" || fail "Cannot create $unit_dir"
	[ -z "$packaged" ] || [ ! -s "$work/drop-in" ] || make_dir 0755 "${drop_in%/*}" || fail "Cannot create the directory of $drop_in"
	# Nothing is replaced before all of it has fit on the disk and is there, for a full disk or a power cut.
	for_each_file stage
	sync_disk
	# cleanup removes any announcement of a restart, since the restart follows now.
	interlock=$interlock_dir
	[ -z "$changed" ] || hold_agent
	finished=true
	[ -z "$odd_config" ] || cp "$odd_config" "$odd_config.before" || fail "Cannot write $odd_config.before"
	touch "$pending" || fail "Cannot write $pending"
	for_each_file put
	put_names
	[ -z "$packaged" ] || remove_unpackaged
	if [ -n "$transaction" ]; then
		enable_service
		rm -f "$pending"
		sync_disk
		info "The agent is installed; it starts when the machine boots into this transaction"
		return 0
	fi
	systemctl daemon-reload </dev/null || fail "systemctl daemon-reload failed"
	enable_service
	sync_disk
	info "Starting the service $SERVICE"
	systemctl restart "$SERVICE" </dev/null || fail "The service $SERVICE did not start; see journalctl -u $SERVICE"
	rm -f "$pending"
	info "The agent is running; follow its log with journalctl -u $SERVICE -f"
}
