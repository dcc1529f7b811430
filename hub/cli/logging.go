package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/drover-dev/drover/hub/server/embedded"
	"github.com/drover-dev/drover/hub/util/apierrors"
)

// logOptions are the flags about logs.
type logOptions struct {
	level  string
	format string
}

func (o *logOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.level, "log-level", "info", "what to log: debug, info, warn or error")
	flags.StringVar(&o.format, "log-format", "text", "how to log: text or json")
}

// apply makes the process's one logger and routes to it what the libraries log.
func (o *logOptions) apply(out io.Writer) (*slog.Logger, error) {
	handler, err := o.handler(out)
	if err != nil {
		return nil, err
	}
	logger := slog.New(handler)
	embedded.RouteKubernetesLogs(logger)
	ctrl.SetLogger(logr.FromSlogHandler(&lessChatter{handler}))
	return logger, nil
}

func (o *logOptions) handler(out io.Writer) (slog.Handler, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.level)); err != nil {
		return nil, fmt.Errorf("--log-level %q is none of debug, info, warn, error", o.level)
	}
	options := &slog.HandlerOptions{Level: level}
	switch o.format {
	case "text":
		return &references{slog.NewTextHandler(out, options)}, nil
	case "json":
		return &references{slog.NewJSONHandler(out, options)}, nil
	default:
		return nil, fmt.Errorf("--log-format %q is neither text nor json", o.format)
	}
}

// references writes references to objects as <namespace>/<name>, and errors with the key "error". The hub and its libraries log references
// as values of several types, which slog would write as a string, as an object, or as two keys. Programs that store logs may take one type
// for each key, and drop other lines.
type references struct{ slog.Handler }

// Handle implements slog.Handler.
func (h *references) Handle(ctx context.Context, record slog.Record) error {
	written := slog.NewRecord(record.Time, record.Level, record.Message, record.PC)
	record.Attrs(func(attr slog.Attr) bool {
		written.AddAttrs(withReference(attr))
		return true
	})
	return h.Handler.Handle(ctx, written)
}

// WithAttrs implements slog.Handler.
func (h *references) WithAttrs(attrs []slog.Attr) slog.Handler {
	written := make([]slog.Attr, 0, len(attrs))
	for _, attr := range attrs {
		written = append(written, withReference(attr))
	}
	return &references{h.Handler.WithAttrs(written)}
}

// WithGroup implements slog.Handler.
func (h *references) WithGroup(name string) slog.Handler {
	return &references{h.Handler.WithGroup(name)}
}

func withReference(attr slog.Attr) slog.Attr {
	if attr.Key == "err" { // as logr names it; the hub's own messages have "error"
		attr.Key = "error"
	}
	if kind := attr.Value.Kind(); kind != slog.KindAny && kind != slog.KindLogValuer {
		return attr
	}
	switch ref := attr.Value.Any().(type) {
	case types.NamespacedName:
		return slog.String(attr.Key, strings.TrimPrefix(ref.String(), "/"))
	case klog.ObjectRef:
		return slog.String(attr.Key, ref.String())
	}
	return attr
}

// lessChatter keeps what controller-runtime says about every controller, source and webhook that it starts and stops for debugging: it
// is a hundred lines per start, in the middle of the few that an operator looks for.
type lessChatter struct{ slog.Handler }

var chatter = []string{
	"Starting ", "starting ", "Stopping ", "Shutdown ", "All workers ", "Wait completed", "Serving ", "Shutting down ", "shutting down ",
	"Registering ", "Conversion webhook ", "skip registering ", "Couldn't find controller Pod metadata",
}

// lostElection is how controller-runtime reports, as an error, that a hub that stops has given its leadership back.
const lostElection = "error received after stop sequence was engaged"

// isDisconnected reports whether a reconcile has failed for no other reason than that a cluster is not connected. Cluster API's controllers
// return that as an error, each health check some fifteen times in the first minutes of a hub; conditions say which clusters are not.
func isDisconnected(record slog.Record) (only bool) {
	if record.Message != "Reconciler error" {
		return false
	}
	record.Attrs(func(attr slog.Attr) bool {
		err, isError := attr.Value.Any().(error)
		only = isError && apierrors.All(err, func(err error) bool {
			return err == clustercache.ErrClusterNotConnected //nolint:errorlint // All unwraps it
		})
		return !isError
	})
	return only
}

// Handle implements slog.Handler.
func (h *lessChatter) Handle(ctx context.Context, record slog.Record) error {
	if (record.Message == lostElection || isDisconnected(record)) && !h.Enabled(ctx, slog.LevelDebug) {
		return nil
	}
	if record.Level < slog.LevelWarn && !h.Enabled(ctx, slog.LevelDebug) {
		for _, prefix := range chatter {
			if strings.HasPrefix(record.Message, prefix) {
				return nil
			}
		}
	}
	return h.Handler.Handle(ctx, record)
}

// WithAttrs implements slog.Handler.
func (h *lessChatter) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &lessChatter{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h *lessChatter) WithGroup(name string) slog.Handler {
	return &lessChatter{h.Handler.WithGroup(name)}
}
