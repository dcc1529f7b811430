package drivermachine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var errQuota = apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "one-machine-state", errors.New("exceeded quota"))

// A machine whose state cannot be saved is not created. The user is told, and the pauses grow.
func TestStateCannotBeSaved(t *testing.T) {
	drivers := &fakeDrivers{}
	h := newHub(t, drivers)
	now := time.Now()
	h.now = func() time.Time { return now }
	refused := 0
	h.intercept(interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			refused++
			return errQuota
		},
	})
	for attempt := 1; attempt <= 3; attempt++ {
		if c, _ := h.reconcile(); c.Reason != "Creating" {
			t.Fatalf("%+v", c)
		}
		<-h.events
		var pause time.Duration
		for range 10 {
			c, again := h.reconcile()
			if pause = again; c.Reason != "CreateError" || !strings.Contains(c.Message, "exceeded quota") || pause != backoff(attempt) {
				t.Fatalf("%+v, again after %s", c, pause)
			}
		}
		if refused != attempt || drivers.made > 0 {
			t.Errorf("%d writes after %d attempts, made %d", refused, attempt, drivers.made)
		}
		now = now.Add(pause)
	}
}

// The outcome of a creation is written again after errors that pass.
func TestOutcomeIsWrittenAgain(t *testing.T) {
	secrets := schema.GroupResource{Resource: "secrets"}
	for name, fault := range map[string]error{
		"conflict": apierrors.NewConflict(secrets, "one-machine-state", errors.New("changed")),
		"timeout":  apierrors.NewTimeoutError("etcd has no leader", 1), "network": errors.New("connection refused"),
	} {
		drivers := &fakeDrivers{create: func(context.Context) error { return nil }}
		h := newHub(t, drivers)
		failed := false
		h.intercept(interceptor.Funcs{
			Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				s, ok := o.(*corev1.Secret)
				if ok && !failed && strings.Contains(string(s.Data[progressKey]), phaseCreated) {
					failed = true
					return fault
				}
				return c.Update(ctx, o, opts...)
			},
		})
		h.reconcile()
		<-h.events
		if c, _ := h.reconcile(); c.Reason != "Created" || drivers.made != 1 || !failed {
			t.Errorf("%s: made %d, %+v", name, drivers.made, c)
		}
	}
}

// A removal whose outcome cannot be written is repeated after a pause only.
func TestRemovalCannotBeSaved(t *testing.T) {
	drivers := &fakeDrivers{exists: true}
	h := newHub(t, drivers)
	now := time.Now()
	h.now = func() time.Time { return now }
	h.change(joined)
	h.create(stateSecret(t))
	h.reconcile()
	h.intercept(interceptor.Funcs{
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { return errQuota },
	})
	h.delete()
	for attempt := 1; attempt <= 2; attempt++ {
		h.reconcileTo("Deleted")
		<-h.events
		c, pause := h.reconcileTo("Deleted")
		if c == nil || c.Reason != "DeleteError" || !strings.Contains(c.Message, "exceeded quota") || pause != backoff(attempt) ||
			drivers.removed != attempt {
			t.Errorf("removed %d, again after %s: %+v", drivers.removed, pause, c)
		}
		now = now.Add(pause)
	}
}
