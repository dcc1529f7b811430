package gateway

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/connlimit"
	"github.com/drover-dev/drover/hub/ratelimit"
	"github.com/drover-dev/drover/hub/settings"
	"github.com/drover-dev/drover/hub/tokens"
)

const (
	// connectTimeout is how long a registration waits for the hub's controllers. Install scripts wait a minute at least.
	connectTimeout = 50 * time.Second
	// maxConnects is how many registrations may be waiting at once.
	maxConnects = 500
	// comeAgain is when a machine should ask again for what takes longer.
	comeAgain = 5 * time.Second
)

// registrar hands out connections to machines that are entitled to one.
type registrar struct {
	settings   settings.Settings
	signingKey ed25519.PublicKey
	client     client.Client
	live       client.Reader
	sources    *sources
	tokens     *registrationTokens
	log        logr.Logger
	timeout    time.Duration
	slots      chan struct{}
	// refusals limits by machine what is logged of those who come as a known machine.
	refusals *ratelimit.Limiter
}

func newRegistrar(opts Options, sources *sources) *registrar {
	return &registrar{
		settings: opts.Settings, signingKey: opts.SigningKey, client: opts.Client, live: opts.APIReader, sources: sources, log: opts.Logger,
		tokens: &registrationTokens{
			secrets: sources.registrationTokens.GetIndexer(), live: opts.APIReader, client: opts.Client, now: time.Now, log: opts.Logger,
		},
		timeout: connectTimeout, slots: make(chan struct{}, maxConnects), refusals: ratelimit.New(1.0/60, 5),
	}
}

// serveConnect registers the calling machine and answers with its connection.
func (s *Server) serveConnect(w http.ResponseWriter, r *http.Request) {
	answer, err := admit(s, w, r, s.joins.connect)
	if err != nil {
		s.writePlain(w, r, err)
		return
	}
	s.log.Info("Machine connected", "Secret", types.NamespacedName{Namespace: answer.Namespace, Name: answer.SecretName}, "client", ratelimit.ClientAddress(r))
	writeJSON(w, http.StatusOK, answer)
}

// admit lets a machine ask that shows a token or its stored identity, and bounds how often and for how long.
func admit[T any](s *Server, w http.ResponseWriter, r *http.Request, ask func(ctx context.Context, token string, headers http.Header) (T, error)) (answer T, err error) {
	token := bearerToken(r)
	recognized := token == "" && s.joins.recognizesStored(r.Context(), r.Header) || s.joins.recognizes(token)
	if err := s.mayRegister(r, token, recognized); err != nil {
		return answer, err
	}
	defer func() {
		var refused *refusal
		if errors.As(err, &refused) && refused.code == http.StatusUnauthorized {
			s.failures.Take(ratelimit.ClientKey(r))
		}
		if err == nil {
			connlimit.Trust(r.Context())
		}
	}()
	if token == "" {
		w.Header().Set(storedIdentityHeader, "accepted")
	}
	if token == "" && r.Header.Get(machineSecretHeader) == "" || len(token) > maxTokenLength {
		return answer, refuse(http.StatusUnauthorized, "the registration token is missing: it belongs into the header Authorization, after Bearer")
	}
	if !s.sources.synced() {
		return answer, errStarting
	}
	select {
	case s.joins.slots <- struct{}{}:
		defer func() { <-s.joins.slots }()
	default:
		return answer, later(comeAgain, "the hub is busy with other registrations")
	}
	writeWithin(w, s.joins.timeout+answerTimeout)
	ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), clientContextKey{}, ratelimit.ClientAddress(r)), s.joins.timeout)
	defer cancel()
	answer, err = ask(ctx, token, r.Header)
	if errors.Is(err, context.DeadlineExceeded) && r.Context().Err() == nil {
		s.log.Info("Registration timed out", "reason", err.Error(), "client", ratelimit.ClientAddress(r))
		return answer, later(comeAgain, "the hub took too long to answer")
	}
	return answer, err
}

// mayRegister limits registrations. Those with something that the hub has given out count for that and their address, so that nothing that
// strangers do at the same address counts for them.
func (s *Server) mayRegister(r *http.Request, token string, recognized bool) error {
	key := ratelimit.ClientKey(r)
	if recognized {
		if token == "" {
			token = r.Header.Get(machineSecretHeader)
		}
		key += " " + tokens.Hash(token)
	}
	if wait, ok := s.connects.Take(key); !ok {
		return &refusal{http.StatusTooManyRequests, "too many registrations from this address", max(wait, time.Second)}
	}
	if !recognized && s.failures.Empty(key) {
		return &refusal{http.StatusTooManyRequests, "too many registrations with wrong tokens from this address", comeAgain}
	}
	return nil
}

// connect tells by the token in which of three ways the machine comes: as one that is known and has none, as one that the hub had made and
// that has a token of its own, or as one that somebody adds to a cluster.
func (g *registrar) connect(ctx context.Context, token string, headers http.Header) (*connection, error) {
	if token == "" {
		return g.connectKnown(ctx, headers)
	}
	made, err := g.bootstrapSecret(token)
	if err != nil {
		return nil, err
	}
	if made != nil {
		return g.connectMade(ctx, made, headers)
	}
	registrationToken, err := g.tokens.find(ctx, token, managementv3.MachinesPurpose)
	if err != nil {
		return nil, err
	}
	return g.connectCustom(ctx, registrationToken, headers)
}

// bootstrapSecret returns the Secret of a token that is in bootstrap data, or nil for any other.
func (g *registrar) bootstrapSecret(token string) (*corev1.Secret, error) {
	made, err := g.sources.secretsBy(byTokenHash, bootstrapTokenIndex(token))
	if err != nil {
		return nil, err
	}
	for _, secret := range made {
		if secret.Annotations[rkev1.BootstrapTokenAnnotation] == "true" {
			return secret, nil
		}
	}
	return nil, nil
}

// credentials waits until the machine of an RKEBootstrap can be given access to its plan Secret, and answers with it.
func (g *registrar) credentials(ctx context.Context, bootstrap *rkev1.RKEBootstrap) (*connection, error) {
	account := types.NamespacedName{Namespace: bootstrap.Namespace, Name: rkev1.PlanSecretName(bootstrap.Name)}
	changed, cancel := g.sources.changed.subscribe(accountSubject(account.Namespace, account.Name))
	defer cancel()
	for {
		token, err := g.planToken(ctx, account, bootstrap)
		if err != nil {
			return nil, err
		}
		if token != nil {
			return newConnection(g.settings, g.signingKey, account.Namespace, account.Name, token)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, later(comeAgain, "waiting for the hub to make the credentials of this machine (ServiceAccount %s)", account)
		}
	}
}

// planToken returns the token of the plan ServiceAccount of an RKEBootstrap, or nil where there is none yet.
func (g *registrar) planToken(ctx context.Context, name types.NamespacedName, bootstrap *rkev1.RKEBootstrap) ([]byte, error) {
	secrets, err := g.sources.secretsBy(byAccount, accountSubject(name.Namespace, name.Name))
	if err != nil || len(secrets) == 0 {
		return nil, err
	}
	account := &corev1.ServiceAccount{}
	if err := g.live.Get(ctx, name, account); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading ServiceAccount %s: %w", name, err)
	}
	// With a token of an account that was made by somebody else the machine would not get in anyway.
	if !bootstrap.Owns(account) {
		return nil, nil
	}
	for _, secret := range secrets {
		token := secret.Data[corev1.ServiceAccountTokenKey]
		if len(token) > 0 && secret.Annotations[corev1.ServiceAccountUIDKey] == string(account.UID) && secret.DeletionTimestamp.IsZero() {
			return token, nil
		}
	}
	return nil, nil
}
