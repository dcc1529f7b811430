// Package tunnelaccess is how the hub's own controllers reach a cluster that takes no connections: through the gateway and the tunnel of
// the cluster's agent, with a token of the hub's own that is kept in the cluster's kubeconfig Secret. It makes those kubeconfigs, reports
// whether one is still good, and revokes tokens that are no longer in use.
//
// It must not decide whether a cluster is better reached so or directly.
package tunnelaccess

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/access/clusteragent"
	"github.com/drover-dev/drover/hub/access/kubeconfig"
	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/identity/pki"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/identity/userauth"
	"github.com/drover-dev/drover/hub/identity/usertokens"
	"github.com/drover-dev/drover/hub/server/settings"
)

const (
	// tokenTTL is how long a token of the hub's own is good, and renewBefore how long before its end it is replaced, so that copies of a
	// kubeconfig, as clusterctl makes them, are good for ten days at least.
	tokenTTL    = 30 * 24 * time.Hour
	renewBefore = 10 * 24 * time.Hour
	// probeTTL is for a token that is used once.
	probeTTL = time.Minute

	// maxHeader is how many bytes of the header of an answer are read of a server whose body is not.
	maxHeader = 64 << 10

	// ownLabel marks the Tokens of the hub's own; its value is the management Cluster.
	ownLabel = "management.cattle.io/hub-access-to"
)

// Handover is how long a token that was replaced is still good: whoever reads the Secret has read the new one by then.
const Handover = 10 * time.Minute

// leeway is by how much another replica, which has made a token, may have had its clock ahead.
const leeway = time.Minute

// Presence tells which sessions of agents there are.
type Presence interface {
	Connected(key string) bool
	// OnChange registers what is called when the first session of a key has come or its last has gone. It must not block.
	OnChange(changed func(key string))
}

// Access makes kubeconfigs that lead through tunnels.
type Access struct {
	Settings settings.Settings
	Presence Presence
	Issue    usertokens.Issue
	// Verify returns an error for a token that Issue has not signed with the key that the hub has now.
	Verify func(token string) error
	// Client reads from the cache and writes, Live reads past the cache.
	Client client.Client
	Live   client.Reader
	Now    func() time.Time
}

// Connected reports whether the agent of a cluster has a session, on whichever replica.
func (a *Access) Connected(management string) bool {
	return a != nil && management != "" && a.Presence.Connected(management)
}

// OnChange registers what is called when the agent of a cluster has come or gone. It must not block.
func (a *Access) OnChange(changed func(management string)) {
	if a != nil {
		a.Presence.OnChange(changed)
	}
}

// Server is where a cluster is reached through the hub.
func (a *Access) Server(management string) string {
	return a.Settings.ServerURL + "/k8s/clusters/" + management
}

// hubUser is as whom controllers act. administrator is for clusters of which the hub has the authority, and could be that anyway.
func hubUser(administrator bool) user.Info {
	if administrator {
		return &user.DefaultInfo{Name: userauth.HubUser, Groups: []string{user.SystemPrivilegedGroup}}
	}
	return &user.DefaultInfo{Name: userauth.HubUser, Groups: []string{clusteragent.ControllersGroup}}
}

// Answers tells by a request whether the cluster's API is reached through its tunnel, exactly as a kubeconfig of this package would reach
// it.
func (a *Access) Answers(ctx context.Context, management string, administrator bool) error {
	token, err := a.Issue(hubUser(administrator), management, probeTTL, "probe", false)
	if err != nil {
		return fmt.Errorf("signing a token: %w", err)
	}
	return get(ctx, &rest.Config{
		Host: a.Server(management), BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: a.Settings.CACerts},
	}, func(code int) bool { return code == http.StatusOK })
}

// ErrUnauthorized is returned by Direct where the server refuses the client certificate.
var ErrUnauthorized = errors.New("the server refuses the client certificate")

// IsUntrusted reports whether an error of Direct means that the server presents a certificate that is of none of the authorities.
func IsUntrusted(err error) bool {
	var unknown x509.UnknownAuthorityError
	return errors.As(err, &unknown)
}

// Direct tells by a request whether a server with a certificate of one of the authorities answers, and accepts a client certificate. A nil
// credential sends none, which servers may answer as they like.
func Direct(ctx context.Context, server string, authorities []byte, credential *pki.Pair) error {
	config := &rest.Config{Host: server, TLSClientConfig: rest.TLSClientConfig{CAData: authorities}}
	if credential == nil {
		return get(ctx, config, func(code int) bool { return code < http.StatusInternalServerError })
	}
	key, err := credential.KeyPEM()
	if err != nil {
		return err
	}
	config.CertData, config.KeyData = credential.CertPEM(), key
	refused := false
	err = get(ctx, config, func(code int) bool {
		refused = code == http.StatusUnauthorized
		return code < http.StatusInternalServerError
	})
	if err == nil && refused {
		return ErrUnauthorized
	}
	return err
}

// get asks whether an API server is ready, over a connection of its own.
func get(ctx context.Context, config *rest.Config, good func(code int) bool) error {
	config.Dial, config.DisableCompression = nil, true
	transport, err := rest.TLSConfigFor(config)
	if err != nil {
		return fmt.Errorf("preparing TLS: %w", err)
	}
	plain := &http.Transport{TLSClientConfig: transport, Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true,
		MaxResponseHeaderBytes: maxHeader}
	wrapped, err := rest.HTTPWrappersForConfig(config, plain)
	if err != nil {
		return fmt.Errorf("preparing a request: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/readyz", nil)
	if err != nil {
		return fmt.Errorf("preparing a request: %w", err)
	}
	answer, err := wrapped.RoundTrip(request)
	if err != nil {
		return withProxy(request, err, plain.Proxy)
	}
	if err := answer.Body.Close(); err != nil {
		return err
	}
	if !good(answer.StatusCode) {
		return fmt.Errorf("the answer is %s", answer.Status)
	}
	return nil
}

// withProxy adds to the error of a request which proxy it was sent to, if any.
func withProxy(request *http.Request, err error, proxyOf func(*http.Request) (*url.URL, error)) error {
	proxy, proxyErr := proxyOf(request)
	if proxyErr != nil || proxy == nil {
		return err
	}
	return fmt.Errorf("through proxy %s (%s is not in NO_PROXY): %w", proxy.Host, request.URL.Hostname(), err)
}

// errNoCluster is returned while the management Cluster is not there.
var errNoCluster = errors.New("the management Cluster is not there")

// Kubeconfig makes a kubeconfig with a new token. name is that of the Cluster.
func (a *Access) Kubeconfig(ctx context.Context, name, management string, administrator bool) ([]byte, error) {
	cluster := &managementv3.Cluster{}
	if err := a.Client.Get(ctx, client.ObjectKey{Name: management}, cluster); err != nil {
		return nil, fmt.Errorf("reading the management Cluster %s: %w", management, err)
	}
	if !cluster.DeletionTimestamp.IsZero() {
		return nil, errNoCluster
	}
	token, _, err := usertokens.Persistent{
		User: hubUser(administrator), Cluster: cluster, TTL: tokenTTL, Labels: map[string]string{ownLabel: management},
		Description: "kubeconfig Secret of the hub's own controllers",
	}.Create(ctx, a.Client, a.Issue, a.Now())
	if err != nil {
		return nil, err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: a.Server(management), CertificateAuthorityData: a.Settings.CACerts}
	config.AuthInfos[name+"-admin"] = &clientcmdapi.AuthInfo{Token: token}
	config.CurrentContext = name + "-admin@" + name
	config.Contexts[config.CurrentContext] = &clientcmdapi.Context{Cluster: name, AuthInfo: name + "-admin"}
	raw, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encoding a kubeconfig: %w", err)
	}
	return raw, nil
}

// UsesTunnel reports whether a kubeconfig reaches a cluster through the hub and its tunnel.
func (a *Access) UsesTunnel(raw []byte, management string) bool {
	if a == nil || management == "" {
		return false
	}
	config, err := kubeconfig.RESTConfig(raw)
	return err == nil && config.Host == a.Server(management)
}

// Good reports whether such a kubeconfig need not be replaced: the hub is known by its authorities, and the token is there and lasts. One
// that was signed with an earlier key of the hub has a Token still, and the gateway refuses it.
func (a *Access) Good(ctx context.Context, raw []byte, management string, administrator bool) (bool, error) {
	config, err := kubeconfig.RESTConfig(raw)
	if err != nil || !bytes.Equal(config.CAData, a.Settings.CACerts) || config.BearerToken == "" || a.Verify(config.BearerToken) != nil {
		return false, nil
	}
	hash := tokens.Hash(config.BearerToken)
	// A token that has just been made may be ahead of the cache.
	for _, reader := range []client.Reader{a.Client, a.Live} {
		own, err := own(ctx, reader, management)
		if err != nil {
			return false, err
		}
		i := slices.IndexFunc(own, func(t managementv3.Token) bool { return t.Spec.Hash == hash })
		if i >= 0 {
			t := &own[i]
			lasts := t.DeletionTimestamp.IsZero() && t.Spec.ExpiresAt.Sub(a.Now()) > renewBefore && !a.fromFuture(t)
			return lasts && slices.Equal(t.Spec.User.Groups, hubUser(administrator).GetGroups()), nil
		}
	}
	return false, nil
}

// Revoke deletes the tokens for a cluster that no kubeconfig holds any more, except those that were made a moment ago. raw is the one
// in use, which may be of any kind.
func (a *Access) Revoke(ctx context.Context, raw []byte, management string) error {
	if a == nil || management == "" {
		return nil
	}
	own, err := own(ctx, a.Client, management)
	if err != nil || len(own) == 0 {
		return err
	}
	inUse := ""
	if config, err := kubeconfig.RESTConfig(raw); err == nil && config.BearerToken != "" {
		inUse = tokens.Hash(config.BearerToken)
	}
	var newest time.Time
	for i := range own {
		if made := own[i].Spec.ExpiresAt.Add(-tokenTTL); made.After(newest) && !a.fromFuture(&own[i]) {
			newest = made
		}
	}
	if a.Now().Sub(newest) < Handover {
		return nil
	}
	for i := range own {
		if t := &own[i]; t.Spec.Hash != inUse && t.DeletionTimestamp.IsZero() {
			if err := a.Client.Delete(ctx, t); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("deleting Token %s: %w", t.Name, err)
			}
		}
	}
	return nil
}

// fromFuture reports whether a token of the hub's own was made while the clock was ahead: the hub refuses it until then.
func (a *Access) fromFuture(t *managementv3.Token) bool {
	return t.Spec.ExpiresAt.Add(-tokenTTL).After(a.Now().Add(leeway))
}

// ClusterOf names the management Cluster that a Token of the hub's own is for; empty for all others.
func ClusterOf(token client.Object) string { return token.GetLabels()[ownLabel] }

// own are the Tokens of the hub's own for a cluster.
func own(ctx context.Context, reader client.Reader, management string) ([]managementv3.Token, error) {
	var list managementv3.TokenList
	if err := reader.List(ctx, &list, client.MatchingLabels{ownLabel: management}); err != nil {
		return nil, fmt.Errorf("listing the hub's own tokens: %w", err)
	}
	return list.Items, nil
}
