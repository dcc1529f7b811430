//go:build e2e

package replicas

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/balancer"
	"github.com/drover-dev/drover/hub/access/replicas"
	"github.com/drover-dev/drover/hub/gateway/servingcert"
	"github.com/drover-dev/drover/hub/server"
	"github.com/drover-dev/drover/hub/server/embedded"
	"github.com/drover-dev/drover/hub/server/settings"
)

// env is a hub of three replicas, each a process of its own, on a Kubernetes API that runs in the test's.
type env struct {
	dir        string
	api        *embedded.Server
	kubeconfig string
	client     client.Client
	hubs       []*hub
	// gateways and webhooks lead to the replicas that are ready.
	gateways, webhooks *balancer.Balancer
	agents             []*agent
	// authorities and token are what users have: whom to trust, and the proof of who they are.
	authorities []byte
	token       string
	// imported counts the Clusters that were created to see controllers work.
	imported int
}

func start(t *testing.T) *env {
	t.Helper()
	dir, err := os.MkdirTemp("", "drover-replicas-")
	if err != nil {
		t.Fatal(err)
	}
	e := &env{dir: dir}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		for _, a := range e.agents {
			a.kill()
		}
		for _, h := range e.hubs {
			h.kill()
		}
		cancel()
		if e.api != nil {
			_ = e.api.Stop()
			e.checkDenied(t)
		}
		if t.Failed() {
			t.Log("logs are in", dir)
			return
		}
		_ = os.RemoveAll(dir)
	})
	log, err := os.Create(filepath.Join(dir, "api.log"))
	if err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.NewTextHandler(log, nil))
	embedded.RouteKubernetesLogs(logger)
	ctrl.SetLogger(logr.FromSlogHandler(logger.Handler()))
	e.api, err = embedded.Start(context.Background(),
		embedded.Options{DataDir: filepath.Join(dir, "data"), UnsafeNoFsync: true, Logger: logger, Audit: auditOptions(t, dir)})
	if err != nil {
		t.Fatal(err)
	}
	scheme, err := server.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	if e.client, err = client.New(e.api.RestConfig(), client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	e.kubeconfig = e.makeAccount(t, filepath.Join(dir, "hub.kubeconfig"))
	var gateways, webhooks []*balancer.Backend
	for i := range 3 {
		h := newHub(t, dir, fmt.Sprintf("hub-%d", i))
		e.hubs = append(e.hubs, h)
		gateways = append(gateways, &balancer.Backend{Address: h.gateway, Health: "https://" + h.gateway + "/healthz"})
		webhooks = append(webhooks, &balancer.Backend{Address: h.webhooks, Health: "http://" + h.health + "/readyz"})
	}
	if e.gateways, err = balancer.Start(ctx, gateways...); err != nil {
		t.Fatal(err)
	}
	if e.webhooks, err = balancer.Start(ctx, webhooks...); err != nil {
		t.Fatal(err)
	}
	for _, h := range e.hubs {
		h.configure(e.kubeconfig, "https://"+e.gateways.Addr().String(), "https://"+e.webhooks.Addr().String())
		h.start(t)
	}
	until(t, 3*time.Minute, "three replicas to be ready", func() error { return e.ready(e.hubs...) })
	until(t, time.Minute, "a Lease for each of them", func() error {
		if n := len(e.leases(t)); n != 3 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	e.makeUser(t)
	return e
}

// makeUser makes a user who may do everything, and finds out whom to trust as the install script does.
func (e *env) makeUser(t *testing.T) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "load"}}
	e.create(t, account, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "load"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{
			{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name},
			// As which a cluster knows the account, the hub's.
			{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "drover:hub:system:serviceaccount:" + account.Namespace + ":" + account.Name},
		},
	})
	request := &authenticationv1.TokenRequest{}
	if err := e.client.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatalf("making a token: %v", err)
	}
	e.token = request.Status.Token
	identity := &corev1.Secret{}
	key := client.ObjectKey{Namespace: settings.DefaultSystemNamespace, Name: servingcert.SecretName}
	if err := e.client.Get(t.Context(), key, identity); err != nil {
		t.Fatal(err)
	}
	e.authorities = identity.Data["ca.crt"]
}

// ready says which of the hubs is not ready.
func (e *env) ready(hubs ...*hub) error {
	for _, h := range hubs {
		response, err := http.Get("http://" + h.health + "/readyz")
		if err != nil {
			return err
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s", h.name, response.Status)
		}
	}
	return nil
}

// leases returns the addresses of replicas that have a Lease.
func (e *env) leases(t *testing.T) []string {
	t.Helper()
	list := &coordinationv1.LeaseList{}
	if err := e.client.List(t.Context(), list, client.InNamespace(settings.DefaultSystemNamespace),
		client.HasLabels{replicas.ReplicaLabel}); err != nil {
		t.Fatal(err)
	}
	addresses := []string{}
	for _, lease := range list.Items {
		addresses = append(addresses, lease.Annotations[replicas.AddressAnnotation])
	}
	return addresses
}

// leader returns who leads, or "" while nobody does.
func (e *env) leader(t *testing.T) string {
	t.Helper()
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: settings.DefaultSystemNamespace, Name: "drover-hub"}
	if err := e.client.Get(t.Context(), key, lease); err != nil {
		t.Fatal(err)
	}
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}

func until(t *testing.T, limit time.Duration, what string, check func() error) time.Duration {
	t.Helper()
	begin := time.Now()
	var err error
	for time.Since(begin) < limit {
		if err = check(); err == nil {
			return time.Since(begin)
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("waited %s for %s in vain: %v", limit, what, err)
	return 0
}
