package hosts

import "net"

// Listen listens inside the host's network, on 127.0.0.1, for what is to look to the host as if it ran there. It works while the host is
// on or off, and goes on through a reboot.
func (h *Host) Listen() (net.Listener, error) {
	var listener net.Listener
	err := inNetns(h.netns(), func() (err error) {
		listener, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	})
	return listener, err
}
