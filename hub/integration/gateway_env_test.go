package integration

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/drover-dev/drover/hub/access/tunnel"
	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/gateway"
	"github.com/drover-dev/drover/hub/gateway/downloads"
	"github.com/drover-dev/drover/hub/gateway/servingcert"
	"github.com/drover-dev/drover/hub/identity/signing"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/testenv/loopback"
)

// gatewayEnv is a gateway of its own in front of the API server. The hub's controllers ignore its cluster, which is paused: the test does
// their work.
type gatewayEnv struct {
	t         *testing.T
	config    *rest.Config
	client    client.Client
	settings  settings.Settings
	http      *http.Client
	namespace string
	// management is the namespace of the management Cluster, where machines ask to be let in.
	management string
	token      string
	// system is the namespace of the gateway's own Secrets, address where it listens, again after a restart.
	system, address string
	stop            context.CancelFunc
	stopped         chan struct{}
}

func gatewayScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := fakeclient.Scheme(t, clientgoscheme.AddToScheme, clusterv1.AddToScheme, provisioningv1.AddToScheme,
		rkev1.AddToScheme, managementv3.AddToScheme)
	return scheme
}

// startGateway runs a gateway until the test ends, with one custom cluster and its registration token.
func startGateway(t *testing.T, config *rest.Config) *gatewayEnv {
	t.Helper()
	e := newGateway(t, config)
	e.createCluster()
	e.serve()
	return e
}

func newGateway(t *testing.T, config *rest.Config) *gatewayEnv {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: gatewayScheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	address, err := loopback.FreeAddress("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	return &gatewayEnv{t: t, config: config, client: c, system: "cattle-system", address: address}
}

// serve starts a replica of the gateway.
func (e *gatewayEnv) serve() {
	t := e.t
	t.Helper()
	listener, err := loopback.Listen(e.address)
	if err != nil {
		t.Fatal(err)
	}
	e.settings = settings.Settings{ServerURL: "https://" + e.address, SystemNamespace: e.system}
	identity, err := servingcert.Ensure(t.Context(), e.client, e.settings, e.address)
	if err != nil {
		t.Fatal(err)
	}
	e.settings.CACerts = identity.CACerts()
	signer, err := signing.Ensure(t.Context(), e.client, e.system)
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(e.config, ctrl.Options{
		Scheme: e.client.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"},
		Logger: logr.Discard(), // parts of a manager still talk when it has ended, and the test with it
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := gateway.SetupIndexes(t.Context(), mgr.GetFieldIndexer()); err != nil {
		t.Fatal(err)
	}
	issuer, err := tokens.Ensure(t.Context(), e.client, e.system)
	if err != nil {
		t.Fatal(err)
	}
	files, err := downloads.New("", e.settings)
	if err != nil {
		t.Fatal(err)
	}
	server, err := gateway.New(gateway.Options{
		Settings: e.settings, Files: files, Identity: identity, SigningKey: signer.Public(), Listener: listener, Client: mgr.GetClient(),
		APIReader:  mgr.GetAPIReader(),
		RestConfig: e.config, Logger: testr.New(t), Cache: mgr.GetCache(), Issuer: issuer,
		Tunnels: tunnel.New(tunnel.Options{Logger: logr.Discard()}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := mgr.Add(server); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		if err := mgr.Start(ctx); err != nil {
			t.Errorf("the manager ended: %v", err)
		}
	}()
	e.stop, e.stopped = cancel, stopped
	t.Cleanup(func() { cancel(); <-stopped })

	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(e.settings.CACerts)
	e.http = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}, Timeout: 70 * time.Second}
	t.Cleanup(e.http.CloseIdleConnections)
	eventually(t, "the gateway to be well", func() error {
		if code, body := e.get("/healthz", nil); code != http.StatusOK {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	if e.token != "" {
		e.awaitToken()
	}
}

// awaitToken waits until the gateway knows the registration token and its cluster: it has caches of its own.
func (e *gatewayEnv) awaitToken() {
	e.t.Helper()
	eventually(e.t, "the gateway to know the registration token", func() error {
		code, body := e.get("/v3/connect/cluster-info", map[string]string{"Authorization": "Bearer " + e.token})
		if code != http.StatusOK && code != http.StatusServiceUnavailable { // there may be no control plane
			time.Sleep(500 * time.Millisecond) // wrong tokens are limited
			return &unexpected{code, body}
		}
		return nil
	})
}

// awaitAccepted waits until the token in the response to a registration is accepted: the API server has caches, too.
func (e *gatewayEnv) awaitAccepted(answer string) {
	e.t.Helper()
	config, namespace, name := machineConfig(e.t, answer)
	eventually(e.t, "the machine's token to be accepted", func() error {
		code, body := e.get("/api/v1/namespaces/"+namespace+"/secrets/"+name, map[string]string{"Authorization": "Bearer " + config.BearerToken})
		if code != http.StatusOK {
			return &unexpected{code, body}
		}
		return nil
	})
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	testenv.Until(t, what, check)
}

func (e *gatewayEnv) get(path string, headers map[string]string) (int, string) {
	e.t.Helper()
	request, err := http.NewRequestWithContext(e.t.Context(), http.MethodGet, e.settings.ServerURL+path, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	response, err := e.http.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(bytes.TrimSpace(body))
}

// register registers a machine with an ID and a secret. It comes again where the hub asks for that.
func (e *gatewayEnv) register(token, id, secret string) (int, string) {
	headers := map[string]string{"Authorization": "Bearer " + token, "X-Cattle-Id": id, "X-Cattle-Role-Worker": "true"}
	if secret != "" {
		headers["X-Cattle-Machine-Secret"] = secret
	}
	return e.connect(headers)
}

func (e *gatewayEnv) create(objects ...client.Object) {
	e.t.Helper()
	for _, object := range objects {
		if err := e.client.Create(e.t.Context(), object); err != nil {
			e.t.Fatalf("creating %T %s: %v", object, object.GetName(), err)
		}
	}
}

// createCluster creates the objects of the cluster and registration controllers.
func (e *gatewayEnv) createCluster() {
	e.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "fleet-"}}
	management := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "c-m-"}}
	e.create(ns, management)
	e.namespace, e.management = ns.Name, management.Name
	cluster := &managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: management.Name, Labels: map[string]string{
		rkev1.OwnerClusterNamespaceLabel: ns.Name, rkev1.OwnerClusterNameLabel: "one",
	}}}
	prov := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "one", Annotations: map[string]string{
		clusterv1.PausedAnnotation: "", rkev1.ManagementClusterNameAnnotation: management.Name,
	}}}
	prov.Spec.KubernetesVersion = "v1.36.3+k3s1"
	prov.Spec.RKEConfig = &provisioningv1.RKEConfig{}
	e.create(cluster, prov)
	e.createToken(management.Name)
}

// createToken creates a registration token, and waits until the gateway has read it.
func (e *gatewayEnv) createToken(namespace string, roles ...managementv3.MachineRole) {
	e.t.Helper()
	token, err := tokens.NewRegistrationToken()
	if err != nil {
		e.t.Fatal(err)
	}
	crt := &managementv3.ClusterRegistrationToken{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "made"}}
	crt.Spec.ClusterName, crt.Spec.Purpose = namespace, managementv3.MachinesPurpose
	crt.Spec.Roles = roles
	for _, role := range roles {
		crt.Name += "-" + strings.ToLower(string(role))
	}
	crt.Spec.Made = &managementv3.MadeToken{ID: tokens.RegistrationID(token), Hash: tokens.Hash(token)}
	e.create(crt)
	eventually(e.t, "the hub to know the registration token", func() error {
		return e.client.Get(e.t.Context(), types.NamespacedName{Namespace: namespace, Name: managementv3.TokenSecretPrefix + crt.Name},
			&corev1.Secret{})
	})
	e.token = token
	if e.http != nil {
		e.awaitToken()
	}
}

// runControllers does the work of the registration and bootstrap controllers for every machine request until the test ends.
func (e *gatewayEnv) runControllers() {
	e.t.Helper()
	c, err := client.NewWithWatch(e.config, client.Options{Scheme: e.client.Scheme()})
	if err != nil {
		e.t.Fatal(err)
	}
	ctx := e.t.Context()
	requests := func() (watch.Interface, error) {
		return c.Watch(ctx, &corev1.SecretList{}, client.InNamespace(e.management),
			client.MatchingFields{"type": string(rkev1.MachineRequestSecretType)})
	}
	events, err := requests()
	if err != nil {
		e.t.Fatal(err)
	}
	go func() {
		for ctx.Err() == nil {
			for event := range events.ResultChan() {
				if request, ok := event.Object.(*corev1.Secret); ok && event.Type != watch.Deleted && request.Labels[rkev1.MachineNameLabel] == "" {
					e.provideMachine(ctx, request)
				}
			}
			// The next watch begins with all requests that there are.
			if next, err := requests(); err == nil {
				events = next
			} else {
				time.Sleep(100 * time.Millisecond)
			}
		}
		events.Stop()
	}()
}

func (e *gatewayEnv) provideMachine(ctx context.Context, request *corev1.Secret) {
	fields := map[string][]string{}
	_ = json.Unmarshal(request.Data[rkev1.MachineRequestDataKey], &fields)
	hash := ""
	if values := fields[rkev1.HeaderMachineSecretHash]; len(values) > 0 {
		hash = values[0]
	}
	e.createMachine(ctx, request.Name, hash)
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q,%q:%q}}}`, rkev1.MachineNameLabel, request.Name, rkev1.MachineNamespaceLabel,
		e.namespace)
	_ = e.client.Patch(ctx, request, client.RawPatch(types.MergePatchType, []byte(patch)))
}

// createMachine creates the objects of a machine, unless they exist.
func (e *gatewayEnv) createMachine(ctx context.Context, name, hash string) *rkev1.RKEBootstrap {
	bootstrap := &rkev1.RKEBootstrap{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: name}}
	bootstrap.Spec.ClusterName = "one"
	if hash != "" {
		bootstrap.Annotations = map[string]string{rkev1.MachineSecretHashAnnotation: hash}
	}
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: name}}
	machine.Spec.ClusterName = "one"
	machine.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: "rke.cattle.io", Kind: "RKEBootstrap", Name: name}
	machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "rke.cattle.io", Kind: "CustomMachine", Name: name}
	plan := rkev1.PlanSecretName(name)
	for _, object := range []client.Object{machine, bootstrap} {
		if err := e.client.Create(ctx, object); err != nil && client.IgnoreAlreadyExists(err) != nil && ctx.Err() == nil {
			e.t.Errorf("creating %T: %v", object, err)
		}
	}
	if err := e.client.Get(ctx, client.ObjectKeyFromObject(bootstrap), bootstrap); err != nil && ctx.Err() == nil {
		e.t.Errorf("reading RKEBootstrap %s: %v", name, err)
	}
	owners := []metav1.OwnerReference{*metav1.NewControllerRef(bootstrap, rkev1.GroupVersion.WithKind("RKEBootstrap"))}
	objects := []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: plan, OwnerReferences: owners,
			Labels: map[string]string{
				rkev1.ServiceAccountRoleLabel: rkev1.ServiceAccountRolePlan, rkev1.PlanSecretNameLabel: plan,
			}}},
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: plan, OwnerReferences: owners, Labels: map[string]string{"kept": "yes"}},
			Type:       rkev1.MachinePlanSecretType, Data: map[string][]byte{"plan": []byte(`{}`)},
		},
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: rkev1.PlanTokenSecretName(name), Annotations: map[string]string{
				corev1.ServiceAccountNameKey: plan,
			}},
			Type: corev1.SecretTypeServiceAccountToken,
		},
	}
	for _, object := range objects {
		if err := e.client.Create(ctx, object); err != nil && client.IgnoreAlreadyExists(err) != nil && ctx.Err() == nil {
			e.t.Errorf("creating %T: %v", object, err)
		}
	}
	return bootstrap
}

// machineConfig reads the response to a registration as a machine does.
func machineConfig(t *testing.T, answer string) (config *rest.Config, namespace, name string) {
	t.Helper()
	var connection struct{ KubeConfig, Namespace, SecretName string }
	decoder := json.NewDecoder(strings.NewReader(answer))
	if err := decoder.Decode(&connection); err != nil {
		t.Fatalf("%s: %v", answer, err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(connection.KubeConfig))
	if err != nil {
		t.Fatal(err)
	}
	return config, connection.Namespace, connection.SecretName
}

// apiServer returns a config for the API server of the shared hub.
func apiServer(t *testing.T) *rest.Config {
	t.Helper()
	return env.Config
}
