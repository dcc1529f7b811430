package testenv

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/util/conditions"
)

const (
	// Patience is how long tests wait for what must come to be, on a machine that has much else to do.
	Patience = 5 * time.Minute
	// goneWithin is longer: a Cluster goes after its management namespace, which costs Kubernetes a hundred requests, one after another.
	goneWithin = 15 * time.Minute
)

// Namespace makes a namespace for a test. It stays for as long as the hub: deleting one costs Kubernetes a hundred requests, and as many
// for what the hub has made for each cluster in it, which all other tests would wait for.
func (e *Env) Namespace(t *testing.T) string {
	t.Helper()
	// go test knows what a cached result depends on by what is read while tests run; checkRights reads it after them.
	_ = os.Getenv(usageVariable)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := e.Client.Create(t.Context(), namespace); err != nil {
		t.Fatalf("creating namespace: %v", err)
	}
	return namespace.Name
}

// Until waits until check returns nil, and ends the test with its last error otherwise.
func Until(t *testing.T, what string, check func() error) {
	t.Helper()
	await(t, Patience, what, check)
}

// await asks again and again, ever more seldom, since every question takes something away from what it asks for.
func await(t *testing.T, within time.Duration, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(within)
	for pause := 20 * time.Millisecond; ; pause = min(pause*5/4, 250*time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waiting for %s: %v", what, err)
		}
		time.Sleep(pause)
	}
}

// Create creates objects as a user does.
func (e *Env) Create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := e.Client.Create(t.Context(), object); err != nil {
			t.Fatalf("creating %T %s: %v", object, object.GetName(), err)
		}
	}
}

// Get reads an object that must exist.
func (e *Env) Get(t *testing.T, namespace, name string, into client.Object) {
	t.Helper()
	if err := e.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, into); err != nil {
		t.Fatalf("reading %T %s: %v", into, name, err)
	}
}

// Delete deletes an object as a user does, and does not wait.
func (e *Env) Delete(t *testing.T, object client.Object) {
	t.Helper()
	if err := e.Client.Delete(t.Context(), object); err != nil {
		t.Fatalf("deleting %T %s: %v", object, object.GetName(), err)
	}
}

// OnConflict does what reads an object and writes it again, once more whenever somebody else has written it in between, or etcd had no time
// for it.
func OnConflict(t *testing.T, what string, do func() error) {
	t.Helper()
	Until(t, what, func() error {
		err := do()
		if err != nil && !apierrors.IsConflict(err) && !strings.Contains(err.Error(), "etcdserver: request timed out") {
			t.Fatalf("%s: %v", what, err)
		}
		return err
	})
}

// Change changes an object as a user does who edits it as it is now, whatever the test has read of it before.
func Change[T client.Object](t *testing.T, e *Env, object T, set func(T)) {
	t.Helper()
	OnConflict(t, fmt.Sprintf("changing %T %s", object, object.GetName()), func() error {
		now := reflect.New(reflect.TypeOf(object).Elem()).Interface().(T)
		now.GetObjectKind().SetGroupVersionKind(object.GetObjectKind().GroupVersionKind())
		if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(object), now); err != nil {
			return err
		}
		before := now.DeepCopyObject().(client.Object)
		set(now)
		if err := e.Client.Patch(t.Context(), now, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return err
		}
		reflect.ValueOf(object).Elem().Set(reflect.ValueOf(now).Elem())
		return nil
	})
}

// Condition waits until a condition has a status and a reason, and returns its message. Any reason will do where none is given.
func Condition[T interface {
	client.Object
	conditions.Getter
}](t *testing.T, e *Env, object T, conditionType string, status metav1.ConditionStatus, reason string) string {
	t.Helper()
	var message string
	Until(t, fmt.Sprintf("%T %s to have %s=%s/%s", object, object.GetName(), conditionType, status, reason), func() error {
		if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		got := meta.FindStatusCondition(object.GetConditions(), conditionType)
		if got == nil || got.Status != status || reason != "" && got.Reason != reason {
			return fmt.Errorf("it has %+v", object.GetConditions())
		}
		message = got.Message
		return nil
	})
	return message
}

// Gone waits until an object is.
func (e *Env) Gone(t *testing.T, object client.Object) {
	t.Helper()
	await(t, goneWithin, fmt.Sprintf("%T %s to go", object, object.GetName()), func() error {
		err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return fmt.Errorf("it is still there: finalizers %v, %+v", object.GetFinalizers(), object)
	})
}
