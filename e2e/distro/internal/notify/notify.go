// Package notify tells systemd how this process does.
package notify

import (
	"fmt"
	"net"
	"os"
)

// Ready tells systemd that the unit has started.
func Ready() error {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return nil
	}
	conn, err := net.Dial("unixgram", socket)
	if err != nil {
		return fmt.Errorf("telling systemd that this unit is ready: %w", err)
	}
	defer conn.Close()
	_, err = conn.Write([]byte("READY=1\n"))
	return err
}
