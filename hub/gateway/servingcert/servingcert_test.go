package servingcert

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/drover-dev/drover/hub/identity/pki"
)

// TestWarnsOfExpiry: the log says once a day that the authority in use expires soon, and when.
func TestWarnsOfExpiry(t *testing.T) {
	const day = 24 * time.Hour
	for name, tt := range map[string]struct {
		left  time.Duration
		lines int // in two days
	}{
		"years left":                  {pki.CALifetime, 0},
		"60 days left":                {60 * day, 3},
		"soon less than 90 days left": {91*day - time.Hour, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ca, err := pki.Issue(pki.Request{CommonName: "ca", IsCA: true, Lifetime: tt.left}, nil, time.Now())
				must(t, err)
				key, err := ca.KeyPEM()
				must(t, err)
				i := &Identity{namespace: "ns", names: []string{"localhost"}, now: time.Now}
				i.client = fake.NewClientBuilder().WithObjects(&corev1.Secret{
					ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: SecretName},
					Data:       map[string][]byte{caCertKey: ca.CertPEM(), caKeyKey: key},
				}).Build()
				must(t, i.refresh(t.Context()))
				var lines []string
				ctx, cancel := context.WithCancel(t.Context())
				go i.Run(ctx, funcr.New(func(_, args string) {
					if strings.Contains(args, "expires soon") {
						lines = append(lines, args)
					}
				}, funcr.Options{}))
				time.Sleep(2*day + time.Minute)
				cancel()
				synctest.Wait()
				if len(lines) != tt.lines {
					t.Fatalf("%d lines, want %d: %v", len(lines), tt.lines, lines)
				}
				if want := ca.Cert.NotAfter.Format(time.DateOnly); len(lines) > 0 && !strings.Contains(lines[0], want) {
					t.Errorf("%s does not say %s", lines[0], want)
				}
			})
		})
	}
}
