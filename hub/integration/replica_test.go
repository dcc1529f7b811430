package integration

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/machinerequest"
	hub "github.com/drover-dev/drover/hub/server"
	"github.com/drover-dev/drover/hub/testenv"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestReplicaFillsItsCaches: a replica that does not lead reads the machine requests that its controller waits for. It would end otherwise.
func TestReplicaFillsItsCaches(t *testing.T) {
	t.Parallel()
	env.Create(t, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "elsewhere"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: new("another"), LeaseDurationSeconds: new(int32(3600)),
			RenewTime: &metav1.MicroTime{Time: time.Now()}}})
	asked := make(chan struct{})
	var once sync.Once
	replica := rest.CopyConfig(env.Config)
	replica.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if query, err := url.QueryUnescape(r.URL.RawQuery); err == nil && strings.Contains(query, "type="+rkev1.MachineRequestSecretType) {
				once.Do(func() { close(asked) })
			}
			return next.RoundTrip(r)
		})
	})
	scheme, err := hub.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(replica, ctrl.Options{
		Scheme: scheme, LeaderElection: true, LeaderElectionID: "elsewhere", LeaderElectionNamespace: metav1.NamespaceDefault,
		Metrics: server.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller: config.Controller{EnableWarmup: new(true), SkipNameValidation: new(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := (&machinerequest.Reconciler{}).SetupWithManager(t.Context(), mgr, controller.Options{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	go func() {
		select {
		case <-asked:
			cancel()
		case <-ctx.Done():
		}
	}()
	err = mgr.Start(ctx)
	select {
	case <-asked:
	default:
		t.Errorf("it has not asked for machine requests: %v", err)
	}
}
