package server

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/kubernetes"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/drover-dev/drover/hub/access/apiproxy"
	"github.com/drover-dev/drover/hub/access/machinessh"
	"github.com/drover-dev/drover/hub/access/replicas"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/gateway/agentsession"
	"github.com/drover-dev/drover/hub/identity/userauth"
	"github.com/drover-dev/drover/hub/util/ssa"
)

// reviewTTL is how long the management cluster's word on what a user may do is kept, so that taking a right away works within seconds; its
// no is kept shorter, since whoever has just been given a right tries again.
const (
	reviewTTL  = 10 * time.Second
	refusalTTL = 2 * time.Second
)

// reviewUsers asks the management cluster what users may do.
func reviewUsers(clientset kubernetes.Interface) (authorizer.Authorizer, error) {
	reviews, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: clientset.AuthorizationV1(),
		AllowCacheTTL:             reviewTTL,
		DenyCacheTTL:              refusalTTL,
		WebhookRetryBackoff:       &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 3},
	}.New()
	if err != nil {
		return nil, fmt.Errorf("making the authorization of users: %w", err)
	}
	return reviews, nil
}

// addProxy sets up the API proxy for users and its audit log.
func (l *listener) addProxy(mgr ctrl.Manager, users authenticator.Request, reviews authorizer.Authorizer, opts Options) (err error) {
	if l.audit, err = apiproxy.NewAuditLog(opts.Audit); err != nil {
		return err
	}
	l.proxy, err = apiproxy.New(apiproxy.Options{
		Authenticator: users,
		Authorizer:    reviews,
		Clusters:      mgr.GetClient(),
		Tunnels:       l.tunnels,
		Remote:        l.directory,
		FromPeer:      replicas.FromPeer,
		Audit:         l.audit,
		Registerer:    metrics.Registry,
		Logger:        logr.FromSlogHandler(opts.Logger.Handler()).WithName("apiproxy"),
	})
	return err
}

// addMachineSSH sets up the way to the SSH servers of machines for users.
func (l *listener) addMachineSSH(mgr ctrl.Manager, users authenticator.Request, reviews authorizer.Authorizer, opts Options) {
	l.ssh = machinessh.New(machinessh.Options{
		Authenticator: users,
		Authorizer:    reviews,
		Client:        mgr.GetClient(),
		Live:          mgr.GetAPIReader(),
		TunnelKey: func(ctx context.Context, machine *clusterv1.Machine) (string, error) {
			return agentsession.TunnelKey(ctx, mgr.GetClient(), machine)
		},
		Tunnels:  l.tunnels,
		Remote:   l.directory,
		FromPeer: replicas.FromPeer,
		Logger:   logr.FromSlogHandler(opts.Logger.Handler()).WithName("machinessh"),
	})
}

// proxyRole is the name of the ClusterRole, and of its binding, by which the hub's own controllers reach every cluster through the proxy.
const proxyRole = "drover:hub-proxy"

// grantProxy lets the hub's own user through the proxy, as any other user is let through.
func grantProxy(ctx context.Context, c client.Client) error {
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: proxyRole},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{provisioningv1.GroupVersion.Group, clusterv1.GroupVersion.Group}, Resources: []string{"clusters/proxy"},
			Verbs: []string{"get"},
		}},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: proxyRole},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: proxyRole},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: userauth.HubUser}},
	}
	for _, object := range []client.Object{role, binding} {
		if err := ssa.Apply(ctx, c, client.FieldOwner("drover-hub"), object); err != nil {
			return fmt.Errorf("granting the hub access to its clusters: %w", err)
		}
	}
	return nil
}
