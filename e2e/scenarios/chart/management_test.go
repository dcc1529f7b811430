//go:build e2e

package chart

import (
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/hosts"
	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/readme"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
	"github.com/drover-dev/drover/hub/identity/pki"
)

const (
	release   = "drover"
	namespace = "drover-system"
	// nodePort is where the management cluster's nodes have the gateway.
	nodePort = 30443
	// agentUnit is the service of the agent on machines.
	agentUnit = "rancher-system-agent"
	// authority is the Secret with the certificate authority that the gateway uses.
	authority = "company-ca"
)

// management is a cluster in which Helm has installed a hub, which has a cluster of its own.
type management struct {
	once       sync.Once
	ready      bool
	host       *hosts.Host
	api        client.Client // of the management cluster, with the rights of its administrator
	kubeconfig string
	chart      string
	// hub is the hub's command line that is used instead of that in bin.
	hub string
	// tls and replicas are the values of these names.
	tls      string
	replicas int32
	// downstream is the Cluster of the installed hub, machine its only machine.
	downstream client.ObjectKey
	machine    *hosts.Host
}

var cluster = &management{replicas: 2, downstream: client.ObjectKey{Namespace: "fleet-default", Name: "edge"}}

func (m *management) url() string { return fmt.Sprintf("https://%s:%d", m.host.IP(), nodePort) }

// use makes everything, once for all tests. What it makes goes with the lab.
func (m *management) use(t *testing.T) {
	t.Helper()
	m.once.Do(func() { m.make(t) })
	if !m.ready {
		t.Fatal("the hub could not be installed, see above")
	}
}

func (m *management) make(t *testing.T) {
	m.makeCluster(t, "manager1", "edge1")
	suite.Step(t, "helm installs the hub into a namespace for restricted pods", func(t *testing.T) {
		created := m.installRestricted(t)
		if got := m.trusted(t); got != created {
			t.Errorf("machines are told to trust\n%s, want\n%s", got, created)
		}
		inventory := shared.RunKubectl(t, m.kubeconfig, "--namespace", namespace, "get", "providers.clusterctl.cluster.x-k8s.io",
			"--output", "jsonpath={.items[*].metadata.name}")
		if want := "bootstrap-drover cluster-api control-plane-drover infrastructure-drover"; inventory != want {
			t.Errorf("the inventory of clusterctl is %q, want %q", inventory, want)
		}
	})
	suite.Step(t, "a machine that runs the node command becomes a cluster of that hub", m.makeDownstream)
	suite.Step(t, "kubectl reaches it through the gateway", m.checkReachable)
	m.ready = true
}

// installRestricted installs the chart into a namespace for restricted pods, with the authority of a Secret, whose certificate it returns.
func (m *management) installRestricted(t *testing.T) (certificate string) {
	t.Helper()
	m.createNamespace(t)
	certificate = m.createAuthority(t)
	m.tls = "{source: secret, secretName: " + authority + "}"
	m.install(t)
	m.waitReplicas(t)
	return certificate
}

// createNamespace creates the namespace of the hub, which is for restricted pods.
func (m *management) createNamespace(t *testing.T) {
	t.Helper()
	suite.Must(t, m.api.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}))
}

// trusted is the authority that machines trust.
func (m *management) trusted(t *testing.T) string {
	t.Helper()
	secret := &corev1.Secret{}
	suite.Must(t, m.api.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "drover-gateway-tls"}, secret))
	return string(secret.Data["ca.crt"])
}

// makeDownstream makes the machine a cluster of the installed hub, as the README says.
func (m *management) makeDownstream(t *testing.T) {
	t.Helper()
	script, err := readme.Script(shared.Repo, readme.CreateCluster, "fleet-default", m.downstream.Namespace, "first", m.downstream.Name,
		"v1.36.3+k3s1", lab.Version, "rkeConfig: {}", mirrored(), "hub node-command", "hub node-command --kubeconfig "+m.kubeconfig)
	suite.Must(t, err)
	command := m.script(t, "kubectl() { command kubectl \"$@\" >&2; }\n"+script)
	suite.Must(t, shared.Register(t.Context(), m.machine, command))
	suite.Must(t, shared.WaitClusterReady(t.Context(), m.api, m.downstream, 5*time.Minute))
	suite.Must(t, shared.WaitConnected(t.Context(), m.api, m.downstream, 3*time.Minute))
}

// createAuthority creates the Secret that values names, and returns its certificate.
func (m *management) createAuthority(t *testing.T) string {
	t.Helper()
	pair, err := pki.Issue(pki.Request{CommonName: "company", IsCA: true, Lifetime: pki.CALifetime}, nil, time.Now())
	suite.Must(t, err)
	key, err := pair.KeyPEM()
	suite.Must(t, err)
	suite.Must(t, m.api.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: authority}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: pair.CertPEM(), corev1.TLSPrivateKeyKey: key},
	}))
	return string(pair.CertPEM())
}

// mirrored is the configuration of a cluster that pulls from the lab's registry.
func mirrored() string {
	return "rkeConfig: {registries: {mirrors: {docker.io: {endpoint: [\"" + shared.RegistryURL() + "\"]}}}}"
}

// makeCluster makes the management cluster of a host, and adds another host that is to be a machine of the hub there.
func (m *management) makeCluster(t *testing.T, host, machine string) {
	t.Helper()
	var err error
	m.host, err = shared.AddHost(t.Context(), host)
	suite.Must(t, err)
	m.machine, err = shared.AddHost(t.Context(), machine)
	suite.Must(t, err)
	suite.Step(t, "a machine becomes the management cluster", func(t *testing.T) {
		key := client.ObjectKey{Namespace: "fleet-default", Name: host}
		suite.Must(t, shared.ApplyCluster(t.Context(), shared.Hub, key))
		command, err := shared.NodeCommand(t.Context(), key, lab.AllRoles...)
		suite.Must(t, err)
		suite.Must(t, shared.Register(t.Context(), m.host, command))
		suite.Must(t, shared.WaitNodeReady(t.Context(), shared.Hub, key, 5*time.Minute))
		m.open(t, shared.Hub, key)
	})
}

// open takes a cluster of a hub as the management cluster.
func (m *management) open(t *testing.T, hub client.Client, key client.ObjectKey) {
	t.Helper()
	var err error
	m.kubeconfig, err = shared.WriteClusterKubeconfig(t.Context(), hub, key)
	suite.Must(t, err)
	m.api, _, err = shared.ClusterClient(t.Context(), hub, key)
	suite.Must(t, err)
}
