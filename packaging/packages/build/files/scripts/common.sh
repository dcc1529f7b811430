unit=@UNIT@
package=@PACKAGE@

# running reports whether systemd runs this system. It does not in a chroot or while an image is built; inside of a transactional-update the
# files belong to the next boot, and the services of this one stay as they are.
running() { [ -d "@ROOT@/run/systemd/system" ] && [ -z "${TRANSACTIONAL_UPDATE:-}" ]; }

reload_units() {
	if running; then systemctl daemon-reload || :; fi
}

active() { systemctl --quiet is-active "$unit"; }
