package gateway

import (
	"math"
	"net/http"
	"time"

	"github.com/drover-dev/drover/hub/gateway/plandelivery"
	"github.com/drover-dev/drover/hub/util/connlimit"
	"github.com/drover-dev/drover/hub/util/inflight"
	"github.com/drover-dev/drover/hub/util/ratelimit"
	"github.com/drover-dev/drover/hub/util/response"
)

const (
	// maxMachineRequests is how many requests of one machine are answered at the same time, beside its watches. An agent sends two or three.
	// Each may hold a plan and a report of the largest size for as long as the machine takes to read the answer.
	maxMachineRequests = 8
	// maxMachineWatches is how many watches one machine may have. With another one the oldest ends: an agent whose network is unstable begins
	// a new watch long before the hub notices that the connection of the last one is dead.
	maxMachineWatches = 4
	// maxMachineConnections is how many connections one machine may have. An agent has two or three, and dead ones that nobody has noticed.
	maxMachineConnections = 32
	// writesPerSecond and writeBurst are how often one machine may write. An agent reports every few seconds at most. A report may have a MiB,
	// and etcd keeps all versions of the last minutes: without a limit one machine fills its database, which then refuses all writes.
	writesPerSecond, writeBurst = 1, 120
)

// machineLimits are what each machine may have in progress, and how often it may write.
type machineLimits struct {
	requests *inflight.Limiter
	watches  *inflight.Newest
	writes   *ratelimit.Limiter
}

func newMachineLimits() machineLimits {
	return machineLimits{inflight.New(math.MaxInt, maxMachineRequests), inflight.NewNewest(maxMachineWatches),
		ratelimit.New(writesPerSecond, writeBurst)}
}

// machineHandler serves a machine that is authenticated.
type machineHandler func(w http.ResponseWriter, r *http.Request, m *plandelivery.Machine) error

// asMachine is a handler for machines that have registered.
func (s *Server) asMachine(serve machineHandler) handler {
	return s.authenticated(s.limitRequests(serve))
}

// asWatchingMachine is asMachine for what is a list or a watch. A watch does not count as a request.
func (s *Server) asWatchingMachine(list, watch machineHandler) handler {
	list, watch = s.limitRequests(list), s.limitWatches(watch)
	return s.authenticated(func(w http.ResponseWriter, r *http.Request, m *plandelivery.Machine) error {
		serve := list
		if plandelivery.IsWatch(r.URL.Query()) {
			serve = watch
		}
		return serve(w, r, m)
	})
}

// asWritingMachine is asMachine for requests that write.
func (s *Server) asWritingMachine(serve machineHandler) handler {
	return s.asMachine(func(w http.ResponseWriter, r *http.Request, m *plandelivery.Machine) error {
		if wait, ok := s.machineLimits.writes.Take(m.Account.String()); !ok {
			return response.TooMany(wait, "this machine writes too often")
		}
		return serve(w, r, m)
	})
}

// authenticated is a handler for machines that have registered. Their errors are logged, since their operator sees them nowhere else.
func (s *Server) authenticated(serve machineHandler) handler {
	return func(r *http.Request, token string) (respond, error) {
		m, err := s.authenticator.Authenticate(r.Context(), token)
		if err == nil {
			connlimit.Trust(r.Context(), "machine "+m.Account.String(), maxMachineConnections)
		}
		return func(w http.ResponseWriter, r *http.Request) error {
			r.Header.Del("Authorization") // which has done its part, and would be kept for as long as a watch lasts
			response.SetTimeout(w, plandelivery.AnswerTimeout)
			if err := serve(w, r, m); err != nil {
				s.writeStatus(w, r, err, m)
			}
			return nil
		}, err
	}
}

func (s *Server) limitRequests(serve machineHandler) machineHandler {
	return func(w http.ResponseWriter, r *http.Request, m *plandelivery.Machine) error {
		release, ok := s.machineLimits.requests.Acquire(m.Account.String())
		if !ok {
			return response.TooMany(time.Second, "too many requests of this machine are in progress")
		}
		defer release()
		return serve(w, r, m)
	}
}

func (s *Server) limitWatches(serve machineHandler) machineHandler {
	return func(w http.ResponseWriter, r *http.Request, m *plandelivery.Machine) error {
		ctx, release, ok := s.machineLimits.watches.Acquire(r.Context(), m.Account.String())
		if !ok {
			return response.TooMany(time.Second, "too many watches of this machine are ending")
		}
		defer release()
		return serve(w, r.WithContext(ctx), m)
	}
}
