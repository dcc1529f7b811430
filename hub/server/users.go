package server

import (
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/drover-dev/drover/hub/access/apiproxy"
	"github.com/drover-dev/drover/hub/access/machinessh"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/identity/userauth"
	"github.com/drover-dev/drover/hub/identity/usertokens"
)

// addUsers returns what the gateway serves to people, by pattern.
func addUsers(mgr ctrl.Manager, issuer *tokens.Issuer, listener *listener, opts Options) (map[string]http.Handler, error) {
	clientset, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("making the client of the authentication of users: %w", err)
	}
	log := logr.FromSlogHandler(opts.Logger.Handler())
	users, err := userauth.New(userauth.Options{
		Clientset: clientset, Tokens: issuer, Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Logger: log.WithName("userauth"),
	})
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(users); err != nil {
		return nil, fmt.Errorf("adding the authentication of users: %w", err)
	}
	reviews, err := reviewUsers(clientset)
	if err != nil {
		return nil, err
	}
	if err := listener.addProxy(mgr, users, reviews, opts); err != nil {
		return nil, err
	}
	listener.addMachineSSH(mgr, users, reviews, opts)
	own := usertokens.NewHandler(usertokens.Handler{
		Authenticator: users, Allowed: usertokens.Review(mgr.GetClient()), Issue: issueUserTokens(issuer), Client: mgr.GetClient(),
		Logger: log.WithName("usertokens"),
	})
	mounts := map[string]http.Handler{usertokens.Path: own, usertokens.NamePath: own, machinessh.Pattern: listener.ssh}
	for _, prefix := range apiproxy.Prefixes {
		mounts[prefix] = listener.proxy
	}
	return mounts, nil
}

// issueUserTokens has users' tokens signed by the hub's key.
func issueUserTokens(issuer *tokens.Issuer) usertokens.Issue {
	return func(u user.Info, cluster string, ttl time.Duration, id string, persistent bool) (string, error) {
		holder := tokens.User{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra()}
		return issuer.UserToken(holder, cluster, ttl, id, persistent)
	}
}

// verifyUserTokens verifies that users' tokens are signed by the hub's key, and valid now.
func verifyUserTokens(issuer *tokens.Issuer) func(token string) error {
	return func(token string) error {
		_, err := issuer.VerifyUser(token, time.Now())
		return err
	}
}
