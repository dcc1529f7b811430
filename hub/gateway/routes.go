package gateway

import (
	"cmp"
	"net/http"
	"runtime"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-dev/drover/hub/access/replicas"
	"github.com/drover-dev/drover/hub/gateway/agentsession"
	"github.com/drover-dev/drover/hub/gateway/plandelivery"
	"github.com/drover-dev/drover/hub/gateway/registration"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/util/connlimit"
	"github.com/drover-dev/drover/hub/util/inflight"
	"github.com/drover-dev/drover/hub/util/ratelimit"
	"github.com/drover-dev/drover/hub/util/response"
)

const (
	// answerTimeout is how long a client may take to read an answer of ordinary size, downloadTimeout one of the size of a binary.
	answerTimeout   = time.Minute
	downloadTimeout = 30 * time.Minute
	// registrationTimeout is how long a registration waits for the hub's controllers. Install scripts wait a minute at least.
	registrationTimeout = 50 * time.Second
	// maxRegistrations is how many registrations may be waiting at the same time, and maxPerToken how many of them with one token.
	maxRegistrations = 500
	maxPerToken      = maxRegistrations / 4
	// maxConnections is how many connections there may be with one credential: a registration token is that of all machines of a pool.
	maxConnections = 4096
	// maxReviews is how many requests of machines may wait at the same time until the Kubernetes API has reviewed a token that is not
	// recognized, and maxReviewsPerAddress how many of one address, behind which a whole fleet may be: where all its tokens have to be
	// reviewed, the others retry.
	maxReviews           = 1024
	maxReviewsPerAddress = maxReviews / 2
)

const (
	// caChecksumHeader is the SHA-256 of /cacerts on every answer to a machine, so that it learns of new authorities without asking for them.
	caChecksumHeader = "X-Drover-Cacerts-Checksum"
	// storedIdentityHeader tells a machine without a token that this hub supports stored identities. An agent that misses it asks for the
	// install script instead of retrying.
	storedIdentityHeader = "X-Drover-Stored-Identity"
)

// route is a row of the table of routes.
type route struct {
	// pattern is method and path, as http.ServeMux takes them.
	pattern string
	// callers may call it, within their limits.
	callers *callers
	// body is how many bytes a body may have; 0 for requests without one.
	body int64
	// answer is how long the client may take to read the answer; 0 for answerTimeout.
	answer time.Duration
	handle handler
}

// routes is the table of all endpoints; docs/gateway.md describes them. Everything else is 404.
func (s *Server) routes() []route {
	const secrets = "/api/v1/namespaces/{namespace}/secrets"
	table := []route{
		{"GET /healthz", s.anybody, 0, 0, open(s.serveHealth)},
		{"GET /cacerts", s.anybody, 0, 0, open(s.serveCACerts)},
		{"GET /system-agent-install.sh", s.anybody, 0, 0, open(s.files.ServeInstallScript)},
		{"GET /assets/{name}", s.anybody, 0, downloadTimeout, open(s.files.ServeAsset)},

		{"GET /v3/connect/agent", s.registrants, 0, 0, s.connect},
		{"GET /v3/connect/config-yaml", s.registrants, 0, 0, s.config},
		{"GET /v3/connect/cluster-info", s.registrants, 0, 0, s.clusterInfo},
		{"GET " + registration.ImportPath + "{file}", s.importers, 0, 0, s.importManifest},

		{"POST /v3/connect/credential", s.credentials, agentsession.MaxCredentialRequest, 0, s.credential},
		{"GET /v3/connect", s.agents, 0, 0, s.tunnel},
		{"GET /v3/connect/register", s.agents, 0, 0, s.tunnel},

		{"GET /version", s.machines, 0, 0, s.asMachine(s.plans.ServeVersion)},
		{"GET /api", s.machines, 0, 0, s.asMachine(s.plans.Discovery)},
		{"GET /apis", s.machines, 0, 0, s.asMachine(s.plans.Discovery)},
		{"GET /api/v1", s.machines, 0, 0, s.asMachine(s.plans.Discovery)},
		{"GET " + secrets, s.machines, 0, 0, s.asWatchingMachine(s.plans.List, s.plans.Watch)},
		{"GET " + secrets + "/{name}", s.machines, 0, 0, s.asMachine(s.plans.Get)},
		{"PUT " + secrets + "/{name}", s.machines, plandelivery.MaxUpdateBytes, 0, s.asWritingMachine(s.plans.Update)},
	}
	for _, rest := range []string{"/version", "/api", "/api/", "/apis", "/apis/", "/openapi/"} {
		table = append(table, route{rest, s.machines, 0, 0, s.asMachine(s.plans.Forbid)})
	}
	return table
}

// setupCallers sets the classes of callers.
func (s *Server) setupCallers() {
	failures := ratelimit.New(2, 30)
	unauthorized := func(err error) bool { return response.IsCode(err, http.StatusUnauthorized) }
	bearer := response.BearerToken
	hash := func(_ *http.Request, credential string) string { return tokens.Hash(credential) }

	s.anybody = &callers{}

	// Machines that register, which show a registration token, a bootstrap token, or a stored identity.
	connects := quota{ratelimit.New(10, 50), "too many registrations from this address"}
	waiting := inflight.New(maxRegistrations, maxPerToken)
	s.registrants = &callers{
		credential: bearer, failures: failures, isGuess: registration.IsGuess, known: connects, unknown: connects, knownPerAddress: true,
		recognized: func(r *http.Request, token string) bool { return s.registrar.Recognizes(r.Context(), token, r.Header) },
		key: func(r *http.Request, token string) string {
			return tokens.Hash(cmp.Or(token, r.Header.Get(registration.MachineSecretHeader)))
		},
		check: checkRegistration, knownSlots: waiting, unknownSlots: waiting, timeout: registrationTimeout,
	}
	// Whoever applies an import manifest shows a registration token in the path, and is limited as machines that register are.
	importers := *s.registrants
	importers.credential = func(r *http.Request) string {
		token, _ := registration.ParseImport(r.PathValue("file"))
		return token
	}
	importers.recognized = func(_ *http.Request, token string) bool { return s.registrar.RecognizesToken(token) }
	importers.key = hash
	importers.check = func(_ http.ResponseWriter, r *http.Request, _ string) error {
		return registration.CheckImport(r.PathValue("file"))
	}
	s.importers = &importers

	// Agents. Whole fleets may come from one address, behind a load balancer for instance, and all at once after a restart.
	slots := 64 * runtime.GOMAXPROCS(0)
	s.agents = &callers{
		credential: agentsession.TunnelToken, failures: failures, isGuess: agentsession.IsGuess,
		recognized: func(_ *http.Request, token string) bool { return s.sessions.Recognizes(token) },
		key: func(_ *http.Request, token string) string {
			return cmp.Or(tokens.RegistrationID(token), tokens.Hash(token))
		},
		known:   quota{ratelimit.New(10, 100), "too many connections with this token"},
		unknown: quota{ratelimit.New(500, 2000), "too many connections from this address"},
		check: func(_ http.ResponseWriter, r *http.Request, token string) error {
			return agentsession.CheckTunnelRequest(r, token)
		},
		knownSlots: inflight.New(slots, slots), unknownSlots: inflight.New(slots/4, slots/4),
	}
	credentials := *s.agents
	credentials.credential, credentials.cheap, credentials.check = bearer, agentsession.IsJWT, checkCredential
	s.credentials = &credentials

	// Machines that have registered, which show the token of their plan ServiceAccount.
	s.machines = &callers{
		credential: bearer, failures: failures, isGuess: unauthorized, key: hash, status: true,
		recognized: func(_ *http.Request, token string) bool { return s.authenticator.Recognizes(token) },
		check:      checkMachineToken, unknownSlots: inflight.New(maxReviews, maxReviewsPerAddress), unknownSlotsPerAddress: true,
	}
}

// checkMachineToken refuses what is no JSON Web Token, as all tokens of ServiceAccounts are: the Kubernetes API need not be asked.
func checkMachineToken(_ http.ResponseWriter, _ *http.Request, token string) error {
	if !agentsession.IsJWT(token) {
		return plandelivery.ErrUnauthorized
	}
	return nil
}

func checkRegistration(w http.ResponseWriter, r *http.Request, token string) error {
	if token == "" {
		w.Header().Set(storedIdentityHeader, "accepted")
	}
	if token == "" && r.Header.Get(registration.MachineSecretHeader) == "" || len(token) > tokens.MaxLength {
		return response.Errorf(http.StatusUnauthorized,
			"the registration token is missing: it belongs into the header Authorization, after Bearer")
	}
	return nil
}

func checkCredential(_ http.ResponseWriter, _ *http.Request, token string) error {
	if token == "" || len(token) > tokens.MaxLength {
		return response.Errorf(http.StatusUnauthorized,
			"the registration token or credential is missing: it belongs into the header Authorization, after Bearer")
	}
	return nil
}

// newHandler serves the table of routes and what is mounted beside it.
func (s *Server) newHandler() http.Handler {
	mux := http.NewServeMux()
	for _, rt := range s.routes() {
		rt.answer = cmp.Or(rt.answer, answerTimeout)
		mux.HandleFunc(rt.pattern, s.serve(rt))
	}
	outer := http.NewServeMux()
	outer.Handle("/", mux)
	for pattern, handler := range s.opts.Mounts {
		outer.Handle(pattern, s.drain.count(handler))
	}
	// The deadline is also for what a ServeMux answers on its own, such as redirects.
	limited := connlimit.LimitRequests(s.drain.closeConnections(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		response.SetTimeout(w, answerTimeout)
		outer.ServeHTTP(w, r)
	})))
	if s.opts.Peers == nil {
		return connlimit.Handler(limited)
	}
	outer.Handle("GET "+replicas.SessionsPath, s.opts.Peers)
	return connlimit.Handler(s.opts.Peers.Handler(trustPeers(limited)))
}

// trustPeers exempts the other replicas from the limits for unauthenticated clients.
func trustPeers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if replicas.FromPeer(r) {
			connlimit.Trust(r.Context(), "", 0)
		}
		next.ServeHTTP(w, r)
	})
}

// request is what a machine that registers sends.
func request(r *http.Request, token string) registration.Request {
	return registration.Request{Token: token, Headers: r.Header, Client: ratelimit.ClientAddress(r)}
}

// answerJSON answers 200 with an object.
func answerJSON(object any) respond {
	return func(w http.ResponseWriter, _ *http.Request) error {
		response.WriteJSON(w, http.StatusOK, object)
		return nil
	}
}

// answerRaw answers 200 with a body.
func answerRaw(contentType string, body []byte) respond {
	return func(w http.ResponseWriter, _ *http.Request) error {
		response.Write(w, http.StatusOK, contentType, body)
		return nil
	}
}

// connect serves GET /v3/connect/agent to machines with a registration token or a bootstrap token, or with a stored identity: it
// registers the machine and answers with a registration.Connection as JSON, or 400, 401, 403, 409, 410, 429 or 503 (docs/gateway.md).
func (s *Server) connect(r *http.Request, token string) (respond, error) {
	connection, err := s.registrar.Connect(r.Context(), request(r, token))
	if err != nil {
		return nil, err
	}
	s.log.Info("Machine connected", "Secret", types.NamespacedName{Namespace: connection.Namespace, Name: connection.SecretName},
		"client", ratelimit.ClientAddress(r))
	return answerJSON(connection), nil
}

// config serves GET /v3/connect/config-yaml to machines that have registered, with the headers of a registration: the distribution's
// configuration in the machine's own plan, as JSON.
func (s *Server) config(r *http.Request, token string) (respond, error) {
	config, err := s.registrar.Config(r.Context(), request(r, token))
	return answerRaw("application/json", config), err
}

// clusterInfo serves GET /v3/connect/cluster-info to holders of a token and machines that have registered: {"kubernetesversion": "..."}.
func (s *Server) clusterInfo(r *http.Request, token string) (respond, error) {
	info, err := s.registrar.ClusterInfo(r.Context(), request(r, token))
	return answerJSON(info), err
}

// importManifest serves GET /v3/import/<registration token>_<management cluster>.yaml to holders of a registration token for agents: the
// manifest of the cluster-agent. The path must not be logged.
func (s *Server) importManifest(r *http.Request, _ string) (respond, error) {
	manifest, err := s.registrar.ImportManifest(r.Context(), r.PathValue("file"), ratelimit.ClientAddress(r))
	return answerRaw("application/yaml", manifest), err
}

// credential serves POST /v3/connect/credential to holders of a registration token for agents, and to agents: an agentsession.Credential
// as JSON.
func (s *Server) credential(r *http.Request, token string) (respond, error) {
	credential, err := s.sessions.Issue(r, token)
	return answerJSON(credential), err
}

// tunnel serves GET /v3/connect and /v3/connect/register to agents and machines: a websocket, which becomes a session of package tunnel.
func (s *Server) tunnel(r *http.Request, token string) (respond, error) {
	caller, err := s.sessions.Authenticate(r, token)
	return func(w http.ResponseWriter, r *http.Request) error {
		s.sessions.Serve(w, r, caller)
		return nil
	}, err
}
