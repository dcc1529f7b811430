package capi

import (
	"bytes"
	"crypto/x509"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/drover-dev/drover/hub/identity/pki"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestOtherAuthority: what API servers have been given to trust stays in use when the Secret is replaced while the hub runs.
func TestOtherAuthority(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, corev1.AddToScheme)).Build()
	certificate, err := EnsureCertificate(t.Context(), c, "drover-system", []string{"hub.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	trusted := certificate.CA
	if err := certificate.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = "drover-system", CertificateSecret
	if err := c.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	served := certificate.current.Load()
	if err := certificate.renew(t.Context()); !errors.Is(err, errOtherAuthority) {
		t.Errorf("with another authority: %v", err)
	}
	if certificate.current.Load() != served || !bytes.Equal(certificate.CA, trusted) {
		t.Error("a certificate is served that nobody trusts")
	}
}

// TestReplicasAgreeOnAuthority: after another authority a replica that serves with the former one ends, and has the new one when it starts
// again. Otherwise the API server's calls would fail there for as long as it runs.
func TestReplicasAgreeOnAuthority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, corev1.AddToScheme)).Build()
		replica := func() *Certificate {
			t.Helper()
			certificate, err := EnsureCertificate(t.Context(), c, "drover-system", []string{"hub.example.com"})
			if err != nil {
				t.Fatal(err)
			}
			return certificate
		}
		running, ended := replica(), make(chan error, 1)
		go func() { ended <- running.Start(t.Context()) }()
		time.Sleep(2 * time.Hour)
		select {
		case err := <-ended:
			t.Fatalf("it ended without another authority: %v", err)
		default:
		}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "drover-system", Name: CertificateSecret}}
		if err := c.Delete(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		other := replica()
		select {
		case err := <-ended:
			if !errors.Is(err, errOtherAuthority) {
				t.Errorf("it ended with %v", err)
			}
		case <-time.After(2 * checkInterval):
			t.Error("it serves with the former authority")
		}
		if again := replica(); !bytes.Equal(again.CA, other.CA) || bytes.Equal(again.CA, running.CA) {
			t.Error("the replicas have different authorities")
		}
	})
}

func TestFill(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	hosts := []string{"127.0.0.1", "hub.example.com"}
	secret := &corev1.Secret{}
	fillIn := func(hosts []string, at time.Time) (changed bool, before map[string][]byte) {
		t.Helper()
		before = maps.Clone(secret.Data)
		changed, err := fill(secret, hosts, at)
		if err != nil {
			t.Fatal(err)
		}
		return changed, before
	}
	same := func(before map[string][]byte, key string) bool { return bytes.Equal(before[key], secret.Data[key]) }

	if changed, _ := fillIn(hosts, now); !changed {
		t.Error("an empty Secret was left as it is")
	}
	leaf, err := pki.Parse(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(secret.Data[caCertKey])
	for _, host := range hosts {
		if _, err := leaf.Cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, DNSName: host}); err != nil {
			t.Errorf("verifying for %s: %v", host, err)
		}
	}

	if changed, _ := fillIn(hosts, now.Add(24*time.Hour)); changed {
		t.Error("a day later everything was changed")
	}
	if changed, before := fillIn(hosts, now.Add(300*24*time.Hour)); !changed || same(before, corev1.TLSCertKey) || !same(before, caCertKey) {
		t.Error("a certificate near its end has to be renewed, its authority kept")
	}
	if changed, before := fillIn([]string{"other.example.com"}, now); !changed || same(before, corev1.TLSCertKey) || !same(before, caCertKey) {
		t.Error("for another host the certificate has to be renewed, its authority kept")
	}
	secret.Data[caKeyKey] = []byte("damaged")
	if changed, before := fillIn([]string{"other.example.com"}, now); !changed || same(before, corev1.TLSCertKey) || same(before, caCertKey) {
		t.Error("a damaged authority has to be replaced, with everything that it signed")
	}
}

func TestRedirect(t *testing.T) {
	original := func() admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
			Namespace: "system", Name: "webhook-service", Path: ptr.To("/mutate-x"),
		}}
	}
	for _, test := range []struct {
		name     string
		to, want admissionregistrationv1.WebhookClientConfig
	}{
		{
			"to a URL",
			admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:9443/"), CABundle: []byte("ca")},
			admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:9443/mutate-x"), CABundle: []byte("ca")},
		},
		{
			"to a Service",
			admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "a", Name: "b"}},
			admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "a", Name: "b",
				Path: ptr.To("/mutate-x")}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := *test.to.DeepCopy()
			got := original()
			redirect(&got, test.to)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if diff := cmp.Diff(before, test.to); diff != "" {
				t.Errorf("the target was changed:\n%s", diff)
			}
		})
	}
}
