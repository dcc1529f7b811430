package hosts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// writeHostsFiles tells every host the names of all: there is no DNS in a lab.
func (l *Lab) writeHostsFiles() error {
	// Whoever writes last must be the one who read last.
	unlock, err := l.lockLedger()
	if err != nil {
		return err
	}
	defer unlock()
	hosts := l.Hosts()
	lines := []string{"127.0.0.1 localhost", "::1 localhost ip6-localhost", l.HubIP().String() + " hub"}
	for _, h := range hosts {
		lines = append(lines, h.ip.String()+" "+h.Name)
	}
	text := []byte(strings.Join(lines, "\n") + "\n")
	for _, h := range hosts {
		if !isMounted(h.root()) {
			continue
		}
		err := os.WriteFile(filepath.Join(h.root(), "etc/hosts"), text, 0o644)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a host that is being removed needs none
			return fmt.Errorf("writing the names of the lab: %w", err)
		}
	}
	return nil
}
