package tunnelaccess

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/drover-dev/drover/hub/util/redirect"
)

// sessionTTL is how long a token is good that is kept in memory only.
const sessionTTL = 10 * time.Minute

// Config leads through the hub to a cluster of whose authority the hub has no part, with tokens that are made as they are needed. What the
// cluster answers is limited as LimitBodies says, and not decompressed.
func (a *Access) Config(management string) *rest.Config {
	config := &rest.Config{Host: a.Server(management), TLSClientConfig: rest.TLSClientConfig{CAData: a.Settings.CACerts},
		UserAgent: "drover-hub", DisableCompression: true}
	redirect.Restrict(config)
	LimitBodies(config, MaxBody)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &session{access: a, management: management, next: next}
	})
	return config
}

// session puts a token into requests, and makes another one in good time.
type session struct {
	access     *Access
	management string
	next       http.RoundTripper

	mu    sync.Mutex
	token string
	until time.Time
}

// RoundTrip implements http.RoundTripper.
func (s *session) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := s.current()
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return s.next.RoundTrip(r)
}

func (s *session) current() (string, error) {
	now := s.access.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.until) {
		return s.token, nil
	}
	token, err := s.access.Issue(hubUser(false), s.management, sessionTTL, "controllers", false)
	if err != nil {
		return "", fmt.Errorf("signing a token: %w", err)
	}
	s.token, s.until = token, now.Add(sessionTTL/2)
	return token, nil
}
