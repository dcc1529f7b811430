package server

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/drover-dev/drover/e2e/distro/internal/bootstrap"
	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
	"github.com/drover-dev/drover/e2e/distro/internal/pki"
)

const (
	// passwordsName is the file with the passwords of servers and agents, which the cluster's data has, too.
	passwordsName = "cred/passwd"
	// passwordsTime is the name of the time at which that file was written, in the cluster's data. k3s has the time of each file there; the
	// others change with the data only.
	passwordsTime = "cred/passwd.time"
	// passwordsSkew is by how much the file of a server may be newer than the cluster's.
	passwordsSkew = 3 * time.Second
)

func (s *server) passwordsFile() string { return s.data.Server(filepath.FromSlash(passwordsName)) }

// passwords is the content of the file for tokens.
func passwords(t tokens) []byte {
	return []byte(flavour.Name(t.agent + ",node,node,*:agent\n" + t.server + ",server,server,*:server\n"))
}

// writePasswords has the file say what the configuration does. It is not written to the cluster's data, as k3s does not: a server whose
// token of agents is another one starts once, and refuses to start after that.
func (s *server) writePasswords() error {
	want := passwords(*s.tokens.Load())
	if have, err := os.ReadFile(s.passwordsFile()); err == nil && bytes.Equal(have, want) {
		return nil
	}
	return pki.WriteFile(s.passwordsFile(), want, 0o600)
}

// takePasswords takes the file over from the cluster's data, unless that of this server is newer.
func (s *server) takePasswords(files bootstrap.Files) error {
	raw, there := files[passwordsName]
	if !there {
		return nil
	}
	at, err := time.Parse(time.RFC3339, string(files[passwordsTime]))
	if err != nil {
		return fmt.Errorf("the time of %s: %w", passwordsName, err)
	}
	have, err := os.ReadFile(s.passwordsFile())
	if err == nil && bytes.Equal(have, raw) {
		return nil
	}
	if info, err := os.Stat(s.passwordsFile()); err == nil && !s.ClusterReset && info.ModTime().Sub(at) >= passwordsSkew {
		return fmt.Errorf("%s newer than datastore and could cause a cluster outage. Remove the file(s) from disk and restart to be "+
			"recreated from datastore", s.passwordsFile())
	}
	if err := pki.WriteFile(s.passwordsFile(), raw, 0o600); err != nil {
		return err
	}
	return os.Chtimes(s.passwordsFile(), at, at)
}

// addPasswords puts this server's file among those for the cluster's data.
func (s *server) addPasswords(files bootstrap.Files) error {
	raw, err := os.ReadFile(s.passwordsFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	info, err := os.Stat(s.passwordsFile())
	if err != nil {
		return err
	}
	files[passwordsName], files[passwordsTime] = raw, []byte(info.ModTime().UTC().Format(time.RFC3339))
	return nil
}

// rotatedPasswords is the file with another password of servers, and of agents where they have the same and no token of their own.
func (s *server) rotatedPasswords(secret string) ([]byte, error) {
	raw, err := os.ReadFile(s.passwordsFile())
	if err != nil {
		return nil, err
	}
	server, node := []byte(flavour.Name(",server,server,*:server")), []byte(flavour.Name(",node,node,*:agent"))
	lines := bytes.Split(raw, []byte("\n"))
	old := s.tokens.Load().server
	for i, line := range lines {
		switch {
		case bytes.HasSuffix(line, server):
			lines[i] = slices.Concat([]byte(secret), server)
		case s.AgentToken == "" && bytes.Equal(line, slices.Concat([]byte(old), node)):
			lines[i] = slices.Concat([]byte(secret), node)
		}
	}
	return bytes.Join(lines, []byte("\n")), nil
}
