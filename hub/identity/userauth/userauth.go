package userauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/util/ratelimit"
)

// The ConfigMap in which every Kubernetes API server publishes the authorities of its clients' certificates.
const (
	clientCANamespace = "kube-system"
	clientCAConfigMap = "extension-apiserver-authentication"
	clientCAKey       = "client-ca-file"
)

// Options are what an Authenticator works with. All fields are needed.
type Options struct {
	// Clientset reaches the management cluster: its TokenReview, and the ConfigMap with its clients' authorities.
	Clientset kubernetes.Interface
	// Tokens verifies the hub's own tokens.
	Tokens Verifier
	// Client reads Tokens from a cache and writes when they were used; APIReader reads them from the API itself.
	Client    client.Client
	APIReader client.Reader
	Logger    logr.Logger
}

// Authenticator is an authenticator.Request. The Audiences of its answer name the one management Cluster that the user may reach, if the
// credential is for one only; they are empty if it is for all. Headers with a credential are removed from the request.
//
// It is a manager.Runnable that runs on every replica; before Start no certificate is accepted.
type Authenticator struct {
	chain    authenticator.Request
	clientCA *dynamiccertificates.ConfigMapCAController
	uses     *usageRecorder
}

// New returns an Authenticator.
func New(opts Options) (*Authenticator, error) {
	if opts.Clientset == nil || opts.Tokens == nil || opts.Client == nil || opts.APIReader == nil {
		return nil, errors.New("creating the authentication of users: Clientset, Tokens, Client and APIReader are required")
	}
	clientCA, err := dynamiccertificates.NewDynamicCAFromConfigMapController("client-ca",
		clientCANamespace, clientCAConfigMap, clientCAKey, opts.Clientset)
	if err != nil {
		return nil, fmt.Errorf("creating the authentication by certificate: %w", err)
	}
	uses := newUsageRecorder(opts.Client, opts.Logger)
	own := &ownTokens{verifier: opts.Tokens, objects: opts.Client, live: opts.APIReader, accounts: newAccounts(opts.APIReader),
		used: uses.record, now: time.Now}
	// A token that falsely claims to be the hub's own is refused here, and not sent to the API.
	known := tokenunion.NewFailOnError(own, newReviews(opts.Clientset.AuthenticationV1().TokenReviews()))
	return &Authenticator{
		chain: group.NewAuthenticatedGroupAdder(union.New(
			x509.NewDynamic(clientCA.VerifyOptions, x509.CommonNameUserConversion),
			bearertoken.New(known),
			// Browsers cannot set Authorization when they open a WebSocket.
			websocket.NewProtocolAuthenticator(known),
		)),
		clientCA: clientCA, uses: uses,
	}, nil
}

// AuthenticateRequest finds the user who sends a request. It returns false, with or without an error, for users that the hub does not
// know. After ErrTooMany or ErrUnavailable the same credential may be accepted later; any other error must not be shown to the caller.
func (a *Authenticator) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	return a.chain.AuthenticateRequest(r.WithContext(withClientKey(r.Context(), ratelimit.ClientKey(r))))
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica authenticates.
func (a *Authenticator) NeedLeaderElection() bool { return false }

// Start watches the management cluster's client authorities, and writes when tokens were used, until ctx ends.
func (a *Authenticator) Start(ctx context.Context) error {
	go a.clientCA.Run(ctx, 1)
	a.uses.run(ctx)
	return nil
}
