package nodedriver_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/hub/testenv/wait"
)

// A driver whose cloud does not answer is ended some time after its creation was canceled.
func TestCanceledCreate(t *testing.T) {
	t.Parallel()
	cloud, runner, m := setup(t, "")
	runner.Grace = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	cloud.SetFault(func(method, path string) error {
		if strings.HasSuffix(path, "/start") && method == http.MethodPost {
			cancel()
			<-t.Context().Done()
		}
		return nil
	})
	if _, _, err := runner.Create(ctx, m); err == nil {
		t.Fatal("created")
	}
	cloud.SetFault(nil)
	if _, err := runner.Remove(t.Context(), m); err != nil || len(cloud.Instances()) > 0 {
		t.Errorf("got %v, left %v", err, cloud.Instances())
	}
}

// A creation is canceled while the cloud creates the instance: the driver learns which one it is, and it is removed.
func TestCanceledWhileCloudCreates(t *testing.T) {
	t.Parallel()
	cloud, runner, m := setup(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	returned := make(chan struct{})
	cloud.SetFault(func(method, path string) error {
		if method == http.MethodPost && path == "/instances" {
			cancel()
			select {
			case <-returned:
			case <-time.After(time.Second):
			}
		}
		return nil
	})
	_, _, err := runner.Create(ctx, m)
	close(returned)
	if err == nil {
		t.Fatal("created")
	}
	wait.Until(t, 10*time.Second, "the cloud to create the instance", func() bool { return cloud.Made() == 1 })
	cloud.SetFault(nil)
	if _, err := runner.Remove(t.Context(), m); err != nil || len(cloud.Instances()) > 0 {
		t.Errorf("got %v, left %v", err, cloud.Instances())
	}
}
