package server

import (
	"bytes"
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/plans"
)

// TestTrimSecret: the cache holds the content of Secrets of machines alone.
func TestTrimSecret(t *testing.T) {
	for kind, kept := range map[corev1.SecretType]bool{
		"Opaque": false, "rke.cattle.io/machine-plan": true, "rke.cattle.io/bootstrap": false,
	} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{}}}, Type: kind,
			Data: map[string][]byte{"a": nil}}
		if _, err := trimSecret(secret); err != nil {
			t.Fatal(err)
		}
		if len(secret.ManagedFields) > 0 || (len(secret.Data) > 0) != kept {
			t.Errorf("of a Secret of type %s the cache holds %+v", kind, secret)
		}
	}
}

// TestTrimmedContentIsNotKnown: content that the cache drops does not take the place of content that it holds in the table of known ones.
func TestTrimmedContentIsNotKnown(t *testing.T) {
	dropped, kept := bytes.Repeat([]byte("content"), 1000), bytes.Repeat([]byte("content"), 1000)
	secret := &corev1.Secret{Type: rkev1.MachinePlanSecretType, Data: map[string][]byte{"value": kept}}
	for _, s := range []*corev1.Secret{{Type: rkev1.BootstrapSecretType, Data: map[string][]byte{"value": dropped}}, secret} {
		if _, err := trimSecret(s); err != nil {
			t.Fatal(err)
		}
	}
	if &secret.Data["value"][0] == &dropped[0] {
		t.Error("the content that was dropped is known")
	}
}

// TestPlanIsHeldOnce: the applied plan of a machine that is up to date takes no memory of its own in the cache.
func TestPlanIsHeldOnce(t *testing.T) {
	data := map[string][]byte{plans.KeyPlan: []byte("plan"), plans.KeyAppliedPlan: []byte("plan")}
	if _, err := trimSecret(&corev1.Secret{Type: rkev1.MachinePlanSecretType, Data: data}); err != nil {
		t.Fatal(err)
	}
	if &data[plans.KeyPlan][0] != &data[plans.KeyAppliedPlan][0] {
		t.Error("it is held twice")
	}
}

// TestStopWithoutAController: a hub that is asked to stop does so without an error when a controller does not end.
func TestStopWithoutAController(t *testing.T) {
	grace := 50 * time.Millisecond
	mgr, err := ctrl.NewManager(&rest.Config{Host: "https://127.0.0.1:1"}, ctrl.Options{
		GracefulShutdownTimeout: &grace, Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	started, ended := make(chan struct{}), make(chan struct{})
	defer close(ended)
	if err := mgr.Add(manager.RunnableFunc(func(context.Context) error {
		close(started)
		<-ended
		return nil
	})); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		<-started
		stop()
	}()
	if err := (&Hub{Manager: mgr, persistent: newLifetime()}).Start(ctx); err != nil {
		t.Error(err)
	}
}
