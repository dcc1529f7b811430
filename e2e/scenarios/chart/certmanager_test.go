//go:build e2e && full

package chart

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// issuers are the root authority of a company, and the issuer that signs with it.
const issuers = `apiVersion: v1
kind: Namespace
metadata: {name: cert-manager}
---
apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata: {name: root}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: company, namespace: cert-manager}
spec: {isCA: true, commonName: company, secretName: company, privateKey: {algorithm: ECDSA}, issuerRef: {name: root, kind: ClusterIssuer}}
---
apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata: {name: company}
spec: {ca: {secretName: company}}
`

// TestCertManager installs the hub with an authority that cert-manager issues below that of a company. When cert-manager renews it,
// machines go on trusting the previous one, until it is replaced as docs/gateway.md says.
func TestCertManager(t *testing.T) {
	m := &management{replicas: 2, downstream: client.ObjectKey{Namespace: "fleet-default", Name: "edge"},
		tls: "{source: certManager, issuerRef: {name: company, kind: ClusterIssuer}}"}
	m.makeCluster(t, "manager5", "edge5")
	suite.Step(t, "cert-manager runs, with an issuer", func(t *testing.T) {
		m.startCertManager(t)
		file := filepath.Join(shared.Dir, "issuers.yaml")
		suite.Must(t, os.WriteFile(file, []byte(issuers), 0o600))
		shared.RunKubectl(t, m.kubeconfig, "apply", "--filename", file)
		shared.RunKubectl(t, m.kubeconfig, "wait", "--for=condition=Ready", "--timeout=2m", "clusterissuer/company")
	})
	var first string
	suite.Step(t, "helm installs the hub with the authority that cert-manager issues", func(t *testing.T) {
		m.createNamespace(t)
		m.install(t)
		m.waitReplicas(t)
		first = m.issued(t)
		if got := m.trusted(t); got != first {
			t.Errorf("machines are told to trust\n%s, want\n%s", got, first)
		}
		m.checkSigned(t, first)
	})
	suite.Step(t, "a machine becomes a cluster of that hub", m.makeDownstream)
	var second string
	suite.Step(t, "when cert-manager has renewed it, machines trust the previous one", func(t *testing.T) {
		second = m.renew(t, first)
		m.restartHub(t)
		if got := m.trusted(t); got != first {
			t.Errorf("machines are told to trust\n%s, want the previous\n%s", got, first)
		}
		m.checkReachable(t)
	})
	suite.Step(t, "the authority is replaced by the renewed one, and the agents follow", func(t *testing.T) {
		for i, step := range []string{"prepare", "switch", "finish"} {
			shared.RunKubectl(t, m.kubeconfig, "--namespace", namespace, "annotate", "--overwrite", "secret", "drover-gateway-tls",
				"rke.cattle.io/ca-rotation="+step)
			m.restartHub(t)
			if step != "switch" { // which changes nothing of what machines are to trust
				m.waitFollowed(t, i/2+1)
			}
			m.checkReachable(t)
		}
		if got := m.trusted(t); got != second {
			t.Errorf("machines are told to trust\n%s, want\n%s", got, second)
		}
		m.addManifest(t, "trusted")
	})
}

// startCertManager runs cert-manager for the management cluster.
func (m *management) startCertManager(t *testing.T) {
	t.Helper()
	shared.RunKubectl(t, m.kubeconfig, "apply", "--server-side", "--filename", bin(shared.Lab, "cert-manager.yaml"))
	suite.Must(t, shared.Start("cert-manager-"+m.host.Name, nil, bin(shared.Lab, "cert-manager"), "--kubeconfig", m.kubeconfig))
}

// issued is the certificate in the Secret of cert-manager.
func (m *management) issued(t *testing.T) string {
	t.Helper()
	secret := &corev1.Secret{}
	suite.Must(t, m.api.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "drover-gateway-ca"}, secret))
	first, _ := pem.Decode(secret.Data[corev1.TLSCertKey])
	if first == nil {
		t.Fatalf("cert-manager has issued %q", secret.Data[corev1.TLSCertKey])
	}
	return string(pem.EncodeToMemory(first))
}

// checkSigned checks that a certificate is that of an authority which the company has signed.
func (m *management) checkSigned(t *testing.T, certificate string) {
	t.Helper()
	secret, roots := &corev1.Secret{}, x509.NewCertPool()
	suite.Must(t, m.api.Get(t.Context(), client.ObjectKey{Namespace: "cert-manager", Name: "company"}, secret))
	if !roots.AppendCertsFromPEM(secret.Data[corev1.TLSCertKey]) {
		t.Fatalf("the company's certificate is %q", secret.Data[corev1.TLSCertKey])
	}
	block, _ := pem.Decode([]byte(certificate))
	parsed, err := x509.ParseCertificate(block.Bytes)
	suite.Must(t, err)
	if _, err := parsed.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil ||
		!parsed.IsCA {
		t.Errorf("the certificate of %s is not that of an authority which the company has signed: %v", parsed.Subject, err)
	}
}

// renew has cert-manager issue the authority again, as "cmctl renew" does, and returns the new certificate.
func (m *management) renew(t *testing.T, previous string) (renewed string) {
	t.Helper()
	shared.RunKubectl(t, m.kubeconfig, "--namespace", namespace, "patch", "certificate", "drover-gateway-ca", "--subresource=status",
		"--type=json", "--patch", `[{"op": "add", "path": "/status/conditions/-", "value": {"type": "Issuing", "status": "True", `+
			`"reason": "ManuallyTriggered", "message": "renewed by a test", "lastTransitionTime": "`+time.Now().UTC().Format(time.RFC3339)+`"}}]`)
	suite.Must(t, shared.WaitFor(t.Context(), "cert-manager has renewed the authority", time.Minute, func(context.Context) (bool, string) {
		renewed = m.issued(t)
		return renewed != previous, "it is the previous one"
	}))
	return renewed
}

// restartHub restarts all replicas, one after the other.
func (m *management) restartHub(t *testing.T) {
	t.Helper()
	shared.RunKubectl(t, m.kubeconfig, "--namespace", namespace, "rollout", "restart", "deployment/"+hubName)
	m.waitReplicas(t)
}

// waitFollowed waits until the agent of the machine has replaced the authorities that it trusts that often.
func (m *management) waitFollowed(t *testing.T, times int) {
	t.Helper()
	suite.Must(t, shared.WaitFor(t.Context(), "the agent has followed", 2*time.Minute, func(ctx context.Context) (bool, string) {
		var journal bytes.Buffer
		if err := m.machine.Logs(ctx, &journal, agentUnit); err != nil {
			return false, err.Error()
		}
		n := strings.Count(journal.String(), "Replaced the hub's certificate authorities")
		return n >= times, fmt.Sprintf("it has replaced the hub's authorities %d times, want %d", n, times)
	}))
}
