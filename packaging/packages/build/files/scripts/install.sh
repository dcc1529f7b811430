# mark_install is for the preinst of an installation: the package is not there, or was removed and not purged. The postinst cannot
# distinguish the latter from an upgrade.
mark_install() {
	if running; then : >"@ROOT@/run/$package.install"; fi
}

# installed_now reports in the postinst whether it is that of an installation, once.
installed_now() { [ -e "@ROOT@/run/$package.install" ] && rm -f "@ROOT@/run/$package.install"; }
