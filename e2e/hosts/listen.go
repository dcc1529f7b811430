package hosts

import (
	"fmt"
	"net"
)

// Listen listens inside the host's network, on 127.0.0.1, for what is to look to the host as if it ran there. It works while the host is
// on or off, and goes on through a reboot.
func (h *Host) Listen() (net.Listener, error) { return listenIn(h.netns(), "127.0.0.1:0") }

// Listen listens on a port in the hub's network, for as long as this process lives.
func (l *Lab) Listen(port int) (net.Listener, error) {
	return listenIn(l.hubNS(), fmt.Sprintf("%s:%d", l.HubIP(), port))
}

func listenIn(ns, address string) (listener net.Listener, err error) {
	err = inNetns(ns, func() (err error) {
		listener, err = net.Listen("tcp", address)
		return err
	})
	return listener, err
}
