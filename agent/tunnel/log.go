package tunnel

import (
	"context"
	"io"
	"log/slog"
	"sync"

	"github.com/sirupsen/logrus"
)

var redirect sync.Once

// redirectLogrus sends remotedialer's log, which is logrus' global logger, to the agent's log at level debug. It is about single streams,
// or follows from the end of a session, which the agent logs.
func redirectLogrus(log *slog.Logger) {
	redirect.Do(func() {
		logrus.SetOutput(io.Discard)
		logrus.AddHook(logrusHook{log})
	})
}

type logrusHook struct{ log *slog.Logger }

// Levels implements logrus.Hook.
func (logrusHook) Levels() []logrus.Level { return logrus.AllLevels }

// Fire implements logrus.Hook.
func (h logrusHook) Fire(entry *logrus.Entry) error {
	h.log.LogAttrs(context.Background(), slog.LevelDebug, "Message of remotedialer", slog.String("message", entry.Message),
		slog.Any("error", entry.Data[logrus.ErrorKey]))
	return nil
}
