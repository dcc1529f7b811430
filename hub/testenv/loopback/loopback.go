// Package loopback finds addresses for programs and listeners that tests start.
package loopback

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
)

// given are the addresses that FreeAddress has returned: somebody may listen on one much later.
var given sync.Map

// FreeAddress finds an address of a loopback host for a listener that somebody else opens later, or again and again, and returns none
// twice. Its port is none of those that the kernel gives to outgoing connections: one of these may be taken by a connection before anybody
// listens. Nor is it one of those that Cluster API's Dev provider takes.
func FreeAddress(host string) (string, error) {
	for {
		address := fmt.Sprintf("%s:%d", host, 25000+rand.IntN(5000))
		if _, before := given.LoadOrStore(address, true); before {
			continue
		}
		l, err := net.Listen("tcp", address)
		if err == nil {
			return address, l.Close()
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return "", fmt.Errorf("looking for a free port: %w", err)
		}
	}
}
