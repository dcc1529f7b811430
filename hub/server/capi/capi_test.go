package capi

import (
	"bytes"
	"crypto/x509"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/hub/identity/pki"
)

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
