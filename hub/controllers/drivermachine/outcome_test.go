package drivermachine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drover-dev/drover/hub/nodedriver"
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

// interceptOutcome has fault called before the outcome of a creation that has succeeded is written. With an error it is not written.
func (h *hub) interceptOutcome(fault func(ctx context.Context) error) {
	h.intercept(interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if s, ok := o.(*corev1.Secret); ok && strings.Contains(string(s.Data[progressKey]), phaseCreated) {
				if err := fault(ctx); err != nil {
					return err
				}
			}
			return c.Update(ctx, o, opts...)
		},
	})
}

// The outcome of a creation is written again after errors that pass.
func TestOutcomeIsWrittenAgain(t *testing.T) {
	secrets := schema.GroupResource{Resource: "secrets"}
	for name, fault := range map[string]error{
		"conflict": apierrors.NewConflict(secrets, "one-machine-state", errors.New("changed")),
		"timeout":  apierrors.NewTimeoutError("etcd has no leader", 1), "network": errors.New("connection refused"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				drivers := &fakeDrivers{create: func(context.Context) error { return nil }}
				h := newHub(t, drivers)
				failed := false
				h.interceptOutcome(func(context.Context) error {
					if failed {
						return nil
					}
					failed = true
					return fault
				})
				h.reconcile()
				<-h.events
				if c, _ := h.reconcile(); c.Reason != "Created" || drivers.made != 1 || !failed {
					t.Errorf("made %d, %+v", drivers.made, c)
				}
			})
		})
	}
}

// The outcome of an operation that was canceled is written a few times more. The pauses between these writes grow and are short: a hub that
// stops ends soon.
func TestLastWritesOfOutcome(t *testing.T) {
	for name, test := range map[string]struct {
		// failing is how long writes have failed when the operation is canceled; recovers is how long they fail after that.
		failing, recovers time.Duration
		written           bool
	}{
		"the API server does not answer":         {recovers: time.Hour},
		"it has not answered for a long time":    {failing: time.Hour, recovers: 2 * time.Hour},
		"it answers again":                       {recovers: 500 * time.Millisecond, written: true},
		"it answers again, after a long time":    {failing: time.Hour, recovers: 500 * time.Millisecond, written: true},
		"the first write after the cancellation": {failing: time.Minute, written: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				drivers := &fakeDrivers{create: func(ctx context.Context) error {
					if test.failing == 0 {
						<-ctx.Done()
					}
					return nil
				}}
				h := newHub(t, drivers)
				end := time.Now().Add(test.failing)
				var last []time.Duration // when, after the cancellation
				h.interceptOutcome(func(context.Context) error {
					since := time.Since(end)
					if since >= 0 {
						last = append(last, since)
					}
					if since < test.recovers {
						return errors.New("connection refused")
					}
					return nil
				})
				h.reconcile()
				time.Sleep(test.failing)
				h.stop()
				<-h.events

				if len(last) == 0 || last[0] != 0 || last[len(last)-1] > lastWritesWithin || !test.written && len(last) < 5 {
					t.Errorf("written after %s", last)
				}
				var pauses []time.Duration
				for i := 1; i < len(last); i++ {
					pauses = append(pauses, last[i]-last[i-1])
				}
				if !slices.IsSorted(pauses) || len(pauses) > 0 && pauses[0] == 0 {
					t.Errorf("pauses %s", pauses)
				}
				state, _, err := h.readState(t.Context(), h.infra)
				if err != nil || (state.progress.Phase == phaseCreated) != test.written {
					t.Errorf("%v, %+v", err, state.progress)
				}
			})
		})
	}
}

// A last write that is not answered does not hold up the end of the operation.
func TestLastWriteHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drivers := &fakeDrivers{create: func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		}}
		h := newHub(t, drivers)
		h.interceptOutcome(func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		h.reconcile()
		synctest.Wait()
		canceled := time.Now()
		h.stop()
		<-h.events
		if took := time.Since(canceled); took != lastWritesWithin {
			t.Errorf("ended after %s", took)
		}
	})
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

// keepingDrivers keep that they have created a machine until they are to forget it, as Jobs do.
type keepingDrivers struct {
	fakeDrivers
	kept bool
}

func (k *keepingDrivers) Outlived(context.Context, nodedriver.ID) (nodedriver.Outlived, error) {
	if k.kept {
		return nodedriver.OutlivedCreation, nil
	}
	return nodedriver.OutlivedNothing, nil
}

func (k *keepingDrivers) Create(ctx context.Context, m *nodedriver.Machine) ([]nodedriver.Address, string, error) {
	if k.kept {
		return []nodedriver.Address{{Address: "192.0.2.1"}}, "", nil
	}
	addresses, log, err := k.fakeDrivers.Create(ctx, m)
	k.kept = err == nil
	return addresses, log, err
}

func (k *keepingDrivers) Forget(context.Context, nodedriver.ID) error {
	k.kept = false
	return nil
}

// A creation is forgotten once its outcome is recorded, and not before: the machine would be removed, and created again.
func TestCreationIsKept(t *testing.T) {
	drivers := &keepingDrivers{fakeDrivers: fakeDrivers{create: func(context.Context) error { return nil }}}
	h := newHub(t, drivers)
	now, refused := time.Now(), true
	h.now = func() time.Time { return now }
	h.interceptOutcome(func(context.Context) error {
		if refused {
			return errQuota
		}
		return nil
	})
	h.reconcile()
	<-h.events
	c, pause := h.reconcile()
	if c.Reason != "CreateError" || !drivers.kept {
		t.Fatalf("kept %v, %+v", drivers.kept, c)
	}
	refused, now = false, now.Add(pause)
	h.reconcile()
	<-h.events
	if c, _ = h.reconcile(); c.Reason != "Created" || drivers.made != 1 || drivers.removed > 0 || drivers.kept {
		t.Errorf("made %d, removed %d, kept %v, %+v", drivers.made, drivers.removed, drivers.kept, c)
	}
}

// frozenDrivers are those of a hub that was frozen: meanwhile is what another hub has done when they go on.
type frozenDrivers struct {
	*fakeDrivers
	meanwhile func()
	saved     error
}

func (f *frozenDrivers) Create(ctx context.Context, m *nodedriver.Machine) ([]nodedriver.Address, string, error) {
	f.meanwhile()
	f.saved = m.Save(ctx, &nodedriver.State{Name: m.Name, Files: map[string][]byte{"config.json": []byte(`{"Driver":{"ID":1}}`)}})
	return []nodedriver.Address{{Address: "192.0.2.1"}}, "", nil
}

// A leader that was frozen while it created a machine does not replace what the next one knows of the machine that it has made instead:
// that machine could not be removed.
func TestFrozenLeader(t *testing.T) {
	drivers := &frozenDrivers{fakeDrivers: &fakeDrivers{}}
	h := newHub(t, drivers)
	infra := h.infra.DeepCopy()
	drivers.meanwhile = func() {
		err := h.writeState(t.Context(), infra, "", func(s *stored) error {
			s.progress.Attempt++
			s.state = &nodedriver.State{Name: "one", Files: map[string][]byte{"config.json": []byte(`{"Driver":{"ID":2}}`)}}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	h.reconcile()
	<-h.events
	found, _, err := h.readState(t.Context(), infra)
	if err != nil {
		t.Fatal(err)
	}
	if p := found.progress; p.Attempt != 2 || p.Phase != phaseCreating || string(found.state.Config()) != `{"ID":2}` {
		t.Errorf("%+v, %s", p, found.state.Config())
	}
	if !errors.Is(drivers.saved, errRefused) {
		t.Errorf("got %v", drivers.saved)
	}
}
