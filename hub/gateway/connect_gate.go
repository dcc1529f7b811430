package gateway

import (
	"errors"
	"net/http"
	"runtime"
	"time"

	"github.com/drover-dev/drover/hub/ratelimit"
	"github.com/drover-dev/drover/hub/tokens"
)

// gate bounds what agents that come can cost before anything is looked up for them. Whole fleets may come from one address, behind a load
// balancer for instance, and all at once after a restart; what is bounded closely is guessing.
type gate struct {
	// clients limits strangers by address, tokens everybody else by what is shown.
	clients, tokens *ratelimit.Limiter
	// slots are for those who are being looked at, strangers for those of them whose token is not recognized.
	slots, strangers chan struct{}
}

func newGate() *gate {
	slots := 64 * runtime.GOMAXPROCS(0)
	return &gate{
		clients: ratelimit.New(500, 2000), tokens: ratelimit.New(10, 100), slots: make(chan struct{}, slots), strangers: make(chan struct{}, slots/4),
	}
}

// enter lets a request in that shows a token, or refuses it. Whoever got in leaves when the token has been judged; nothing must be read of the
// request before that, since it may never arrive. Strangers take nothing from those whose token the hub recognizes.
func (g *gate) enter(r *http.Request, token string, recognized bool) (leave func(), err error) {
	slots := g.slots
	if recognized {
		key := tokens.RegistrationID(token)
		if key == "" {
			key = tokens.Hash(token)
		}
		if wait, ok := g.tokens.Take(key); !ok {
			return nil, &refusal{http.StatusTooManyRequests, "too many connections with this token", max(wait, time.Second)}
		}
	} else {
		slots = g.strangers
		if wait, ok := g.clients.Take(ratelimit.ClientKey(r)); !ok {
			return nil, &refusal{http.StatusTooManyRequests, "too many connections from this address", max(wait, time.Second)}
		}
	}
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	default:
		return nil, later(comeAgain, "the hub is busy with other connections")
	}
}

// mayGuess refuses an address from which too many tokens have come that are none. A token that is recognized is no guess.
func (s *Server) mayGuess(r *http.Request, token string) error {
	if !s.recognizes(token) && s.failures.Empty(ratelimit.ClientKey(r)) {
		return &refusal{http.StatusTooManyRequests, "too many wrong tokens from this address", comeAgain}
	}
	return nil
}

// countGuess counts a token that is none. Those that were good once are no guesses.
func (s *Server) countGuess(r *http.Request, err error) {
	if errors.Is(err, errUnknownToken) || errors.Is(err, errUnauthorized) {
		s.failures.Take(ratelimit.ClientKey(r))
	}
}
