package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/drover-dev/drover/hub/gateway/plandelivery"
	"github.com/drover-dev/drover/hub/gateway/secretcache"
	"github.com/drover-dev/drover/hub/util/connlimit"
	"github.com/drover-dev/drover/hub/util/inflight"
	"github.com/drover-dev/drover/hub/util/ratelimit"
	"github.com/drover-dev/drover/hub/util/response"
)

// callers is a class of callers, with the limits that hold until a credential is verified (docs/adr/0021-unauthenticated-clients.md).
// Callers whose credential the hub recognizes are limited by what they show, all others by their address. The checks are in the order of
// what they cost: first those from memory, then a slot, and only then whatever asks the Kubernetes API.
type callers struct {
	// credential returns what a request shows; it may be empty.
	credential func(r *http.Request) string
	// recognized reports whether the hub has issued a credential. It must not ask the API, and decides nothing but the limits.
	recognized func(r *http.Request, credential string) bool
	// key is what recognized callers are counted by: a hash or a public part of the credential.
	key func(r *http.Request, credential string) string
	// known and unknown limit how often callers may ask. knownPerAddress counts those that are recognized for each address that they call
	// from.
	known, unknown  quota
	knownPerAddress bool
	// failures counts wrong credentials by address, for all classes. An address with too many is refused unless its credential is
	// recognized, or is one of those that costs nothing to verify.
	failures *ratelimit.Limiter
	cheap    func(credential string) bool
	// isGuess reports whether an error is the answer to a wrong credential.
	isGuess func(err error) bool
	// check refuses requests that cannot be served, before they hold a slot; nil for none.
	check func(w http.ResponseWriter, r *http.Request, credential string) error
	// knownSlots and unknownSlots bound how many requests are verified at the same time; nil for no bound. unknownSlotsPerAddress counts those
	// whose credential is not recognized for each address.
	knownSlots, unknownSlots *inflight.Limiter
	unknownSlotsPerAddress   bool
	// timeout bounds the verification, and whatever the handler waits for in it, which ends when the server stops, too; 0 for no bound.
	timeout time.Duration
	// status is set if errors are answered as metav1.Status, as Kubernetes does, and answers carry caChecksumHeader. Errors of others are
	// one line of text.
	status bool
}

// quota is a rate limit, and the message for callers that exceed it. A quota without a limiter does not limit.
type quota struct {
	limiter *ratelimit.Limiter
	message string
}

func (q quota) take(key string) error {
	if q.limiter == nil {
		return nil
	}
	if wait, ok := q.limiter.Take(key); !ok {
		return response.TooMany(wait, q.message)
	}
	return nil
}

// handler verifies the credential of a request and does what the caller asks for. The respond that it returns writes the answer, when the
// caller is trusted and holds no slot any more.
type handler func(r *http.Request, credential string) (respond, error)

type respond func(w http.ResponseWriter, r *http.Request) error

// open is a handler for everybody.
func open(serve respond) handler {
	return func(*http.Request, string) (respond, error) { return serve, nil }
}

// serve is the one path of all requests in the table of routes: time limits, body limit, admission, handler, answer.
func (s *Server) serve(rt route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer, err := s.begin(rt, w, r)
		if err == nil {
			err = answer(w, r)
		}
		switch {
		case err != nil && rt.callers.status:
			s.writeStatus(w, r, err, nil)
		case err != nil:
			s.writeText(w, r, err)
		}
	}
}

// begin applies the limits of a route, and returns its answer.
func (s *Server) begin(rt route, w http.ResponseWriter, r *http.Request) (respond, error) {
	timeout := rt.callers.timeout + rt.answer
	if rt.body > 0 {
		timeout += connlimit.BodyTime(rt.body)
	}
	response.SetTimeout(w, timeout)
	if checksum := s.opts.Settings.CAChecksum(); rt.callers.status && checksum != "" {
		w.Header().Set(caChecksumHeader, checksum)
	}
	if rt.body > 0 {
		r.Body = http.MaxBytesReader(w, r.Body, rt.body)
	}
	return s.admit(rt, w, r)
}

// admit runs the handler of a route within the limits of its callers.
func (s *Server) admit(rt route, w http.ResponseWriter, r *http.Request) (answer respond, err error) {
	c := rt.callers
	if c == s.anybody {
		return rt.handle(r, "")
	}
	credential := c.credential(r)
	defer func() {
		switch {
		case err == nil:
			connlimit.Trust(r.Context(), "credential "+c.key(r, credential), maxConnections)
		case c.isGuess(err):
			c.failures.Take(ratelimit.ClientKey(r))
		}
	}()
	if c.knownSlots != nil && rt.body > 0 {
		// A slot is taken when the request has arrived, never before.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, response.Errorf(http.StatusBadRequest, "the body must be complete, and not larger than %d bytes", rt.body)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	release, err := c.enter(w, r, credential, s.secrets.Synced)
	if err != nil {
		return nil, err
	}
	defer release()
	defer connlimit.Answering(r.Context())()
	if c.timeout == 0 {
		return rt.handle(r, credential)
	}
	ctx, cancel := context.WithTimeout(r.Context(), c.timeout)
	defer cancel()
	defer context.AfterFunc(s.drain.stopping, cancel)()
	answer, err = rt.handle(r.WithContext(ctx), credential)
	if errors.Is(err, context.Canceled) && s.drain.stopping.Err() != nil {
		err = plandelivery.ErrDraining
	}
	if errors.Is(err, context.DeadlineExceeded) && r.Context().Err() == nil {
		s.log.Info("Request timed out", "path", loggedPath(r), "reason", err.Error(), "client", ratelimit.ClientAddress(r))
		err = response.Retry(response.DefaultRetry, "the hub did not answer within %s", c.timeout)
	}
	return answer, err
}

// enter applies the limits of a class of callers. Whoever is let in holds a slot until release.
func (c *callers) enter(w http.ResponseWriter, r *http.Request, credential string, synced func() bool) (release func(), err error) {
	address := ratelimit.ClientKey(r)
	limit, slots, key, slotKey := c.unknown, c.unknownSlots, address, ""
	recognized := c.recognized(r, credential)
	if recognized {
		limit, slots, key = c.known, c.knownSlots, c.key(r, credential)
		slotKey = key
		if c.knownPerAddress {
			key = address + " " + key
		}
	} else if c.unknownSlotsPerAddress {
		slotKey = address
	}
	if err := limit.take(key); err != nil {
		return nil, err
	}
	if !recognized && !(c.cheap != nil && c.cheap(credential)) && c.failures.Empty(address) {
		return nil, response.TooMany(response.DefaultRetry, "too many wrong credentials from this address")
	}
	if c.check != nil {
		if err := c.check(w, r, credential); err != nil {
			return nil, err
		}
	}
	if slots == nil {
		return func() {}, nil
	}
	if !synced() {
		return nil, secretcache.ErrNotSynced
	}
	release, ok := slots.Acquire(slotKey)
	if !ok {
		return nil, response.Retry(response.DefaultRetry, "the hub is busy with other requests")
	}
	return release, nil
}
