package systemd

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"unicode"

	"github.com/coreos/go-systemd/v22/journal"
)

// journaldFields maps keys of log records to the field names that the documentation gives for journalctl. Every other key becomes
// AGENT_<KEY>, so that none overrides a field that journald itself defines (systemd.journal-fields(7)).
var journaldFields = map[string]string{
	"checksum": "PLAN_CHECKSUM", "attempt": "PLAN_ATTEMPT", "source": "PLAN_SOURCE", "instruction": "INSTRUCTION", "probe": "PROBE",
}

// SyslogIdentifier is the name that journalctl shows before each line of the agent and of its instructions, and selects them by (-t).
const SyslogIdentifier = "system-agent"

// journaldHandler is a slog.Handler with attributes as journald fields. MESSAGE is what a text handler would print: message and key=value.
type journaldHandler struct {
	level    slog.Leveler
	fallback slog.Handler
	attrs    []slog.Attr
	group    string
	send     func(message string, priority journal.Priority, fields map[string]string) error
}

// StdoutIsJournald reports whether standard output is connected to journald, and journald accepts records.
func StdoutIsJournald() bool {
	is, err := journal.StdoutIsJournalStream()
	return err == nil && is && journal.Enabled()
}

// NewJournaldHandler makes a handler that sends records of at least the level to journald; a record that journald refuses goes to fallback.
func NewJournaldHandler(level slog.Leveler, fallback slog.Handler) slog.Handler {
	return &journaldHandler{level: level, fallback: fallback, send: journal.Send}
}

// Enabled implements slog.Handler.
func (h *journaldHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.level.Level()
}

// WithAttrs implements slog.Handler.
func (h *journaldHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	next.attrs = append([]slog.Attr(nil), h.attrs...)
	for _, a := range attrs {
		a.Key = h.group + a.Key
		next.attrs = append(next.attrs, a)
	}
	next.fallback = h.fallback.WithAttrs(attrs)
	return &next
}

// WithGroup implements slog.Handler.
func (h *journaldHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	next := *h
	next.group = h.group + name + "."
	next.fallback = h.fallback.WithGroup(name)
	return &next
}

// Handle implements slog.Handler.
func (h *journaldHandler) Handle(ctx context.Context, record slog.Record) error {
	attrs := append([]slog.Attr(nil), h.attrs...)
	record.Attrs(func(a slog.Attr) bool {
		a.Key = h.group + a.Key
		attrs = append(attrs, a)
		return true
	})
	fields := map[string]string{"SYSLOG_IDENTIFIER": SyslogIdentifier}
	addFields(fields, "", attrs)
	if err := h.send(formatMessage(ctx, record, attrs), priority(record.Level), fields); err != nil {
		return h.fallback.Handle(ctx, record)
	}
	return nil
}

// formatMessage is the message followed by key=value, quoted as slog.TextHandler does it.
func formatMessage(ctx context.Context, record slog.Record, attrs []slog.Attr) string {
	if len(attrs) == 0 {
		return record.Message
	}
	var line bytes.Buffer
	text := slog.NewTextHandler(&line, &slog.HandlerOptions{Level: record.Level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
			return slog.Attr{}
		}
		return a
	}})
	rest := slog.NewRecord(record.Time, record.Level, "", 0)
	rest.AddAttrs(attrs...)
	_ = text.Handle(ctx, rest)
	return strings.TrimSpace(record.Message + " " + line.String())
}

func addFields(fields map[string]string, prefix string, attrs []slog.Attr) {
	for _, a := range attrs {
		value := a.Value.Resolve()
		if value.Kind() == slog.KindGroup {
			inner := prefix
			if a.Key != "" {
				inner += a.Key + "."
			}
			addFields(fields, inner, value.Group())
			continue
		}
		if name := fieldName(prefix + a.Key); name != "" {
			fields[name] = value.String()
		}
	}
}

// fieldName turns a key into a field name of A-Z, 0-9 and _: retryIn becomes AGENT_RETRY_IN. It is empty for an empty key.
func fieldName(key string) string {
	if known, found := journaldFields[key]; found {
		return known
	}
	if key == "" {
		return ""
	}
	var name strings.Builder
	name.WriteString("AGENT_")
	for i, r := range key {
		switch {
		case r >= 'a' && r <= 'z':
			name.WriteRune(unicode.ToUpper(r))
		case r >= '0' && r <= '9':
			name.WriteRune(r)
		case r >= 'A' && r <= 'Z':
			if i > 0 {
				name.WriteByte('_')
			}
			name.WriteRune(r)
		default:
			name.WriteByte('_')
		}
	}
	return name.String()
}

func priority(level slog.Level) journal.Priority {
	switch {
	case level >= slog.LevelError:
		return journal.PriErr
	case level >= slog.LevelWarn:
		return journal.PriWarning
	case level >= slog.LevelInfo:
		return journal.PriInfo
	default:
		return journal.PriDebug
	}
}
