package child

import (
	"log/slog"
	"os"
	"testing"
	"time"
)

func TestOnlyASparedChildMayEnd(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		fails  bool
	}{"without a fault": {"exit 0", false}, "with a fault": {"exit 1", true}} {
		t.Run(name, func(t *testing.T) {
			s := NewSet(slog.New(slog.DiscardHandler))
			defer s.Stop()
			asked := make(chan struct{})
			spared := func(p *os.ProcessState) bool {
				defer close(asked)
				return p.Success()
			}
			if err := s.Start(Child{Name: "x", Path: "/bin/sh", Args: []string{"-c", test.script}, Spared: spared}); err != nil {
				t.Fatal(err)
			}
			<-asked
			patience := 200 * time.Millisecond // for what must not happen
			if test.fails {
				patience = time.Minute
			}
			select {
			case err := <-s.Failed():
				if !test.fails {
					t.Error(err)
				}
			case <-time.After(patience):
				if test.fails {
					t.Error("the node goes on")
				}
			}
		})
	}
}
