package remote

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/agent/testenv/testhub"
)

func options(connectionFile string) Options {
	return Options{ConnectionFile: connectionFile, Strict: true, Log: slog.New(slog.DiscardHandler)}
}

// newSource starts a source.
func newSource(t *testing.T, h *testhub.Hub) *Source {
	t.Helper()
	s, err := New(options(h.Connection(t, t.TempDir(), "token")))
	if err != nil {
		t.Fatal(err)
	}
	start(t, s)
	return s
}

// start runs a source, with short delays: what is asserted here is that there is another try, and not when. Where that counts, and in
// TestDelay, they are those of the product.
func start(t *testing.T, s *Source) {
	t.Helper()
	s.baseDelay = 20 * time.Millisecond
	run(t, s)
}

func run(t *testing.T, s *Source) {
	t.Helper()
	done := make(chan struct{})
	ctx := t.Context()
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	t.Cleanup(func() { <-done })
}

// newSourceInMemory starts a hub in a bubble, and a source of it whose delays are those of the product. The hub has a fault from the
// beginning.
func newSourceInMemory(t *testing.T, fault func(w http.ResponseWriter, r *http.Request) bool) (*testhub.Hub, *Source) {
	t.Helper()
	listener := testhub.NewListener()
	h := testhub.NewOn(t, listener)
	h.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	h.SetFault(fault)
	s, err := New(optionsInMemory(t, h, listener.Dial))
	if err != nil {
		t.Fatal(err)
	}
	run(t, s)
	return h, s
}

// optionsInMemory are for a source in a bubble: whoever watches a file there waits for the kernel, and time stands still.
func optionsInMemory(t *testing.T, h *testhub.Hub, dial func(context.Context, string, string) (net.Conn, error)) Options {
	t.Helper()
	o := options(h.Connection(t, t.TempDir(), "token"))
	o.Fixed, o.Dial = true, dial
	return o
}

// next waits for the snapshot with a plan.
func next(t *testing.T, s *Source, plan string) source.Snapshot {
	t.Helper()
	deadline := time.After(10 * time.Minute) // a busy machine, and in a bubble pauses that have grown meanwhile
	for {
		select {
		case snapshot := <-s.Updates():
			if string(snapshot.Delivery.Plan) == plan {
				return snapshot
			}
		case <-deadline:
			t.Fatalf("plan %q does not come", plan)
		}
	}
}
