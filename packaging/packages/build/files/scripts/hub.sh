# create_user creates the user of the service.
create_user() {
	! command -v systemd-sysusers >/dev/null 2>&1 || systemd-sysusers drover-hub.conf
}
