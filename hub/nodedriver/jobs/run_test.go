package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// unavailable has the Secret of a result, at an API server that fails from the second write on.
type unavailable struct {
	typedcorev1.SecretInterface
	secret *corev1.Secret
	writes int
	// failures are how often it fails, err how.
	failures int
	err      error
}

func (u *unavailable) Get(context.Context, string, metav1.GetOptions) (*corev1.Secret, error) {
	return u.secret.DeepCopy(), nil
}

func (u *unavailable) Update(_ context.Context, secret *corev1.Secret, _ metav1.UpdateOptions) (*corev1.Secret, error) {
	if u.writes++; u.writes > 1 && u.failures > 0 {
		u.failures--
		return nil, u.err
	}
	u.secret = secret
	return secret, nil
}

// TestResultIsWrittenAgain: while the Kubernetes API does not answer, the result of a Job is written again: without it, the machine would
// be removed and made again. Where the Secret was deleted, nobody waits for it.
func TestResultIsWrittenAgain(t *testing.T) {
	order := filepath.Join(t.TempDir(), orderKey)
	if err := os.WriteFile(order, []byte(`{"operation":"dance"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		failures int
		err      error
		written  bool
		writes   int
	}{
		"does not answer for a while": {3, errors.New("connection refused"), true, 5},
		"does not answer for long":    {1 << 20, errors.New("connection refused"), false, 0},
		"deleted":                     {1 << 20, apierrors.NewNotFound(corev1.Resource("secrets"), "one"), false, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			u := &unavailable{secret: &corev1.Secret{}, failures: tt.failures, err: tt.err}
			err := Run(t.Context(), RunOptions{Order: order, Secrets: u, Result: "one", Pod: "pod"})
			if err == nil || tt.written != strings.Contains(err.Error(), "unknown operation") {
				t.Errorf("%s: %v", name, err)
			}
			if tt.writes > 0 && u.writes != tt.writes {
				t.Errorf("%s: %d writes, want %d", name, u.writes, tt.writes)
			}
			written := &result{}
			if raw := u.secret.Data[resultKey]; (len(raw) > 0) != tt.written {
				t.Errorf("%s: the result is %q", name, raw)
			} else if tt.written && (json.Unmarshal(raw, written) != nil || !strings.Contains(written.Error, "unknown operation")) {
				t.Errorf("%s: the result is %q", name, raw)
			}
		})
	}
}
