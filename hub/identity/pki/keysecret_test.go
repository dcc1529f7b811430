package pki

import (
	"context"
	"crypto/ed25519"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var key = KeySecret{Namespace: "ns", Name: "key", DataKey: "k", Purpose: "tests"}

// secrets is a client that holds one Secret, or none. first is what another replica creates in between.
type secrets struct {
	client.Client
	held, first *corev1.Secret
}

func (s *secrets) Get(_ context.Context, name client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if s.held == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name.Name)
	}
	s.held.DeepCopyInto(into.(*corev1.Secret))
	return nil
}

func (s *secrets) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	if s.first != nil {
		s.held = s.first
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "secrets"}, object.GetName())
	}
	s.held = object.(*corev1.Secret)
	return nil
}

func ensure(t *testing.T, s *secrets) ed25519.PrivateKey {
	t.Helper()
	got, err := key.Ensure(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestKeyIsMadeOnce(t *testing.T) {
	mine, theirs := &secrets{}, &secrets{}
	first := ensure(t, mine)
	if !first.Equal(ensure(t, mine)) {
		t.Error("a second key was made")
	}
	other := ensure(t, theirs)
	if first.Equal(other) {
		t.Error("two keys are the same")
	}
	if got := ensure(t, &secrets{first: theirs.held}); !got.Equal(other) {
		t.Error("of two replicas the slower one does not take the key of the faster one")
	}
}

// A key that somebody has damaged is not replaced, and not quoted.
func TestKeyIsNotReplaced(t *testing.T) {
	s := &secrets{}
	ensure(t, s)
	for _, damage := range []string{"", "geheim", "-----BEGIN PRIVATE KEY-----\nZ2VoZWlt\n-----END PRIVATE KEY-----\n"} {
		s.held.Data[key.DataKey] = []byte(damage)
		_, err := key.Ensure(t.Context(), s)
		if err == nil || !strings.Contains(err.Error(), "Secret ns/key, key k, which others rely on and which is therefore not replaced") ||
			strings.Contains(err.Error(), "geheim") {
			t.Errorf("%q: got %v", damage, err)
		}
		if _, stored := errors.AsType[StoredError](err); !stored {
			t.Errorf("%q: got a %T", damage, err)
		}
	}
}
