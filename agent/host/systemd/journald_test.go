package systemd

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/journal"
	"github.com/google/go-cmp/cmp"
)

type sent struct {
	Message  string
	Priority journal.Priority
	Fields   map[string]string
}

func TestJournaldFields(t *testing.T) {
	var got []sent
	handler := NewJournaldHandler(slog.LevelInfo, slog.DiscardHandler).(*journaldHandler)
	handler.send = func(message string, priority journal.Priority, fields map[string]string) error {
		got = append(got, sent{message, priority, fields})
		return nil
	}
	log := slog.New(handler)
	log.Debug("Too quiet")
	log.Info("Agent started")
	log.With("source", "hub").Warn("The plan cannot be started yet", "checksum", "0123", "retryIn", 2*time.Second, "error",
		errors.New("a b\nc"))
	log.WithGroup("net").Error("Broken", "priority", 1, slog.Group("peer", "_uid", 0), "", "dropped")
	want := []sent{
		{"Agent started", journal.PriInfo, map[string]string{"SYSLOG_IDENTIFIER": "system-agent"}},
		{
			`The plan cannot be started yet source=hub checksum=0123 retryIn=2s error="a b\nc"`, journal.PriWarning,
			map[string]string{"SYSLOG_IDENTIFIER": "system-agent", "PLAN_SOURCE": "hub", "PLAN_CHECKSUM": "0123", "AGENT_RETRY_IN": "2s",
				"AGENT_ERROR": "a b\nc"},
		},
		{
			`Broken net.priority=1 net.peer._uid=0 net.=dropped`, journal.PriErr,
			map[string]string{"SYSLOG_IDENTIFIER": "system-agent", "AGENT_NET_PRIORITY": "1", "AGENT_NET_PEER__UID": "0",
				"AGENT_NET_": "dropped"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestJournaldUnavailable(t *testing.T) {
	var text bytes.Buffer
	handler := NewJournaldHandler(slog.LevelDebug, slog.NewTextHandler(&text,
		&slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})).(*journaldHandler)
	handler.send = func(string, journal.Priority, map[string]string) error { return os.ErrNotExist }
	slog.New(handler).With("a", 1).WithGroup("g").Info("Said anyway", "b", 2)
	if diff := cmp.Diff("level=INFO msg=\"Said anyway\" a=1 g.b=2\n", text.String()); diff != "" {
		t.Error(diff)
	}
	if handler.Enabled(context.Background(), slog.LevelDebug-1) {
		t.Error("Records below the level are written")
	}
}

func TestStdoutIsNotJournald(t *testing.T) {
	for _, stream := range []string{"", "nonsense", "1:2"} {
		t.Setenv("JOURNAL_STREAM", stream)
		if StdoutIsJournald() {
			t.Errorf("%q is taken for journald", stream)
		}
	}
}
