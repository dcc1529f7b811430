// Package httpserver serves the small HTTP endpoints of the agent: status, metrics, health and token authentication. Every request and
// response is bounded in time, and none is large.
package httpserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	// requestTimeout bounds the reading of a request, and the writing of a response.
	requestTimeout = 10 * time.Second
	// idleTimeout is how long a connection is kept without a request.
	idleTimeout    = 3 * time.Minute
	maxHeaderBytes = 16 << 10
	// shutdownTimeout is how long requests in flight may take after ctx has ended.
	shutdownTimeout = 2 * time.Second
)

// Serve serves until ctx ends, and closes the listener. The handler and, if needed, ConnContext are set in server; the limits are set
// here. Errors of connections are logged with level debug. Serve returns an error only if the listener fails.
func Serve(ctx context.Context, listener net.Listener, server *http.Server, log *slog.Logger) error {
	server.ReadTimeout, server.WriteTimeout, server.IdleTimeout = requestTimeout, requestTimeout, idleTimeout
	server.MaxHeaderBytes = maxHeaderBytes
	server.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if server.Shutdown(grace) != nil {
			_ = server.Close()
		}
	})
	err := server.Serve(listener)
	if !stop() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving on %s: %w", listener.Addr(), err)
}
