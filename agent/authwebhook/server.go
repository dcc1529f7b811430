package authwebhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
)

const (
	// Path is where the API server asks.
	Path = "/v1/authenticate"
	// maxReview bounds what is read of a request; a token with many groups is far below.
	maxReview = 64 << 10
	// stopGrace is how long questions that are being answered may take when the program stops.
	stopGrace = 5 * time.Second
)

// Handler answers TokenReviews at Path, in whichever version they are asked, and /healthz.
func Handler(v *Verifier, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+Path, func(w http.ResponseWriter, r *http.Request) { answer(w, r, v, log) })
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if _, err := v.keys(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

func answer(w http.ResponseWriter, r *http.Request, v *Verifier, log *slog.Logger) {
	review := &authenticationv1.TokenReview{}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxReview)).Decode(review); err != nil || review.Kind != "TokenReview" {
		http.Error(w, "the body is no TokenReview of authentication.k8s.io", http.StatusBadRequest)
		return
	}
	user, err := v.Verify(review.Spec.Token)
	// The answer is of the version of the question, and does not say the token again.
	review.Spec = authenticationv1.TokenReviewSpec{}
	review.Status = authenticationv1.TokenReviewStatus{Authenticated: err == nil}
	if err != nil {
		// The API server asks about every token that it does not know itself, so that this is nothing to alarm anybody.
		log.Debug("A token was not accepted", "reason", err.Error())
		review.Status.Error = err.Error()
	} else {
		review.Status.User = *user
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(review); err != nil {
		log.Debug("An answer could not be written", "err", err)
	}
}

// Serve answers on an address until ctx ends.
func Serve(ctx context.Context, address string, v *Verifier, log *slog.Logger) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening on %s: %w", address, err)
	}
	server := &http.Server{
		Handler: Handler(v, log), ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: 3 * time.Minute, MaxHeaderBytes: 16 << 10,
	}
	log.Info("Answering whose tokens of the hub are", "address", listener.Addr().String(), "cluster", v.Cluster)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serving on %s: %w", address, err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer cancel()
	if err := server.Shutdown(grace); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("stopping: %w", err)
	}
	return nil
}
