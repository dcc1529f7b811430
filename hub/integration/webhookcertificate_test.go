package integration

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/drover-dev/drover/hub/server/capi"
	"github.com/drover-dev/drover/hub/testenv"
)

// TestWebhookAuthorityReplaced: a manager whose cache holds no content of Secrets, as that of a hub, serves with the certificate that
// another replica has renewed, and ends once the authority is replaced.
func TestWebhookAuthorityReplaced(t *testing.T) {
	t.Parallel()
	namespace := env.Namespace(t)
	certificate, err := capi.EnsureCertificate(t.Context(), env.Client, namespace, []string{"hub.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	withoutContent := func(in any) (any, error) {
		in.(*corev1.Secret).Data = nil
		return in, nil
	}
	mgr, err := ctrl.NewManager(env.Config, ctrl.Options{
		Scheme: env.Client.Scheme(), Metrics: server.Options{BindAddress: "0"},
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: {Transform: withoutContent}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := certificate.SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()

	before, err := certificate.Get(nil)
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{}
	if err := env.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: capi.CertificateSecret}, secret); err != nil {
		t.Fatal(err)
	}
	secret.Data[corev1.TLSPrivateKeyKey] = []byte("damaged")
	if err := env.Client.Update(ctx, secret); err != nil {
		t.Fatal(err)
	}
	if _, err := capi.EnsureCertificate(ctx, env.Client, namespace, []string{"hub.example.com"}); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, "the renewed certificate to be served", func() error {
		now, err := certificate.Get(nil)
		if err == nil && now.Leaf.Equal(before.Leaf) {
			return errors.New("the former one is")
		}
		return err
	})

	env.Delete(t, secret)
	if _, err := capi.EnsureCertificate(ctx, env.Client, namespace, []string{"hub.example.com"}); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, "the manager to end", func() error {
		select {
		case err = <-ended:
			return nil
		default:
			return errors.New("it runs")
		}
	})
	if err == nil || !strings.Contains(err.Error(), "webhook certificate in Secret "+namespace+"/"+capi.CertificateSecret+
		": the authority was replaced or deleted") {
		t.Errorf("ended with %v", err)
	}
}
