package machines

import (
	"context"
	"log/slog"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Refusals is a log that counts how often the hub has refused agents because there were too many requests (429).
type Refusals struct {
	slog.Handler

	count *atomic.Int64
}

// NewRefusals is a log that passes everything on.
func NewRefusals(to slog.Handler) Refusals { return Refusals{to, &atomic.Int64{}} }

// Count is how many there were.
func (r Refusals) Count() int64 { return r.count.Load() }

// Handle implements slog.Handler.
func (r Refusals) Handle(ctx context.Context, record slog.Record) error {
	record.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok && apierrors.IsTooManyRequests(err) {
			r.count.Add(1)
		}
		return true
	})
	return r.Handler.Handle(ctx, record)
}

// WithAttrs implements slog.Handler.
func (r Refusals) WithAttrs(attrs []slog.Attr) slog.Handler {
	return Refusals{r.Handler.WithAttrs(attrs), r.count}
}

// WithGroup implements slog.Handler.
func (r Refusals) WithGroup(name string) slog.Handler {
	return Refusals{r.Handler.WithGroup(name), r.count}
}
