package hosts

import (
	"errors"
	"os"
	"path/filepath"
)

// Where Debian has what its SSH server is started by, and its keys.
const (
	sshUnit  = "/lib/systemd/system/ssh.service"
	sshWants = "/etc/systemd/system/multi-user.target.wants/ssh.service"
	sshAlias = "/etc/systemd/system/sshd.service"
	sshKeys  = "/etc/ssh/ssh_host_*_key*"
)

// disableSSH takes from a base image what its SSH server is started by, and the keys, which all hosts would share.
func disableSSH(root string) error {
	keys, err := filepath.Glob(root + sshKeys)
	if err != nil {
		return err
	}
	for _, path := range append(keys, root+sshWants, root+sshAlias) {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// enableSSH has the host start an SSH server with keys of its own, at which a key logs in as root.
func (h *Host) enableSSH(authorizedKey string) error {
	err := h.writeFiles(map[string]string{
		"/root/.ssh/authorized_keys":                 authorizedKey,
		"/etc/systemd/system/ssh.service.d/lab.conf": "[Service]\nExecStartPre=\nExecStartPre=/usr/bin/ssh-keygen -A\n",
	})
	if err != nil {
		return err
	}
	link := h.Path(sshWants)
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		return err
	}
	return replaceLink(sshUnit, link)
}
