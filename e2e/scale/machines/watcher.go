package machines

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

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

// connect writes the connection info of a machine into its folder, and makes the client. It dials in a way of its own, so that client-go
// shares its connections with no other machine.
func connect(dir string, connection config.Connection, log *slog.Logger) (*remote.Source, error) {
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
	return remote.New(remote.Options{ConnectionFile: file, Fixed: true, Strict: true, Log: log, Dial: ownAddress(dir)})
}

// ownAddress dials from an address of the loopback network that only this machine has: the hub limits connections from one address.
func ownAddress(machine string) func(ctx context.Context, network, address string) (net.Conn, error) {
	sum := sha256.Sum256([]byte(machine))
	// Neither a network address nor a broadcast address, and not where other programs listen.
	own := net.IPv4(127, 1+sum[0]%254, sum[1], 1+sum[2]%254)
	return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: own}, Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
}
