package machines

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/source/remote"
)

// Watcher is an agent at rest: it watches its plan with the agent's own client, and applies and reports nothing.
type Watcher struct {
	// Name is that of the machine.
	Name string

	source *remote.Source
}

// NewWatcher makes a Watcher, whose connection info is written to a folder of its own in dir. log gets the warnings of the client.
func NewWatcher(name, dir string, connection config.Connection, log *slog.Logger) (*Watcher, error) {
	source, err := connect(filepath.Join(dir, name), connection, log.With("machine", name))
	if err != nil {
		return nil, fmt.Errorf("connecting %s: %w", name, err)
	}
	return &Watcher{Name: name, source: source}, nil
}

// Run watches until ctx is done, and calls received with each plan.
func (w *Watcher) Run(ctx context.Context, received func(plan []byte)) {
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		w.source.Run(ctx)
	}()
	defer func() { <-watching }()
	for {
		select {
		case <-ctx.Done():
			return
		case snapshot := <-w.source.Updates():
			received(snapshot.Delivery.Plan)
		}
	}
}

// Failures is how often the hub did not answer since the Watcher runs, Connected whether it answers now.
func (w *Watcher) Failures() int64 { return w.source.Connections().Reconnects }

// Connected is whether the hub answers.
func (w *Watcher) Connected() bool {
	reason, _ := w.source.Unreachable()
	return reason == ""
}

// connect writes the connection info of a machine into its folder, and makes the client.
func connect(dir string, connection config.Connection, log *slog.Logger) (*remote.Source, error) {
	var err error
	if connection.KubeConfig, err = apart(connection.KubeConfig, dir); err != nil {
		return nil, err
	}
	raw, err := connection.Encode(nil)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "connection.json")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		return nil, err
	}
	return remote.New(remote.Options{ConnectionFile: file, Strict: true, Log: log})
}

// apart gives a machine connections of its own, as if it were the only one in this process: client-go shares connections between clients
// that trust the same file of authorities, in which text between the certificates means nothing.
func apart(kubeconfig, machine string) (string, error) {
	c, err := clientcmd.Load([]byte(kubeconfig))
	if err != nil {
		return "", fmt.Errorf("decoding the kubeconfig of a machine: %w", err)
	}
	for _, cluster := range c.Clusters {
		cluster.CertificateAuthorityData = fmt.Appendf(cluster.CertificateAuthorityData, "\n%s\n", machine)
	}
	raw, err := clientcmd.Write(*c)
	return string(raw), err
}
