// Package registration lets machines into clusters: it checks registration tokens, bootstrap tokens and stored identities, asks for the
// Machine of a new custom machine by a machine request, and hands out the connection to the machine's plan Secret.
//
// It writes machine requests, the hash of the secret by which a machine proves its identity, and who has used a registration token. It
// must not create Machines or their credentials: controllers do.
package registration

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/gateway/secretcache"
	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/hub/util/message"
	"github.com/drover-dev/drover/hub/util/ratelimit"
	"github.com/drover-dev/drover/hub/util/response"
)

// Options are what a Registrar works with. All fields but SigningKey are needed.
type Options struct {
	// Settings has URL and authorities of the hub, which go into connections.
	Settings settings.Settings
	// SigningKey is the key that the hub signs plans with; nil if it does not sign plans.
	SigningKey ed25519.PublicKey
	// Client reads from caches and writes with the hub's identity.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Informers are those that Client reads from.
	Informers cache.Informers
	// Secrets holds registration tokens and machine requests.
	Secrets *secretcache.Cache
	// Logger of registrations.
	Logger logr.Logger
}

// Registrar hands out connections to machines that are entitled to one. Its errors are *response.Error, or faults of the hub.
type Registrar struct {
	Options
	// Tokens checks registration tokens.
	Tokens *Tokens
	// refusals limits by machine what is logged of machines that failed to prove their identity.
	refusals *ratelimit.Limiter
}

// New returns a Registrar.
func New(opts Options) *Registrar {
	return &Registrar{Options: opts, refusals: ratelimit.New(1.0/60, 5), Tokens: newTokens(opts)}
}

// IsGuess reports whether an error is the answer to a credential that may have been guessed: a 401, or that a token is not known yet.
func IsGuess(err error) bool {
	return response.IsCode(err, http.StatusUnauthorized) || isAhead(err)
}

// Request is what a machine sends.
type Request struct {
	// Token is a registration token or a bootstrap token; empty for a machine that shows its stored identity.
	Token string
	// Headers are described in docs/gateway.md, section Registration.
	Headers http.Header
	// Client is the IP address that the request came from.
	Client string
}

// Connection is the answer to a registration; it becomes the machine's connection file.
type Connection struct {
	// KubeConfig is for the gateway, with the token of the plan ServiceAccount.
	KubeConfig string `json:"kubeConfig"`
	// Namespace of the plan Secret.
	Namespace string `json:"namespace"`
	// SecretName is the name of the plan Secret.
	SecretName string `json:"secretName"`
	// PlanSigningKey is the ed25519 public key, base64; left out if plans are not signed. Legacy agents ignore it.
	PlanSigningKey string `json:"planSigningKey,omitempty"`
}

// Connect registers a machine, or finds the one that it proves to be, and returns its connection. It waits for controllers until ctx
// ends, with a retryable error.
func (g *Registrar) Connect(ctx context.Context, req Request) (*Connection, error) {
	found, err := g.resolve(ctx, req)
	if err != nil {
		return nil, err
	}
	bootstrap := found.bootstrap
	switch {
	case found.token != nil:
		bootstrap, err = g.connectCustom(ctx, found.token, req)
	case !found.proven:
		err = g.connectProvisioned(ctx, bootstrap, req)
	}
	if err != nil {
		return nil, err
	}
	return g.awaitConnection(ctx, bootstrap)
}

// credential is what the token or the stored identity of a request leads to.
type credential struct {
	// bootstrap is the one RKEBootstrap that a bootstrap token or a stored identity is for.
	bootstrap *rkev1.RKEBootstrap
	// proven is set if the machine has proven that it is the one of bootstrap.
	proven bool
	// token is set instead of bootstrap for a registration token.
	token *managementv3.ClusterRegistrationToken
}

func (g *Registrar) resolve(ctx context.Context, req Request) (found credential, err error) {
	if req.Token == "" {
		found.proven = true
		found.bootstrap, err = g.stored(ctx, req.Headers)
		return found, err
	}
	err = g.Tokens.whileUnknown(ctx, req.Token, func() (err error) {
		found, err = g.lookUp(ctx, req.Token)
		return err
	})
	return found, err
}

// lookUp looks a bootstrap token or a registration token up once.
func (g *Registrar) lookUp(ctx context.Context, token string) (found credential, err error) {
	if secrets := g.Secrets.BootstrapToken(token); len(secrets) > 0 {
		found.bootstrap, err = g.bootstrapOf(ctx, token, secrets)
	} else {
		found.token, err = g.Tokens.find(ctx, token, managementv3.MachinesPurpose)
	}
	return found, err
}

// awaitConnection waits until the plan ServiceAccount of an RKEBootstrap has a token.
func (g *Registrar) awaitConnection(ctx context.Context, bootstrap *rkev1.RKEBootstrap) (*Connection, error) {
	account := types.NamespacedName{Namespace: bootstrap.Namespace, Name: rkev1.PlanSecretName(bootstrap.Name)}
	changed, cancel := g.Secrets.SubscribeAccount(account)
	defer cancel()
	for {
		token, err := g.planToken(ctx, account, bootstrap)
		if err != nil {
			return nil, err
		}
		if token != nil {
			return newConnection(g.Settings, g.SigningKey, account, token)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, g.waitingForCredentials(ctx, bootstrap, account)
		}
	}
}

const (
	// problemTimeout bounds the request for why a machine has no credentials, maxProblem what the machine reads of it, in bytes.
	problemTimeout = 2 * time.Second
	maxProblem     = 512
)

// waitingForCredentials asks a machine to come again when ctx has ended, with why it has no credentials, where the hub has found that: a
// quota for Secrets, for instance. Whoever installs the machine may not see the RKEBootstrap.
func (g *Registrar) waitingForCredentials(ctx context.Context, bootstrap *rkev1.RKEBootstrap, account types.NamespacedName) error {
	why := ""
	if errors.Is(ctx.Err(), context.DeadlineExceeded) { // else nobody reads the answer
		reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), problemTimeout)
		defer cancel()
		now := &rkev1.RKEBootstrap{}
		err := g.Live.Get(reading, client.ObjectKeyFromObject(bootstrap), now)
		if c := conditions.Get(now, rkev1.IdentityReadyCondition); err == nil && c != nil && c.Status == metav1.ConditionFalse {
			why = ": " + message.Bound(c.Message, maxProblem)
		}
	}
	return response.Retry(response.DefaultRetry, "waiting for the hub to create the credentials of this machine (ServiceAccount %s)%s",
		account, why)
}

// planToken returns the token of the plan ServiceAccount of an RKEBootstrap, or nil if there is none yet.
func (g *Registrar) planToken(ctx context.Context, name types.NamespacedName, bootstrap *rkev1.RKEBootstrap) ([]byte, error) {
	secrets := g.Secrets.AccountTokens(name)
	if len(secrets) == 0 {
		return nil, nil
	}
	account := &corev1.ServiceAccount{}
	if err := g.get(ctx, name, account, nil); err != nil {
		return nil, err
	}
	// With a token of an account that somebody else created the machine would not be let in.
	if account.UID == "" || !bootstrap.Owns(account) {
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

// newConnection returns the connection to a plan Secret for the holder of a token. Agents expect the name "agent" in the kubeconfig.
func newConnection(s settings.Settings, key ed25519.PublicKey, secret types.NamespacedName, token []byte) (*Connection, error) {
	const name = "agent"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: s.ServerURL, CertificateAuthorityData: s.CACerts}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: string(token)}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	encoded, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encoding a kubeconfig: %w", err)
	}
	return &Connection{
		KubeConfig: string(encoded), Namespace: secret.Namespace, SecretName: secret.Name, PlanSigningKey: base64.StdEncoding.EncodeToString(key),
	}, nil
}

// get reads an object from the API. For one that does not exist it returns missing, which may be nil: the object is then left without a
// UID.
func (g *Registrar) get(ctx context.Context, name types.NamespacedName, object client.Object, missing error) error {
	err := g.Live.Get(ctx, name, object)
	switch {
	case apierrors.IsNotFound(err):
		return missing
	case err != nil:
		return fmt.Errorf("reading %s %s: %w", reflect.TypeOf(object).Elem().Name(), name, err)
	}
	return nil
}
