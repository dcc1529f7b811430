// Package integration holds the tests that need a whole hub: one is started for all of them. They are in one package so that Kubernetes
// is linked once. Each test works in namespaces of its own, and leaves the hub as it found it.
package integration

import (
	"context"
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/hub/testenv"
)

// env is the hub that all tests share.
var env *testenv.Env

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	if dataDir := os.Getenv(childEnv); dataDir != "" {
		return runChild(dataDir)
	}
	var err error
	if env, err = testenv.Start(testenv.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, "starting the hub:", err)
		return 1
	}
	defer func() {
		if err := env.Stop(code != 0); err != nil {
			fmt.Fprintln(os.Stderr, "the hub ended with an error:", err)
			code = 1
		}
		if code != 0 {
			fmt.Fprintln(os.Stderr, "the hub's log is", env.Log)
		}
	}()
	return m.Run()
}

// newNamespace makes a namespace that is deleted after the test.
func newNamespace(t *testing.T) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := env.Client.Create(t.Context(), namespace); err != nil {
		t.Fatalf("creating namespace: %v", err)
	}
	t.Cleanup(func() {
		if err := env.Client.Delete(context.Background(), namespace); err != nil {
			t.Logf("deleting namespace: %v", err)
		}
	})
	return namespace.Name
}
