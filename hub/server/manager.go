package server

import (
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-api/feature"
	"sigs.k8s.io/cluster-api/util/secret"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/drover-dev/drover/hub/access/replicas"
	"github.com/drover-dev/drover/hub/api/provider"
	"github.com/drover-dev/drover/hub/server/capi"
	"github.com/drover-dev/drover/hub/util/intern"
	"github.com/drover-dev/drover/hub/util/managedfields"
	"github.com/drover-dev/drover/hub/util/patch"
	"github.com/drover-dev/drover/hub/util/plansecrets"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// NewScheme returns a scheme with every type that the hub handles.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		capi.AddToScheme, provisioningv1.AddToScheme, rkev1.AddToScheme, managementv3.AddToScheme, operationv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("adding types to scheme: %w", err)
		}
	}
	return scheme, nil
}

// controllersStopWithin is the time that controllers have to end what they do. Their requests are broken off at once, so that they need a
// moment only. But the queue of a busy controller may stop for good when it is to end, which the next minor version of controller-runtime
// fixes (https://github.com/kubernetes-sigs/controller-runtime/issues/3538), and until then another replica waits for the Lease.
const controllersStopWithin = 3 * time.Second

func newManager(opts Options, restConfig *rest.Config, scheme *runtime.Scheme, certificate *capi.Certificate,
	persistent *lifetime) (ctrl.Manager, error) {
	webhooks, err := webhookServer(opts.WebhookListen, certificate)
	if err != nil {
		return nil, err
	}
	handler := opts.LogHandler
	if handler == nil {
		handler = opts.Logger.Handler()
	}
	return ctrl.NewManager(restConfig, ctrl.Options{
		Scheme: scheme,
		Logger: logr.FromSlogHandler(handler),
		Controller: config.Controller{
			UsePriorityQueue: new(feature.Gates.Enabled(feature.PriorityQueue)),
			CacheSyncTimeout: 5 * time.Minute,
			// A replica that does not lead knows all that there is to be done, and begins with it at once when it does.
			EnableWarmup: new(opts.LeaderElection),
		},
		Cache:                         cacheOptions(opts.Settings.SystemNamespace),
		NewCache:                      persistent.newCache,
		Client:                        clientOptions(),
		NewClient:                     patch.NewClient,
		LeaderElection:                opts.LeaderElection,
		LeaderElectionID:              LeaderElectionID(opts.Providers),
		LeaderElectionNamespace:       opts.Settings.SystemNamespace,
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       new(controllersStopWithin),
		HealthProbeBindAddress:        opts.HealthListen,
		PprofBindAddress:              opts.PprofListen,
		Metrics:                       server.Options{BindAddress: opts.MetricsListen},
		WebhookServer:                 &persistentWebhooks{webhooks, persistent},
	})
}

// LeaderElectionID returns the name of the Lease of the replicas that run these providers: they compete for it with each other and with
// nobody else.
func LeaderElectionID(providers provider.Set) string {
	if providers.Complete() {
		return "drover-hub"
	}
	return "drover-hub-" + strings.Join(providers.Names(), "-")
}

func webhookServer(listen string, certificate *capi.Certificate) (webhook.Server, error) {
	host, portText, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, fmt.Errorf("--webhook-listen: must be [host]:port, got %q: %w", listen, err)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("--webhook-listen: the port must be a number, got %q", listen)
	}
	return webhook.NewServer(webhook.Options{
		Host: host,
		Port: int(port),
		TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.GetCertificate = certificate.Get
		}},
	}), nil
}

// cacheOptions keep of Secrets what controllers watch for: the metadata of all, and the content of those that belong to machines and
// clusters. A hub that lives in somebody's cluster must not hold all of that cluster's Secrets in memory.
//
// Of Leases only those of the hub's replicas are watched; the nodes of that cluster write theirs all the time.
func cacheOptions(systemNamespace string) cache.Options {
	return cache.Options{
		DefaultTransform: trimObject,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}:      {Transform: trimSecret},
			&rkev1.ETCDSnapshot{}: {Transform: trimSnapshot},
			&coordinationv1.Lease{}: {
				Namespaces: map[string]cache.Config{systemNamespace: {}},
				Label:      labels.SelectorFromSet(labels.Set{replicas.ReplicaLabel: "true"}),
			},
		},
	}
}

func trimObject(in any) (any, error) {
	intern.Object(in)
	return managedfields.Trim(in)
}

func trimSecret(in any) (any, error) {
	if object, err := meta.Accessor(in); err == nil {
		object.SetManagedFields(nil)
	}
	s, ok := in.(*corev1.Secret)
	if ok && !contentRead(s) {
		s.Data = nil // before intern knows it in the place of content that is kept
	}
	intern.Object(in)
	if ok {
		plansecrets.HoldOnce(s)
	}
	return in, nil
}

// contentRead returns whether controllers read the content of a Secret from the cache. None reads bootstrap data, which are long.
func contentRead(s *corev1.Secret) bool {
	return s.Type != rkev1.BootstrapSecretType && strings.HasPrefix(string(s.Type), "rke.cattle.io/") || isKubeconfig(s)
}

// trimSnapshot drops what no controller reads: the specification of the cluster that the snapshot was taken of.
func trimSnapshot(in any) (any, error) {
	if s, ok := in.(*rkev1.ETCDSnapshot); ok {
		s.ManagedFields, s.SnapshotFile.Metadata = nil, ""
	}
	intern.Object(in)
	return in, nil
}

func isKubeconfig(s *corev1.Secret) bool {
	return strings.HasSuffix(s.Name, "-"+string(secret.Kubeconfig))
}

// clientOptions let the manager's client read Secrets and ConfigMaps from the API server, since the cache does not hold their content.
func clientOptions() client.Options {
	return client.Options{Cache: &client.CacheOptions{
		DisableFor:   []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}},
		Unstructured: true,
	}}
}
