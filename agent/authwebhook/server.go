package authwebhook

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/drover-dev/drover/agent/httpserver"
)

const (
	// reviewPath is the URL path to which the API server sends TokenReviews.
	reviewPath = "/v1/authenticate"
	// maxReviewBytes bounds a request; a token with many groups is far below.
	maxReviewBytes = 64 << 10
)

// handler serves TokenReviews at reviewPath, in the API version of the request, and /healthz, which fails while the keys cannot be read.
func handler(v *Verifier, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+reviewPath, func(w http.ResponseWriter, r *http.Request) { review(w, r, v, log) })
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if _, err := v.keys(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

func review(w http.ResponseWriter, r *http.Request, v *Verifier, log *slog.Logger) {
	review := &authenticationv1.TokenReview{}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxReviewBytes)).Decode(review); err != nil || review.Kind != "TokenReview" {
		http.Error(w, "body must be a TokenReview of authentication.k8s.io", http.StatusBadRequest)
		return
	}
	user, err := v.Verify(review.Spec.Token)
	// The response has the API version of the request, and does not repeat the token.
	review.Spec = authenticationv1.TokenReviewSpec{}
	review.Status = authenticationv1.TokenReviewStatus{Authenticated: err == nil}
	if err != nil {
		// The API server asks about every token that it does not know itself, so a refusal is nothing unusual.
		log.Debug("Token refused", "reason", err.Error())
		review.Status.Error = err.Error()
	} else {
		review.Status.User = *user
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(review); err != nil {
		log.Debug("Writing TokenReview failed", "error", err)
	}
}

// Serve serves TokenReviews at /v1/authenticate, and /healthz, on a TCP address (host:port) until ctx ends.
func Serve(ctx context.Context, address string, v *Verifier, log *slog.Logger) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening on %s: %w", address, err)
	}
	log.Info("Serving token authentication", "address", listener.Addr().String(), "cluster", v.Cluster)
	return httpserver.Serve(ctx, listener, &http.Server{Handler: handler(v, log)}, log)
}
