package jobs

import (
	"context"
	"errors"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/util/inflight"
)

// refusingJobs is a Runner on an API server that refuses Jobs.
func refusingJobs(existing ...client.Object) *Runner {
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(existing...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if _, ok := o.(*batchv1.Job); ok {
				return apierrors.NewForbidden(schema.GroupResource{Group: "batch", Resource: "jobs"}, o.GetName(), errors.New("exceeded quota"))
			}
			return c.Create(ctx, o, opts...)
		},
	}).Build()
	return &Runner{Options: Options{Namespace: "cattle-system", Image: "hub"}, client: c, slots: inflight.NewFair(1)}
}

// left are the objects in the namespace of the hub.
func (r *Runner) left(t *testing.T) (out []string) {
	t.Helper()
	for _, list := range []client.ObjectList{
		&batchv1.JobList{}, &corev1.SecretList{}, &corev1.ServiceAccountList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{},
	} {
		if err := r.client.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range items {
			out = append(out, item.(client.Object).GetName())
		}
	}
	return out
}

// Where Jobs are refused, nothing is left of one: neither the order, which has the credential, nor the account.
func TestRefusedJob(t *testing.T) {
	r, m := refusingJobs(), lab(t)
	m.State = nil
	_, _, err := r.Create(t.Context(), m)
	if err == nil || !strings.Contains(err.Error(), "exceeded quota") || strings.Contains(err.Error(), planted) {
		t.Errorf("got %v", err)
	}
	if left := r.left(t); len(left) > 0 {
		t.Errorf("left: %v", left)
	}

	ctx, cancel := context.WithCancel(t.Context())
	r.client = interceptor.NewClient(r.client, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if _, ok := o.(*corev1.ServiceAccount); ok {
				cancel()
				return ctx.Err()
			}
			return c.Create(ctx, o, opts...)
		},
	})
	if _, _, err := r.Create(ctx, m); !errors.Is(err, nodedriver.ErrNotStarted) {
		t.Errorf("canceled: %v", err)
	}
	if left := r.left(t); len(left) > 0 {
		t.Errorf("canceled: left: %v", left)
	}
}

// What a Job that is gone has left is seen, its state is saved before anything is deleted, and all of it is deleted.
func TestOutlivedObjects(t *testing.T) {
	m := lab(t)
	name := machineJobName(m.ID)
	raw, err := m.State.Encode()
	if err != nil {
		t.Fatal(err)
	}
	secret := func(name string, data map[string][]byte) client.Object {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "cattle-system", Name: name}, Data: data}
	}
	for what, tt := range map[string]struct {
		secret client.Object
		saved  int
	}{
		"order":  {secret(name+"-order", map[string][]byte{orderKey: []byte("{}")}), 0},
		"result": {secret(name, map[string][]byte{startedKey: []byte("pod")}), 0},
		"state":  {secret(name, map[string][]byte{stateKey: raw}), 1},
	} {
		for operation, operate := range map[string]func(*Runner) error{
			"remove": func(r *Runner) error { _, err := r.Remove(t.Context(), m); return err },
			"create": func(r *Runner) error { _, _, err := r.Create(t.Context(), m); return err },
		} {
			r := refusingJobs(tt.secret.DeepCopyObject().(client.Object))
			if outlived, err := r.Outlived(t.Context(), m.ID); err != nil || outlived != nodedriver.OutlivedRemains {
				t.Errorf("%s: %q, %v", what, outlived, err)
			}
			saved := 0
			m.State, m.Save = nil, func(context.Context, *nodedriver.State) error {
				saved++
				return nil
			}
			// A machine with a state, and one that is to be created, needs a Job.
			needsJob := operation == "create" || tt.saved > 0
			if err := operate(r); (err != nil) != needsJob {
				t.Errorf("%s, %s: %v", what, operation, err)
			}
			if saved != tt.saved || (m.State.Config() != nil) != (tt.saved > 0) {
				t.Errorf("%s, %s: saved %d times: %v", what, operation, saved, m.State)
			}
			if left := r.left(t); len(left) > 0 {
				t.Errorf("%s, %s: left: %v", what, operation, left)
			}
		}
	}
}

// A state that cannot be saved stays where the Job has written it.
func TestUnsavedStateStays(t *testing.T) {
	m := lab(t)
	raw, err := m.State.Encode()
	if err != nil {
		t.Fatal(err)
	}
	r := refusingJobs(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "cattle-system", Name: machineJobName(m.ID)},
		Data: map[string][]byte{stateKey: raw}})
	m.State, m.Save = nil, func(context.Context, *nodedriver.State) error { return errors.New("exceeded quota") }
	if _, err := r.Remove(t.Context(), m); err == nil || len(r.left(t)) != 1 {
		t.Errorf("left %v, %v", r.left(t), err)
	}
	if _, _, err := r.Create(t.Context(), m); err == nil || len(r.left(t)) != 1 {
		t.Errorf("left %v, %v", r.left(t), err)
	}
}
