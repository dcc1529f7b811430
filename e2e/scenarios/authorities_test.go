//go:build e2e && full

package scenarios

import (
	"bytes"
	"context"
	"crypto/x509"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/hosts"
	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/identity/pki"
)

// rotatedAuthorities are the certificate authorities that rotate-ca replaces.
var rotatedAuthorities = []string{"server-ca", "client-ca", "request-header-ca", "etcd/server-ca", "etcd/peer-ca"}

// TestRotateAuthorities replaces the certificate authorities of a cluster as docs/day-two.md says. The servers restart one after the other
// with the new ones, no plan brings the old ones back, the hub goes on with the new ones alone, and a server joins.
func TestRotateAuthorities(t *testing.T) { rotateAuthorities(t, lab.K3s, "ca") }

// TestRotateAuthoritiesRKE2 does so with a cluster of RKE2.
func TestRotateAuthoritiesRKE2(t *testing.T) {
	suite.Must(t, shared.Release(t.Context(), lab.RKE2.Version))
	rotateAuthorities(t, lab.RKE2, "car")
}

// serverTLS is where a server has its certificate authorities.
func serverTLS(d lab.Distribution) string { return d.DataDir() + "/server/tls/" }

// staged is where the next ones are put for rotate-ca.
func staged(d lab.Distribution) string { return d.DataDir() + "/server/rotate-ca" }

func rotateAuthorities(t *testing.T, d lab.Distribution, cluster string) {
	ctx := t.Context()
	key := client.ObjectKey{Namespace: "fleet-default", Name: cluster}
	shared.MakeNamespace(t, key.Namespace)
	all := map[string]*hosts.Host{}
	scenario := t
	join := func(t *testing.T, name string, roles ...string) {
		all[name] = shared.NewHost(scenario, cluster+name)
		command, _, err := shared.TokenCommand(ctx, shared.Hub, key, roles...)
		suite.Must(t, err)
		suite.Must(t, shared.Register(ctx, all[name], command))
	}
	suite.Step(t, "a server and a worker make a cluster", func(t *testing.T) {
		suite.Must(t, shared.ApplyClusterVersion(ctx, shared.Hub, key, d.Version))
		join(t, "1", "--etcd", "--controlplane", "--worker")
		suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, key, 10*time.Minute))
		join(t, "w", "--worker")
		awaitNodes(t, key, 2)
	})
	old, err := os.ReadFile(all["1"].Path(serverTLS(d) + "server-ca.crt"))
	suite.Must(t, err)
	suite.Step(t, "the authorities are replaced", func(t *testing.T) {
		for _, name := range rotatedAuthorities {
			stageAuthority(t, all["1"], d, name)
		}
		_, err := all["1"].Exec(ctx, d.Runtime, "certificate", "rotate-ca", "--path="+staged(d))
		suite.Must(t, err)
		op := &operationv1.CertificateRotation{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name + "-ca-rotation"}}
		op.Spec.Spec = suite.OperationSpec(key)
		suite.Must(t, shared.Hub.Create(ctx, op))
		suite.Must(t, shared.WaitFor(ctx, "the certificates are replaced", 5*time.Minute, func(ctx context.Context) (bool, string) {
			if err := shared.Hub.Get(ctx, client.ObjectKeyFromObject(op), op); err != nil {
				return false, err.Error()
			}
			if op.Status.Phase.Ended() && op.Status.Phase != operationv1.PhaseSucceeded {
				t.Fatalf("it has ended: %+v", op.Status)
			}
			return op.Status.Phase == operationv1.PhaseSucceeded, string(op.Status.Phase)
		}))
		awaitNodes(t, key, 2)
	})
	started := ""
	suite.Step(t, "the hub is given the new ones, and nothing restarts", func(t *testing.T) {
		started = startedAt(t, all["1"], d)
		for name, file := range map[string]string{key.Name + "-ca": "server-ca", key.Name + "-cca": "client-ca"} {
			giveAuthority(t, all["1"], d, client.ObjectKey{Namespace: key.Namespace, Name: name}, file)
		}
		current := firstCertificate(t, all["1"].Path(serverTLS(d)+"server-ca.crt"))
		suite.Must(t, shared.WaitFor(ctx, "the kubeconfig trusts the new one alone", 2*time.Minute, func(ctx context.Context) (bool, string) {
			secret := &corev1.Secret{}
			if err := shared.Hub.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name + "-kubeconfig"}, secret); err != nil {
				return false, err.Error()
			}
			config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["value"])
			if err != nil {
				return false, err.Error()
			}
			return bytes.Equal(config.CAData, pki.EncodeCert(current)), string(config.CAData)
		}))
		awaitNodes(t, key, 2)
	})
	suite.Step(t, "a server joins, and a change restarts the others", func(t *testing.T) {
		join(t, "2", "--etcd", "--controlplane")
		awaitNodes(t, key, 3)
		if now := startedAt(t, all["1"], d); now != started {
			t.Errorf("the first server was started %s and again %s", started, now)
		}
		changeCluster(t, key, func(c *provisioningv1.Cluster) { c.Spec.RKEConfig.ProvisionGeneration++ })
		suite.Must(t, shared.WaitFor(ctx, "the first server restarts", 5*time.Minute, func(context.Context) (bool, string) {
			now := startedAt(t, all["1"], d)
			return now != started, now
		}))
		awaitNodes(t, key, 3)
		for _, name := range []string{"1", "2"} {
			raw, err := os.ReadFile(all[name].Path(serverTLS(d) + "server-ca.crt"))
			suite.Must(t, err)
			if !bytes.HasSuffix(raw, old) || len(raw) == len(old) {
				t.Errorf("%s has\n%s", name, raw)
			}
		}
	})
	suite.Step(t, "the Cluster is deleted", func(t *testing.T) { shared.DeleteCluster(t, key) })
}

// stageAuthority makes the successor of an authority for rotate-ca: another root, self-signed and signed by the present one, and an
// authority that it has signed. Who trusts the present root trusts what is issued.
func stageAuthority(t *testing.T, host *hosts.Host, d lab.Distribution, name string) {
	t.Helper()
	current, err := os.ReadFile(host.Path(serverTLS(d) + name + ".crt"))
	suite.Must(t, err)
	currentKey, err := os.ReadFile(host.Path(serverTLS(d) + name + ".key"))
	suite.Must(t, err)
	signer, err := pki.Parse(current, currentKey)
	suite.Must(t, err)
	request := pki.Request{CommonName: "root of " + name, IsCA: true, Lifetime: pki.CALifetime}
	root, err := pki.Issue(request, nil, time.Now())
	suite.Must(t, err)
	cross, err := pki.CrossSign(root, signer, time.Now())
	suite.Must(t, err)
	request.CommonName = name
	next, err := pki.Issue(request, root, time.Now())
	suite.Must(t, err)
	nextKey, err := next.KeyPEM()
	suite.Must(t, err)
	dir := staged(d) + "/tls"
	if strings.HasPrefix(name, "etcd/") {
		dir += "/etcd"
	}
	suite.Must(t, os.MkdirAll(host.Path(dir), 0o700))
	certs := bytes.Join([][]byte{next.CertPEM(), root.CertPEM(), pki.EncodeCert(cross), current}, nil)
	suite.Must(t, os.WriteFile(host.Path(staged(d)+"/tls/"+name+".crt"), certs, 0o600))
	suite.Must(t, os.WriteFile(host.Path(staged(d)+"/tls/"+name+".key"), nextKey, 0o600))
}

// giveAuthority puts an authority of a server into the hub's Secret.
func giveAuthority(t *testing.T, host *hosts.Host, d lab.Distribution, key client.ObjectKey, file string) {
	t.Helper()
	secret := &corev1.Secret{}
	suite.Must(t, shared.Hub.Get(t.Context(), key, secret))
	base := secret.DeepCopy()
	for name, ending := range map[string]string{"tls.crt": ".crt", "tls.key": ".key"} {
		raw, err := os.ReadFile(host.Path(serverTLS(d) + file + ending))
		suite.Must(t, err)
		secret.Data[name] = raw
	}
	suite.Must(t, shared.Hub.Patch(t.Context(), secret, client.MergeFrom(base)))
}

func firstCertificate(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	raw, err := os.ReadFile(path)
	suite.Must(t, err)
	cert, err := pki.ParseCert(raw)
	suite.Must(t, err)
	return cert
}

// startedAt is when the distribution of a server was started.
func startedAt(t *testing.T, host *hosts.Host, d lab.Distribution) string {
	t.Helper()
	result, err := host.Exec(t.Context(), "systemctl", "show", "--property=ExecMainStartTimestampMonotonic", d.ServerUnit)
	suite.Must(t, err)
	return strings.TrimSpace(result.Stdout)
}
