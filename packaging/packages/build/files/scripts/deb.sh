# act runs an action on the unit, if the policy of this system (policy-rc.d) allows it.
act() { deb-systemd-invoke "$1" "$unit"; }

# enable_unit enables the unit at the first installation, and later keeps what the administrator has chosen.
enable_unit() {
	deb-systemd-helper unmask "$unit" >/dev/null || :
	if deb-systemd-helper --quiet was-enabled "$unit"; then
		deb-systemd-helper enable "$unit" >/dev/null || :
	else
		deb-systemd-helper update-state "$unit" >/dev/null || :
	fi
}
