package host

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"unicode"

	"github.com/coreos/go-systemd/v22/journal"
)

// journalFields are the names under which people look for what the agent logs; every other key becomes AGENT_<KEY>, so that none can
// take the place of a field that the journal gives a meaning of its own.
var journalFields = map[string]string{
	"checksum": "PLAN_CHECKSUM", "attempt": "PLAN_ATTEMPT", "source": "PLAN_SOURCE", "instruction": "INSTRUCTION", "probe": "PROBE",
}

// journalIdentifier is the name that journalctl shows before each line.
const journalIdentifier = "system-agent"

// JournalHandler writes log records to the journal of systemd, with their keys as fields. The line that people read is the same as
// elsewhere: message and key=value.
type JournalHandler struct {
	level    slog.Leveler
	fallback slog.Handler
	attrs    []slog.Attr
	group    string
	send     func(message string, priority journal.Priority, fields map[string]string) error
}

// StdoutIsJournal tells whether what the process prints goes to the journal.
func StdoutIsJournal() bool {
	is, err := journal.StdoutIsJournalStream()
	return err == nil && is && journal.Enabled()
}

// NewJournalHandler makes a handler for records of at least a level. What the journal does not take goes to fallback.
func NewJournalHandler(level slog.Leveler, fallback slog.Handler) *JournalHandler {
	return &JournalHandler{level: level, fallback: fallback, send: journal.Send}
}

// Enabled implements slog.Handler.
func (h *JournalHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.level.Level()
}

// WithAttrs implements slog.Handler.
func (h *JournalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
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
func (h *JournalHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	next := *h
	next.group = h.group + name + "."
	next.fallback = h.fallback.WithGroup(name)
	return &next
}

// Handle implements slog.Handler.
func (h *JournalHandler) Handle(ctx context.Context, record slog.Record) error {
	attrs := append([]slog.Attr(nil), h.attrs...)
	record.Attrs(func(a slog.Attr) bool {
		a.Key = h.group + a.Key
		attrs = append(attrs, a)
		return true
	})
	fields := map[string]string{"SYSLOG_IDENTIFIER": journalIdentifier}
	addFields(fields, "", attrs)
	if err := h.send(readable(ctx, record, attrs), priority(record.Level), fields); err != nil {
		return h.fallback.Handle(ctx, record)
	}
	return nil
}

// readable is the line for people, with the values quoted as slog does it everywhere.
func readable(ctx context.Context, record slog.Record, attrs []slog.Attr) string {
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

// fieldName makes a name of A-Z, 0-9 and _ of a key; words of retryIn are parted.
func fieldName(key string) string {
	if known, found := journalFields[key]; found {
		return known
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
	if key == "" {
		return ""
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
