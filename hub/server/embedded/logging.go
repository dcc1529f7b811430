package embedded

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
)

// unsettled counts the embedded servers that start or stop. What the Kubernetes libraries call errors then is that something is not there
// yet, or not any more; why a start failed is in its error.
var unsettled atomic.Int32

// unsettle marks the beginning of a start or a stop. The function it returns marks the end; calling it again does nothing.
func unsettle() (settle func()) {
	unsettled.Add(1)
	return sync.OnceFunc(func() { unsettled.Add(-1) })
}

// RouteKubernetesLogs sends what the Kubernetes libraries log through klog to logger. Below debug level only errors pass: those
// libraries report every informer and every request at the level at which the hub reports what matters to its operator. klog is global
// to the process, so this is for main and for test mains.
//
// klog.Fatal gives its message the level of information and then ends the process: the last messages are logged whatever their level.
func RouteKubernetesLogs(logger *slog.Logger) {
	last := &lastMessages{}
	klog.SetSlogLogger(slog.New(&quiet{Handler: logger.Handler(), last: last}).With("logger", "kubernetes"))
	klog.OsExit = func(code int) {
		logger.Error("The Kubernetes libraries ended this process", "exitCode", code, "lastMessages", last.all())
		os.Exit(code)
	}
}

// lastMessages keeps the newest messages, the oldest first. Other goroutines may log between a klog.Fatal and the end that it brings.
type lastMessages struct {
	mu       sync.Mutex
	messages []string
}

func (l *lastMessages) add(message string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.messages = append(l.messages, message)
	l.messages = l.messages[max(0, len(l.messages)-8):]
}

func (l *lastMessages) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.messages)
}

// quiet drops records below error level, and all while a server is unsettled, unless debug is enabled. last keeps the messages that may be
// of klog.Fatal, dropped or not: they have no attributes.
type quiet struct {
	slog.Handler
	last *lastMessages
}

// Enabled is true for all that klog.Fatal may use, so that its message reaches Handle.
func (q *quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || q.Handler.Enabled(ctx, level)
}

func (q *quiet) Handle(ctx context.Context, record slog.Record) error {
	if record.NumAttrs() == 0 {
		q.last.add(record.Message)
	}
	if (record.Level < slog.LevelError || unsettled.Load() > 0) && !q.Handler.Enabled(ctx, slog.LevelDebug) {
		return nil
	}
	if !q.Handler.Enabled(ctx, record.Level) {
		return nil
	}
	return q.Handler.Handle(ctx, record)
}

func (q *quiet) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &quiet{q.Handler.WithAttrs(attrs), q.last}
}
func (q *quiet) WithGroup(name string) slog.Handler { return &quiet{q.Handler.WithGroup(name), q.last} }

type embedLogger = func(*embed.Config) error

// zapToSlog makes etcd, which logs with zap, write to logger. Like the Kubernetes libraries it is chatty: what it calls a warning is
// nearly always a slow disk, and is kept while running is set; what it calls information is for debugging.
func zapToSlog(logger *slog.Logger, running *atomic.Bool) embedLogger {
	return embed.NewZapLoggerBuilder(zap.New(&zapCore{handler: logger.Handler(), running: running}))
}

// zapCore is a zapcore.Core that writes to a slog handler.
type zapCore struct {
	handler slog.Handler
	running *atomic.Bool
}

// Enabled leaves out what etcd has for debugging itself: whole requests, and so the content of every Secret.
func (c *zapCore) Enabled(level zapcore.Level) bool {
	return level >= zapcore.InfoLevel && c.handler.Enabled(context.Background(), c.level(level))
}

func (c *zapCore) With(fields []zapcore.Field) zapcore.Core {
	return &zapCore{handler: c.handler.WithAttrs(attrs(fields)), running: c.running}
}

func (c *zapCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

func (c *zapCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	record := slog.NewRecord(entry.Time, c.level(entry.Level), entry.Message, 0)
	record.AddAttrs(attrs(fields)...)
	return c.handler.Handle(context.Background(), record)
}

func (c *zapCore) Sync() error { return nil }

func (c *zapCore) level(level zapcore.Level) slog.Level {
	switch {
	case level > zapcore.ErrorLevel: // etcd ends the process after these
		return slog.LevelError
	case !c.running.Load():
		return slog.LevelDebug
	case level == zapcore.ErrorLevel:
		return slog.LevelError
	case level == zapcore.WarnLevel:
		return slog.LevelWarn
	default:
		return slog.LevelDebug
	}
}

func attrs(fields []zapcore.Field) []slog.Attr {
	encoder := zapcore.NewMapObjectEncoder()
	for _, field := range fields {
		field.AddTo(encoder)
	}
	out := make([]slog.Attr, 0, len(fields))
	for _, field := range fields {
		if value, ok := encoder.Fields[field.Key]; ok {
			out = append(out, slog.Any(field.Key, value))
		}
	}
	return out
}
