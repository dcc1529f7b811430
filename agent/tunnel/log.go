package tunnel

import (
	"context"
	"io"
	"log/slog"
	"sync"

	"github.com/sirupsen/logrus"
)

var redirect sync.Once

// redirectLibrary brings what the tunnel's library logs, on a logger that the whole process shares, to the agent's own log. All of it is
// about single streams or follows from the end of a session, which is told anyway.
func redirectLibrary(log *slog.Logger) {
	redirect.Do(func() {
		logrus.SetOutput(io.Discard)
		logrus.AddHook(libraryHook{log})
	})
}

type libraryHook struct{ log *slog.Logger }

// Levels implements logrus.Hook.
func (libraryHook) Levels() []logrus.Level { return logrus.AllLevels }

// Fire implements logrus.Hook.
func (h libraryHook) Fire(entry *logrus.Entry) error {
	h.log.LogAttrs(context.Background(), slog.LevelDebug, "The tunnel's library says", slog.String("message", entry.Message), slog.Any("error", entry.Data[logrus.ErrorKey]))
	return nil
}
