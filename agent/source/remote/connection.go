package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/host/fs"
)

// connectionFileInterval is how often the connection info is read without an event, for changes that inotify does not report.
const connectionFileInterval = 15 * time.Second

// errReplaced is returned when the connection info has been replaced and must be read before anything else.
var errReplaced = errors.New("the connection info has been replaced")

// connect returns a client of the connection info as it is on disk now: the present one if it is of that.
func (s *Source) connect() (*client, error) {
	connection, raw, err := config.ReadConnection(s.ConnectionFile)
	if err != nil {
		return nil, err
	}
	if present := s.current(); present != nil && bytes.Equal(present.file, raw) {
		return present, nil
	}
	return newClient(connection, raw, s.Options)
}

// reconnect reads the connection info again. If it is invalid, the client stays as it is.
func (s *Source) reconnect() {
	client, err := s.connect()
	if err != nil {
		s.Log.Warn("Reading the connection info failed, keeping the previous one", "error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client.namespace != client.namespace || s.client.name != client.name {
		s.latest = nil
	}
	s.client = client
}

// watchConnectionFile signals replaced when somebody replaces the connection info, so that a machine that registers again need not wait for
// the end of a watch or of a delay. Each valid content is signaled once. Where the directory cannot be watched, the file is read from time
// to time.
func (s *Source) watchConnectionFile(ctx context.Context) {
	var events chan fsnotify.Event
	var errs chan error
	if w, err := fsnotify.NewWatcher(); err == nil {
		defer w.Close()
		// The directory, since files are replaced by renaming.
		if err := w.Add(filepath.Dir(s.ConnectionFile)); err == nil {
			events, errs = w.Events, w.Errors
		}
	}
	poll := time.NewTicker(connectionFileInterval)
	defer poll.Stop()
	for known := s.current().file; ; {
		if raw := s.otherConnection(known); raw != nil {
			known = raw
			signal(s.replaced)
		}
		for changed := false; !changed; {
			select {
			case <-ctx.Done():
				return
			case event := <-events:
				changed = filepath.Base(event.Name) == filepath.Base(s.ConnectionFile)
			case err := <-errs: // events were lost
				s.Log.Debug("Watching failed, reading again", "error", err)
				changed = true
			case <-poll.C:
				changed = true
			}
		}
	}
}

// otherConnection returns the content of the connection info if it is valid and differs from what is known.
func (s *Source) otherConnection(known []byte) []byte {
	if _, raw, err := config.ReadConnection(s.ConnectionFile); err == nil && !bytes.Equal(raw, known) {
		return raw
	}
	return nil
}

// replaceConnection writes other connection info than that which a client was made of, and calls onWritten. What somebody else has written
// meanwhile stays. It returns errReplaced unless it fails.
func (s *Source) replaceConnection(c *client, next config.Connection, onWritten func()) error {
	encoded, err := next.Encode(c.file)
	if err != nil {
		return err
	}
	if _, err := newClient(next, encoded, s.Options); err != nil {
		return fmt.Errorf("the new connection info is invalid: %w", err)
	}
	if s.otherConnection(c.file) == nil {
		if err := s.Host.WriteFile(s.ConnectionFile, encoded, fs.WithMode(0o600)); err != nil {
			return fmt.Errorf("writing the connection info: %w", err)
		}
		onWritten()
	}
	return errReplaced
}

// withAuthorities returns the connection with other certificate authorities.
func withAuthorities(connection config.Connection, authorities []byte) (config.Connection, error) {
	kubeconfig, err := clientcmd.Load([]byte(connection.KubeConfig))
	if err != nil {
		return connection, fmt.Errorf("decoding kubeconfig: %w", err)
	}
	context := kubeconfig.Contexts[kubeconfig.CurrentContext]
	if context == nil || kubeconfig.Clusters[context.Cluster] == nil {
		return connection, errors.New("the current context of the kubeconfig has no cluster")
	}
	kubeconfig.Clusters[context.Cluster].CertificateAuthorityData = authorities
	encoded, err := clientcmd.Write(*kubeconfig)
	if err != nil {
		return connection, fmt.Errorf("encoding kubeconfig: %w", err)
	}
	connection.KubeConfig = string(encoded)
	return connection, nil
}
