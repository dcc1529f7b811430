package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	"k8s.io/apiserver/pkg/features"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/controlplane/apiserver/options"
	generic "k8s.io/kubernetes/pkg/controlplane/apiserver/samples/generic/server"
	"k8s.io/kubernetes/pkg/kubeapiserver/authorizer/modes"
)

const (
	apiReadyTimeout = 2 * time.Minute
	// apiShutdownTimeout is how long open requests, watches among them, may hold up a shutdown.
	apiShutdownTimeout = time.Second
	// tokenIssuer is the issuer in service account tokens, as clusters call it that have no public address.
	tokenIssuer = "https://kubernetes.default.svc"
)

// apiServer is a running generic control plane: the API server without anything that knows of pods and nodes.
type apiServer struct {
	handler http.Handler
	tokens  *tokenGetter
	failed  chan error // receives one value when the server ends without having been asked to
	ended   chan struct{}
}

func startAPIServer(ctx context.Context, opts Options, listener net.Listener, certs *certificates, keys *encryption,
	etcd *etcdServer) (*apiServer, error) {
	if err := setFeatures(); err != nil {
		return nil, fmt.Errorf("setting API server features: %w", err)
	}
	serverOptions, err := apiServerOptions(opts, listener, certs, keys, etcd.endpoint)
	if err != nil {
		return nil, err
	}
	tokens := &tokenGetter{}
	serverOptions.Authentication.ServiceAccounts.OptionalTokenGetter = tokens.from
	completed, err := serverOptions.Complete(ctx, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("completing API server options: %w", err)
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return nil, fmt.Errorf("validating API server options: %w", utilerrors.NewAggregate(errs))
	}
	config, err := generic.NewConfig(completed)
	if err != nil {
		return nil, fmt.Errorf("configuring API server: %w", err)
	}
	// The sample counts on three servers, and then lets five seconds pass before it calls a new kind established.
	config.APIExtensions.ExtraConfig.MasterCount = 1
	storeIn(etcd.member, config, opts)
	withCallers(config)
	config.ControlPlane.APIResourceConfigSource = withoutQuotas{config.ControlPlane.APIResourceConfigSource}
	createRoles, err := replaceRolesHook(config)
	if err != nil {
		return nil, fmt.Errorf("configuring API server: %w", err)
	}
	completedConfig, err := config.Complete()
	if err != nil {
		return nil, fmt.Errorf("configuring API server: %w", err)
	}
	chain, err := serverChain(completedConfig, opts.Jobs)
	if err != nil {
		return nil, fmt.Errorf("assembling API server: %w", err)
	}
	chain.GenericAPIServer.ShutdownTimeout = apiShutdownTimeout
	if err := chain.GenericAPIServer.AddPostStartHook(retriedHook, createRoles); err != nil {
		return nil, fmt.Errorf("assembling API server: %w", err)
	}
	prepared, err := chain.PrepareRun()
	if err != nil {
		return nil, fmt.Errorf("preparing API server: %w", err)
	}

	s := &apiServer{handler: chain.GenericAPIServer.Handler, tokens: tokens, failed: make(chan error, 1), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		err := prepared.Run(ctx)
		if ctx.Err() != nil {
			return // asked to stop; what is left to say is that a client did not hang up in time
		}
		if err == nil {
			err = errors.New("stopped")
		}
		s.failed <- err
	}()
	return s, nil
}

func apiServerOptions(
	opts Options, listener net.Listener, certs *certificates, keys *encryption, etcdEndpoint string,
) (*options.Options, error) {
	o := generic.NewOptions()
	address := listener.Addr().(*net.TCPAddr)

	o.SecureServing.Listener = listener
	o.SecureServing.BindAddress = address.IP
	o.SecureServing.BindPort = address.Port
	o.SecureServing.ServerCert.CertKey.CertFile = certs.serving.certFile
	o.SecureServing.ServerCert.CertKey.KeyFile = certs.serving.keyFile
	o.GenericServerRunOptions.AdvertiseAddress = address.IP
	o.GenericServerRunOptions.ExternalHost = address.IP.String()

	o.Etcd.StorageConfig.Transport.ServerList = []string{etcdEndpoint} // for its health checks
	o.Etcd.StorageConfig.CompactionInterval = 0                        // etcd does it
	o.Etcd.EncryptionProviderConfigFilepath = keys.configFile

	o.Authentication.Anonymous.Allow = false
	o.Authentication.ClientCert.ClientCA = certs.clientCA.certFile
	o.Authentication.ServiceAccounts.Issuers = []string{tokenIssuer}
	o.Authentication.ServiceAccounts.KeyFiles = []string{certs.serviceAccountKeyFile}
	o.ServiceAccountSigningKeyFile = certs.serviceAccountKeyFile
	o.Authorization.Modes = []string{modes.ModeRBAC}
	o.Admission.GenericAdmission.DisablePlugins = []string{resourcequota.PluginName}

	// Fairness between tenants costs a start two dozen writes and has no tenants to be fair to; the limits on requests in flight remain.
	o.Features.EnablePriorityAndFairness = false
	o.Features.EnableProfiling = false
	o.Metrics = nil // would only read a file of rules about metrics that nobody wrote
	return o, setAudit(o, opts.DataDir, opts.Audit)
}

// withoutQuotas takes ResourceQuotas out of the API. Nothing counts here what a namespace has, so that one would be accepted and limit
// nothing.
type withoutQuotas struct {
	serverstorage.APIResourceConfigSource
}

func (w withoutQuotas) ResourceEnabled(resource schema.GroupVersionResource) bool {
	return resource != corev1.SchemeGroupVersion.WithResource("resourcequotas") && w.APIResourceConfigSource.ResourceEnabled(resource)
}

// setFeatures turns off what replicas of an API server do to find each other: a write every few seconds to say that this one, which is
// alone, is still there. Feature gates belong to the process.
var setFeatures = sync.OnceValue(func() error {
	return utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{
		string(features.APIServerIdentity):                   false,
		string(features.UnknownVersionInteroperabilityProxy): false,
	})
})

// waitReady returns when the server answers /readyz with ok and the namespace that every tool assumes exists.
func (s *apiServer) waitReady(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, apiReadyTimeout)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		err = ready(ctx, client)
		if err == nil {
			return nil
		}
		select {
		case failed := <-s.failed:
			return fmt.Errorf("running API server: %w", failed)
		case <-ctx.Done():
			return fmt.Errorf("waiting for the API server to become ready: %w", errors.Join(ctx.Err(), err))
		case <-ticker.C:
		}
	}
}

func ready(ctx context.Context, client kubernetes.Interface) error {
	var status int
	result := client.Discovery().RESTClient().Get().AbsPath("/readyz").Timeout(5 * time.Second).Do(ctx).StatusCode(&status)
	if err := result.Error(); err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("/readyz answers %d", status)
	}
	_, err := client.CoreV1().Namespaces().Get(ctx, corev1.NamespaceDefault, metav1.GetOptions{})
	return err
}

// wait returns when the server has ended.
func (s *apiServer) wait() { <-s.ended }
