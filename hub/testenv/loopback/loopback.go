// Package loopback finds addresses for programs and listeners that tests start.
package loopback

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// given has a UDP socket for each address that FreeAddress has returned, which other test binaries that run at the same time find taken:
// somebody may listen on the address much later, or again and again.
var given sync.Map

// FreeAddress finds an address of a loopback host, or of all with 0.0.0.0, for a TCP listener that somebody else opens later, and returns
// none twice, nor one that it returned in another process that still runs. Its port is none of those that the kernel gives to outgoing
// connections: one of these may be taken by a connection before anybody listens. Nor is it one of those that Cluster API's Dev provider
// takes.
func FreeAddress(host string) (string, error) {
	for {
		address := net.JoinHostPort(host, strconv.Itoa(25000+rand.IntN(5000)))
		reserved, err := net.ListenPacket("udp", address)
		if err == nil {
			given.Store(address, reserved)
			// A connection, not a listener, finds out whether somebody listens: see Listen.
			var conn net.Conn
			if conn, err = net.DialTimeout("tcp", address, time.Second); errors.Is(err, syscall.ECONNREFUSED) {
				return address, nil
			}
			if err == nil {
				_ = conn.Close()
			}
			if err == nil || os.IsTimeout(err) {
				continue // somebody listens
			}
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return "", fmt.Errorf("looking for a free port: %w", err)
		}
	}
}

// Listen listens on an address where a listener of this process was just closed. A program that the process starts at that time has the
// listener, too, between fork and exec, and the address is in use for some more milliseconds: Listen waits until it is free, for ten
// seconds at most.
func Listen(address string) (net.Listener, error) {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		listener, err := net.Listen("tcp", address)
		if err == nil || !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(deadline) {
			return listener, err
		}
	}
}
